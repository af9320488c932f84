"""One PettingZoo env, parallel or turn-based, behind one interface with checked steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import gymnasium
import numpy.typing as npt
from rlox.errors import EnvError
from rlox.spaces.masks import MASK_KEY, without_mask

from rlox_marl.envs.checks import Where, observation

__all__ = ["OneEnv", "Outcome", "Spaces", "read_spaces", "read_state"]


@dataclass
class Outcome:
    """What a reset or a step of one env led to."""

    obs: dict[str, Any] = field(default_factory=dict)
    """Observations as arrays by leaf, without masks, of the agents in the episode and of those
    that ended in this step."""
    masks: dict[str, Any] = field(default_factory=dict)
    """Action masks as the env gave them, by agent."""
    rewards: dict[str, float] = field(default_factory=dict)
    """Paid in this step."""
    terminated: set[str] = field(default_factory=set)
    """Agents that terminated in this step."""
    truncated: set[str] = field(default_factory=set)
    """Agents that were truncated in this step."""
    living: tuple[str, ...] = ()
    """Agents in the episode; without any it has ended."""
    active: tuple[str, ...] = ()
    """Agents that act next."""
    state: npt.NDArray[Any] | None = None
    """State of the env."""


class OneEnv(Protocol):
    """One env of several agents."""

    where: Where
    spaces: Spaces

    def reset(self, seed: int | None) -> Outcome:
        """Begin an episode; without a seed the env's own stream goes on."""

    def step(self, actions: Mapping[str, Any]) -> Outcome:
        """Take the actions of the active agents."""

    def close(self) -> None:
        """Free the env's resources."""


@dataclass(frozen=True)
class Spaces:
    """Agents and spaces of an env, which every episode must keep."""

    agents: tuple[str, ...]
    observation: dict[str, gymnasium.Space[Any]]
    """By agent, with the action mask."""
    action: dict[str, gymnasium.Space[Any]]
    state: gymnasium.Space[Any] | None

    def observe(self, where: Where, agent: str, value: Any, into: Outcome) -> None:
        """Check one observation, and keep it and the mask in it.

        Raises:
            EnvError: it is not what its space says.
        """
        space = self.observation[agent]
        bare = without_mask(space)
        if bare is not space:
            if not isinstance(value, Mapping) or MASK_KEY not in value:
                raise where.error(
                    "the observation", agent, f"has no '{MASK_KEY}', which its space has"
                )
            into.masks[agent] = value[MASK_KEY]
            value = {key: leaf for key, leaf in value.items() if key != MASK_KEY}
        into.obs[agent] = observation(where, "the observation", agent, bare, value)

    def take_masks(self, infos: Any, into: Outcome) -> None:
        """Keep the masks in the infos of agents whose observations have none."""
        if isinstance(infos, Mapping):
            for agent, info in infos.items():
                if agent in into.obs and isinstance(info, Mapping) and MASK_KEY in info:
                    into.masks.setdefault(agent, info[MASK_KEY])


def read_spaces(env: Any) -> Spaces:
    """Return the agents and spaces of an env.

    Raises:
        EnvError: it has no list of all agents, no agents, one of them twice, one whose name is no
            text, or an agent without a space.
    """
    name = type(getattr(env, "unwrapped", env)).__name__
    agents = getattr(env, "possible_agents", None)
    if not isinstance(agents, (list, tuple)):
        raise EnvError(
            f"{name} has no list possible_agents, got {agents!r}; set it in the env's constructor: "
            "rows of fixed agents need the names of all that may join"
        )
    if not agents:
        raise EnvError(f"{name}.possible_agents is empty; name at least one agent")
    for agent in agents:
        if not isinstance(agent, str):
            raise EnvError(
                f"{name}.possible_agents must hold names, got {agent!r} of type "
                f"{type(agent).__name__}"
            )
        if agents.count(agent) > 1:
            raise EnvError(f"{name}.possible_agents holds '{agent}' twice")
    found: dict[str, dict[str, gymnasium.Space[Any]]] = {}
    for kind in ("observation_space", "action_space"):
        method = getattr(env, kind, None)
        if not callable(method):
            raise EnvError(f"{name} has no method {kind}(agent); PettingZoo's envs have it")
        found[kind] = {}
        for agent in agents:
            try:
                space = method(agent)
            except (KeyError, AttributeError) as error:
                raise EnvError(f"{name} has no {kind} for agent '{agent}': {error!r}") from None
            if not isinstance(space, gymnasium.Space):
                raise EnvError(f"{name}.{kind}('{agent}') must be a gymnasium.Space, got {space!r}")
            found[kind][agent] = space
    state = getattr(env, "state_space", None)
    if state is not None and not (isinstance(state, gymnasium.Space) and state.shape is not None):
        raise EnvError(f"{name}.state_space must be a space of arrays, got {state!r}")
    return Spaces(tuple(agents), found["observation_space"], found["action_space"], state)


