"""One PettingZoo env, parallel or turn-based, behind one interface with checked steps.

Errors name the env, the agent, the step and the field.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rlox.errors import EnvError, suggest
from rlox.spaces.rows import MASK_KEY, is_nested, leaf_spaces, split, without_mask

Space = gymnasium.Space[Any]


@dataclass
class Outcome:
    """Result of a reset or a step of one env."""

    where: str
    """Step and env, for error messages."""
    obs: dict[str, Any] = field(default_factory=dict)
    """Observations as arrays by leaf, without masks, for the agents in the episode and for those
    that ended in this step."""
    masks: dict[str, Any] = field(default_factory=dict)
    """Unchecked action masks from the env, by agent."""
    rewards: dict[str, float] = field(default_factory=dict)
    """Rewards of this step."""
    terminated: set[str] = field(default_factory=set)
    """Agents that terminated in this step."""
    truncated: set[str] = field(default_factory=set)
    """Agents that were truncated in this step."""
    living: tuple[str, ...] = ()
    """Agents in the episode; empty once it has ended."""
    active: tuple[str, ...] = ()
    """Agents that act next."""
    state: npt.NDArray[Any] | None = None
    """State of the env."""


@dataclass(frozen=True)
class Spaces:
    """Agents and spaces of an env; they must not change between episodes."""

    agents: tuple[str, ...]
    observation: dict[str, Space]
    """By agent, including the action mask."""
    action: dict[str, Space]
    state: Space | None


def read_spaces(env: Any) -> Spaces:
    """Return the agents and spaces of an env.

    Raises:
        EnvError: the env does not list its agents, the list is empty or has duplicates, a name is
            not a string, or an agent has no space.
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
    found: dict[str, dict[str, Space]] = {}
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


def step_error(where: str, field: str, agent: str | None, problem: str) -> EnvError:
    """Return the error for a field of one agent, or for a shared field."""
    of = f" of agent '{agent}'" if agent is not None else ""
    return EnvError(f"{field}{of} in {where} {problem}")


class OneEnv(ABC):
    """One env of several agents, with checks of its results.

    Args:
        env: the env to step and close.
        spaces: its agents and spaces.
        number: index of the env, for errors.
    """

    def __init__(self, env: Any, spaces: Spaces, number: int) -> None:
        self.spaces, self.number = spaces, number
        self.env = env
        self._step = 0
        self._state: npt.NDArray[Any] | None = None

    @abstractmethod
    def reset(self, seed: int | None) -> Outcome:
        """Begin an episode; without a seed the env continues its own random stream."""

    @abstractmethod
    def step(self, actions: Mapping[str, Any]) -> Outcome:
        """Take the actions of the active agents.

        Raises:
            EnvError: an agent, a reward, a flag or an observation is missing, unexpected or wrong.
        """

    def leave_out_state(self) -> None:
        """Stop reading the state."""
        self.spaces = replace(self.spaces, state=None)

    def close(self) -> None:
        """Close the env."""
        self.env.close()

    @property
    def _where(self) -> str:
        return f"{f'step {self._step}' if self._step else 'the reset'} of env {self.number}"

    def _error(self, field: str, agent: str | None, problem: str) -> EnvError:
        return step_error(self._where, field, agent, problem)

    def advance(self, actions: Mapping[str, Any]) -> tuple[Outcome, Outcome]:
        """Step, then reset the env if it ended; return the step's outcome and the current one."""
        out = self.step(actions)
        return out, out if out.living else self.reset(None)

    def _begin(self, seed: int | None) -> Any:
        """Reset the env, and check that its agents and spaces have not changed."""
        self._step, self._state = 0, None
        returned, known = self.env.reset(seed=seed), self.spaces
        if tuple(self.env.possible_agents) != known.agents:
            raise self._error(
                "possible_agents", None, f"changed from {list(known.agents)} to "
                f"{list(self.env.possible_agents)}; keep the agents of all episodes in it",
            )  # fmt: skip
        for kind, before in (("observation", known.observation), ("action", known.action)):
            for agent in known.agents:
                space = getattr(self.env, f"{kind}_space")(agent)
                if space is not before[agent] and space != before[agent]:
                    raise self._error(
                        f"{kind}_space", agent, f"changed from {before[agent]} to {space}; keep "
                        "one space per agent",
                    )  # fmt: skip
        return returned

    def _agents(self) -> tuple[str, ...]:
        """Return ``env.agents`` after checking it: names from ``possible_agents``, none twice."""
        agents, known = self.env.agents, self.spaces.agents
        if not isinstance(agents, (list, tuple)):
            raise self._error("env.agents", None, f"must be a list, got {type(agents).__name__}")
        for agent in agents:
            if agent not in known:
                raise self._error(
                    "env.agents", None, f"holds '{agent}', which is not in possible_agents "
                    f"({', '.join(known)}); name all agents that may join there",
                )  # fmt: skip
            if list(agents).count(agent) > 1:
                raise self._error("env.agents", None, f"holds '{agent}' twice")
        return tuple(agents)

    def _require_agent(self, living: tuple[str, ...]) -> None:
        if not living:
            raise self._error("env.agents", None, "is empty; let the episode begin with an agent")

    def _lost(self, agent: str) -> EnvError:
        return self._error(
            "env.agents", None, f"lost '{agent}', which neither terminated nor was "
            "truncated; say which of the two ended it",
        )  # fmt: skip

    def _number(self, agent: str, value: Any) -> float:
        """Return a reward after checking that it is one finite number."""
        array = np.asarray(value)
        if array.shape != () or array.dtype.kind not in "biuf":
            got = f"{type(value).__name__} of shape {array.shape} and dtype {array.dtype}"
            raise self._error("the reward", agent, f"must be one number, got {got}")
        if not np.isfinite(array):
            raise self._error("the reward", agent, f"must be finite, got {float(array)}")
        return float(array)

    def _flag(self, field: str, agent: str, value: Any) -> bool:
        array = np.asarray(value)
        if array.shape != () or array.dtype.kind not in "biu" or array not in (0, 1):
            raise self._error(field, agent, f"must be True or False, got {value!r}")
        return bool(array)

    def _observe(self, agent: str, value: Any, into: Outcome) -> None:
        """Check one observation; store it and its mask."""
        space = self.spaces.observation[agent]
        bare = without_mask(space)
        if bare is not space:
            if not isinstance(value, Mapping) or MASK_KEY not in value:
                raise self._error(
                    "the observation", agent, f"has no '{MASK_KEY}', which its space has"
                )
            into.masks[agent] = copy(value[MASK_KEY])
            value = {key: leaf for key, leaf in value.items() if key != MASK_KEY}
        into.obs[agent] = self._checked("the observation", agent, bare, value)

    @staticmethod
    def _take_masks(infos: Any, into: Outcome) -> None:
        """Store the masks from infos, for agents whose observations hold none."""
        if isinstance(infos, Mapping):
            for agent, info in infos.items():
                if agent in into.obs and isinstance(info, Mapping) and MASK_KEY in info:
                    into.masks.setdefault(agent, copy(info[MASK_KEY]))

    def _read_state(self, out: Outcome) -> None:
        """Store a copy of the env's state, if it has a state space.

        Some envs have no state once all agents have terminated. No value is needed there, so the
        previous state stands in.
        """
        if self.spaces.state is None:
            return
        try:
            state = self.env.state()
        except NotImplementedError:
            raise self._error(
                "the state", None, "is missing: the env has a state_space but no state(); write "
                "it, or remove state_space",
            ) from None  # fmt: skip
        except Exception as error:
            if out.living or out.truncated or self._state is None:
                raise self._error(
                    "the state", None, f"cannot be read: {error!r}; with_state=False leaves it "
                    "out, and so do critic='observations' and 'local'",
                ) from error  # fmt: skip
            out.state = self._state
            return
        # some PettingZoo envs exceed their declared state Box, e.g. knights_archers_zombies
        found = self._checked("the state", None, self.spaces.state, state, boxes_bind=False)
        self._state = out.state = found

    def _checked(
        self, field: str, agent: str | None, space: Space, value: Any, *, boxes_bind: bool = True
    ) -> Any:
        """Return an observation or a state as arrays by leaf, checked against its space."""
        try:
            leaves = split(space, value)
        except ValueError as error:
            raise self._error(field, agent, f"is not nested as its space: {error}") from None
        if not is_nested(space):
            return self._leaf(field, agent, space, leaves, boxes_bind)
        return {
            name: self._leaf(f"{field} '{name}'", agent, leaf, leaves[name], boxes_bind)
            for name, leaf in leaf_spaces(space).items()
        }

    def _leaf(
        self, field: str, agent: str | None, space: Space, value: Any, boxes_bind: bool
    ) -> npt.NDArray[Any]:
        try:
            array = np.array(value)  # a copy, as an env may reuse its array
        except ValueError as error:
            raise self._error(field, agent, f"is not an array: {error}") from None
        if array.shape != space.shape:
            raise self._error(
                field, agent, f"has shape {array.shape}, expected {space.shape} of its space "
                f"{space}; change it or the space",
            )  # fmt: skip
        integers = np.issubdtype(space.dtype or np.float32, np.integer)
        if array.dtype.kind not in ("biu" if integers else "biuf"):
            raise self._error(
                field, agent, f"has dtype {array.dtype}, expected {space.dtype} of its space "
                f"{space}",
            )  # fmt: skip
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise self._error(
                field, agent, "is not finite; an infinity or a NaN spreads through the networks"
            )
        if (boxes_bind or not isinstance(space, spaces.Box)) and _outside(space, array):
            raise self._error(
                field, agent, f"lies outside its space {space}: it holds {array.min()} to "
                f"{array.max()}; change it or the space",
            )  # fmt: skip
        return array