def require_same(spaces: Spaces, env: Any, where: Where) -> None:
    """Refuse agents or spaces that changed.

    Raises:
        EnvError: they are others than those the env was made with.
    """
    if tuple(env.possible_agents) != spaces.agents:
        raise where.error(
            "possible_agents", None, f"changed from {list(spaces.agents)} to "
            f"{list(env.possible_agents)}; keep the agents of all episodes in it",
        )  # fmt: skip
    for kind, known in (("observation", spaces.observation), ("action", spaces.action)):
        for agent in spaces.agents:
            space = getattr(env, f"{kind}_space")(agent)
            if space is not known[agent] and space != known[agent]:
                raise where.error(
                    f"{kind}_space", agent, f"changed from {known[agent]} to {space}; keep one "
                    "space per agent",
                )  # fmt: skip


def read_state(
    env: Any, spaces: Spaces, where: Where, out: Outcome, before: npt.NDArray[Any] | None
) -> npt.NDArray[Any] | None:
    """Return a copy of the env's state, ``None`` for an env without a state space.

    Some envs have no state once all agents have terminated, where no value is asked for: then the
    state before stands in.

    Args:
        env: is asked.
        spaces: of it.
        where: for errors.
        out: what the step led to.
        before: the state before the step.

    Raises:
        EnvError: the env has a state space but no state, or the state is none of its space; the
            bounds of boxes are not held against it.
    """
    if spaces.state is None:
        return None
    try:
        state = env.state()
    except NotImplementedError:
        raise where.error(
            "the state", None, "is missing: the env has a state_space but no state(); write it, or "
            "remove state_space",
        ) from None  # fmt: skip
    except Exception as error:
        if out.living or out.truncated or before is None:
            raise where.error(
                "the state", None, f"cannot be read: {error!r}; with_state=False leaves it "
                "out, and so do critic='observations' and 'local'",
            ) from error  # fmt: skip
        return before
    # envs of PettingZoo leave the box that they declare for it: knights_archers_zombies by 0.4 %
    checked: npt.NDArray[Any] = observation(
        where, "the state", None, spaces.state, state, boxes_bind=False
    )
    return checked


def require_names(where: Where, agents: Any, spaces: Spaces) -> tuple[str, ...]:
    """Return ``env.agents``.

    Raises:
        EnvError: it is no list, or has an agent twice or one that is not in ``possible_agents``.
    """
    if not isinstance(agents, (list, tuple)):
        raise where.error("env.agents", None, f"must be a list, got {type(agents).__name__}")
    for agent in agents:
        if agent not in spaces.agents:
            raise where.error(
                "env.agents", None, f"holds '{agent}', which is not in possible_agents "
                f"({', '.join(spaces.agents)}); name all agents that may join there",
            )  # fmt: skip
        if list(agents).count(agent) > 1:
            raise where.error("env.agents", None, f"holds '{agent}' twice")
    return tuple(agents)


def require_parts(where: Where, call: str, parts: tuple[str, ...], returned: Any) -> Any:
    """Return what a call returned.

    Raises:
        EnvError: it is no tuple of so many things.
    """
    if not isinstance(returned, tuple) or len(returned) != len(parts):
        many = f" of {len(returned)}" if isinstance(returned, tuple) else ""
        raise where.error(
            f"what {call} returned", None, f"must be ({', '.join(parts)}), got "
            f"{type(returned).__name__}{many}",
        )  # fmt: skip
    return returned


def infos_of(where: Where, infos: Any) -> Mapping[str, Any]:
    """Return the infos by agent.

    Raises:
        EnvError: they are no dict.
    """
    if not isinstance(infos, Mapping):
        raise where.error("infos", None, f"must be a dict by agent, got {type(infos).__name__}")
    return infos