class ParallelOne(OneEnv):
    """A parallel env: all agents in the episode act in each step.

    An agent joins by appearing in ``env.agents``. It leaves in the step that terminates or
    truncates it, which also returns its last observation.
    """

    _living: tuple[str, ...] = ()

    def reset(self, seed: int | None) -> Outcome:
        """Begin an episode."""
        obs, infos = self._parts("env.reset", ("observations", "infos"), self._begin(seed))
        living = self._agents()
        self._require_agent(living)
        self._members("the observation", obs, living, living, "is in env.agents")
        return self._outcome(Outcome(self._where), obs, infos, living, living)

    def step(self, actions: Mapping[str, Any]) -> Outcome:
        """Take the actions of all agents."""
        before = self._living
        self._step += 1
        parts = ("observations", "rewards", "terminations", "truncations", "infos")
        returned = self._parts("env.step", parts, self.env.step(dict(actions)))
        obs, rewards, terminations, truncations, infos = returned
        living = self._agents()
        known = {*before, *living}
        out = Outcome(self._where)
        paid = self._members("the reward", rewards, before, known, "acted")
        out.rewards = {agent: self._number(agent, value) for agent, value in paid.items()}
        for name, given, ended in (
            ("terminations", terminations, out.terminated),
            ("truncations", truncations, out.truncated),
        ):
            flags = self._members(name, given, before, known, "acted")
            ended.update(a for a, value in flags.items() if self._flag(name, a, value))
        gone = out.terminated | out.truncated
        for agent in known:
            if agent in gone and agent in living:
                raise self._error(
                    "env.agents", None, f"still holds '{agent}', which terminated or was "
                    "truncated; remove it in the same step",
                )  # fmt: skip
            if agent not in gone and agent not in living:
                raise self._lost(agent)
        self._members("the observation", obs, known, known, "is in the episode, or ended here")
        return self._outcome(out, obs, infos, known, living)

    def _parts(self, call: str, parts: tuple[str, ...], returned: Any) -> Any:
        """Return a call's result after checking that it is a tuple with these parts."""
        if not isinstance(returned, tuple) or len(returned) != len(parts):
            many = f" of {len(returned)}" if isinstance(returned, tuple) else ""
            raise self._error(
                f"what {call} returned", None, f"must be ({', '.join(parts)}), got "
                f"{type(returned).__name__}{many}",
            )  # fmt: skip
        return returned

    def _members(
        self, field: str, given: Any, needed: Iterable[str], known: Iterable[str], why: str
    ) -> Mapping[str, Any]:
        """Return a field's dict by agent after checking its keys; ``why`` says why some must be."""
        if not isinstance(given, Mapping):
            raise self._error(field, None, f"must be a dict by agent, got {type(given).__name__}")
        known = set(known)
        for agent in given:
            if agent not in known:
                raise self._error(
                    field, agent, "was given, but the agent is not in the episode; leave it out, "
                    f"or list it in env.agents{suggest(str(agent), known)}",
                )  # fmt: skip
        for agent in needed:
            if agent not in given:
                raise self._error(field, agent, f"is missing; the agent {why}, so give it")
        return given

    def _outcome(self, out: Outcome, obs: Any, infos: Any, seen: Any, living: Any) -> Outcome:
        for agent in seen:
            self._observe(agent, obs[agent], out)
        if not isinstance(infos, Mapping):
            raise self._error("infos", None, f"must be a dict by agent, got {type(infos).__name__}")
        self._take_masks(infos, out)
        out.living = out.active = self._living = living
        self._read_state(out)
        return out


class TurnsOne(OneEnv):
    """A turn-based env (AEC): one agent acts in each step, the others wait.

    A step's reward is the increase of an agent's cumulative reward, so the rewards between two
    actions of an agent sum to the reward that ``env.last()`` reports. The dead steps that the AEC
    interface requires for ended agents are taken within the same step.
    """

    _gone: set[str]
    _paid: dict[str, float]

    def reset(self, seed: int | None) -> Outcome:
        """Begin an episode."""
        self._begin(seed)
        self._gone, self._paid = set(), {}
        out = self._outcome(None)
        self._require_agent(out.living)
        out.rewards = {}
        return out

    def step(self, actions: Mapping[str, Any]) -> Outcome:
        """Take the action of the agent whose turn it is."""
        self._step += 1
        ((actor, action),) = actions.items()
        self.env.step(action)
        return self._outcome(actor)

    def _outcome(self, actor: str | None) -> Outcome:
        env, out = self.env, Outcome(self._where)
        if actor is not None:
            self._paid[actor] = 0.0
        before = set(self._paid)
        self._look(out)
        vanished = before - self._gone - set(env.agents)
        if vanished:
            raise self._lost(min(vanished))
        for _ in range(2 * len(self.spaces.agents)):
            if not env.agents or env.agent_selection not in self._gone:
                break
            env.step(None)
            self._look(out)
        living = tuple(agent for agent in self._agents() if agent not in self._gone)
        if living and env.agent_selection not in living:
            raise self._error(
                "env.agent_selection", None, f"is '{env.agent_selection}', which is not in the "
                f"episode; in it are {', '.join(living)}",
            )  # fmt: skip
        for agent in living:
            self._observe(agent, env.observe(agent), out)
        self._take_masks(env.infos, out)
        out.living = living
        out.active = (env.agent_selection,) if living else ()
        self._read_state(out)
        return out

    def _look(self, out: Outcome) -> None:
        """Record rewards and ends since the last look."""
        env = self.env
        for agent in self._agents():
            for name, table in (
                ("rewards", env._cumulative_rewards),
                ("terminations", env.terminations),
                ("truncations", env.truncations),
            ):
                if agent not in table:
                    raise self._error(name, agent, "is missing; the agent is in env.agents")
            if agent in self._gone:
                continue
            total = self._number(agent, env._cumulative_rewards[agent])
            paid = total - self._paid.get(agent, 0.0)
            out.rewards[agent] = out.rewards.get(agent, 0.0) + paid
            self._paid[agent] = total
            for name, ended in (("terminations", out.terminated), ("truncations", out.truncated)):
                if self._flag(name, agent, getattr(env, name)[agent]):
                    ended.add(agent)
            if agent in out.terminated | out.truncated:
                self._gone.add(agent)
                self._observe(agent, env.observe(agent), out)
                self._take_masks(env.infos, out)


def _outside(space: Space, array: npt.NDArray[Any]) -> bool:
    if isinstance(space, spaces.Box):
        if not (space.bounded_below.any() or space.bounded_above.any()):
            return False
        # compared in float32, as observations are stored, so that a rounded bound is inside
        given = array.astype(np.float32)
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
        return bool((given < low).any() or (given > high).any())
    return not space.contains(array.astype(space.dtype))


def is_env(env: Any) -> bool:
    """Return whether an object has the methods of a PettingZoo env."""
    return not isinstance(env, type) and all(
        callable(getattr(env, name, None)) for name in ("reset", "step", "observation_space")
    )


def wrap(env: Any, number: int) -> OneEnv:
    """Return an env of any kind, with checked steps.

    Args:
        env: a parallel or an AEC env.
        number: index of the env, for errors.

    Raises:
        EnvError: it is neither, or does not list its agents.
    """
    from pettingzoo import AECEnv
    from pettingzoo.utils.conversions import aec_to_parallel

    if isinstance(env, gymnasium.Env):
        raise EnvError(
            f"{type(env.unwrapped).__name__} is a gymnasium env of one agent; rlox.make takes it "
            "as env, and PettingZooVecEnv takes envs of several agents"
        )
    if not is_env(env):
        raise EnvError(
            f"the env must be a PettingZoo parallel or AEC env, got {type(env).__name__}; it needs "
            "reset, step, observation_space(agent), action_space(agent) and possible_agents"
        )
    found = read_spaces(env)
    if isinstance(env, AECEnv):
        if not getattr(env, "metadata", {}).get("is_parallelizable", False):
            return TurnsOne(env, found, number)
        env = aec_to_parallel(env)
    elif hasattr(env, "agent_iter"):
        raise EnvError(
            f"{type(env).__name__} has agent_iter but is not a pettingzoo.AECEnv; derive from it, "
            "so that it is stepped by turns"
        )
    return ParallelOne(env, found, number)
