"""Protocols of vector envs, of arrays and of tensors, and of their members."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, runtime_checkable

import gymnasium
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    ProtocolMeta = ABCMeta
else:
    ProtocolMeta = type(Protocol)


class ForwardedMembers(ProtocolMeta):
    """Metaclass of protocols that an object has if ``hasattr`` finds all members.

    Since Python 3.12 ``isinstance`` passes over members that ``__getattr__`` forwards: a wrapper of
    an env or buffer would lose its masks, its state or its priorities without a word.
    """

    def __instancecheck__(self, instance: Any) -> bool:
        """Return whether the instance has all members, forwarded ones included."""
        if super().__instancecheck__(instance):
            return True
        names = getattr(self, "__protocol_attrs__", None)  # Python 3.12 and later
        if names is None or not getattr(self, "_is_protocol", False):
            return False
        return all(hasattr(instance, name) for name in names)


class _Step(TypedDict):
    """What every step has."""

    obs: Any
    """(N, *shape) observations to act on next; of a nested space a dict of such arrays by leaf
    name, see :mod:`rlox.spaces.rows`."""
    rewards: npt.NDArray[np.float64]
    """(N,)"""
    terminated: npt.NDArray[np.bool_]
    """(N,) the task itself ended; no value beyond."""
    truncated: npt.NDArray[np.bool_]
    """(N,) a time limit or the like cut the episode; the value goes on."""
    final_obs: Any
    """The observations the step led to, in the form of ``obs`` and equal to it if the episode
    goes on."""


class VecEnvStep(_Step, total=False):
    """What one step of N envs returns.

    An env whose episode ended is reset within the step: its row of ``obs`` is the first
    observation of the next episode, and its row of ``final_obs`` the true last observation.
    """

    lost: npt.NDArray[np.bool_]
    """(N,) the env was lost before it made the step, and stands at the beginning of a new episode;
    left out where none was. Its row holds nothing of an outcome: truncated, a reward of 0, and in
    ``final_obs`` what was acted on. No learner may learn from it."""
    life_lost: npt.NDArray[np.bool_]
    """(N,) ``terminated`` says that a life was lost, and the same game goes on in ``obs``; left out
    where none was. Learners take it as an end; the statistics of episodes do not."""


@runtime_checkable
class VecEnv(Protocol, metaclass=ForwardedMembers):
    """N copies of one env, stepped together, each reset in the step that ends its episode."""

    @property
    def n_envs(self) -> int:
        """Number of envs N."""

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """Space of one env's observation."""

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """Space of one env's action."""

    def reset_all(self, seed: int | Sequence[int] | None = None) -> Any:
        """Reset all envs and return N observations in the form of :attr:`VecEnvStep.obs`.

        Args:
            seed: an integer s gives env i the seed s + i; a sequence gives each its own; none
                continues every env's own stream.
        """

    def step_all(self, actions: Any) -> VecEnvStep:
        """Step all envs with (N, ...) actions, arrays nested as the action space is."""

    def close(self) -> None:
        """Free the envs' resources."""


@runtime_checkable
class StatefulVecEnv(Protocol, metaclass=ForwardedMembers):
    """A vector env whose complete state can be saved, which makes a resumed run exact.

    Where only some envs take its state, it says in a text ``state_kind`` which do.
    """

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the state of all envs; empty if there is none now, and new episodes begin."""

    def set_state(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Restore the state of all envs."""


@runtime_checkable
class MaskingVecEnv(Protocol, metaclass=ForwardedMembers):
    """A vector env that says which actions are possible."""

    def action_masks(self) -> npt.NDArray[np.bool_] | None:
        """Return (N, mask_size) masks of the next actions, or ``None`` if nothing is masked.

        True is a possible choice; :class:`rlox.spaces.ActionRows` lists the columns. Whether there
        are masks is the same from the first reset on.
        """


@runtime_checkable
class TensorEnv(Protocol, metaclass=ForwardedMembers):
    """B copies of one env in tensors on a device, which are reset together.

    ``rl8_ppo`` and ``rl8_recurrent_ppo`` learn from it without a copy to the host. It may have
    ``state_dict()`` and ``load_state_dict(state)`` of arrays, which make a resumed run exact. The
    class :class:`rlox_rl8.Env` is one to inherit from; ``rlox_rl8.vec_envs`` has the adapters from
    and to :class:`VecEnv`.
    """

    @property
    def num_envs(self) -> int:
        """Number of copies B."""

    @property
    def device(self) -> Any:
        """Torch's device of all tensors."""

    @property
    def observation_spec(self) -> Any:
        """Torchrl's spec of one copy's observation."""

    @property
    def action_spec(self) -> Any:
        """Torchrl's spec of one copy's action."""

    @property
    def episodes_end(self) -> bool:
        """Whether a copy is reset in the step that ends its episode.

        A step then also returns ``terminated`` and ``truncated`` (B, 1), bool, and ``final_obs``,
        the observations that it led to.
        """

    def reset(self, *, config: dict[str, Any] | None = None) -> Any:
        """Reset all copies and return observations (B, ...), a tensor or a ``TensorDict``.

        Args:
            config: options of this reset, such as ranges of randomised physics.
        """

    def step(self, action: Any) -> Any:
        """Step all copies with actions (B, ...); return a ``TensorDict``.

        Returns:
            ``obs`` (B, ...) and ``rewards`` (B, 1), float32.
        """


@dataclass(frozen=True)
class AgentGroup:
    """Agents of one env with equal spaces, so that their rows fit into one array."""

    name: str
    """Key of the group's arrays."""
    agents: tuple[str, ...]
    """Names of the A agents, in the order of the arrays' columns."""
    observation_space: gymnasium.Space[Any]
    """Space of one agent's observation, without an action mask."""
    action_space: gymnasium.Space[Any]
    """Space of one agent's action."""


class MultiAgentObs(TypedDict):
    """What N envs of several agents show before the next step, by group of A agents.

    The row of an agent rests (``active`` is False) if it does not act in the next step: it waits
    for its turn, has ended, or has not joined yet. Actions for resting rows are ignored.
    """

    obs: dict[str, Any]
    """(N, A, *shape) observations, of a nested space a dict of such arrays by leaf name. One that
    waits for its turn has an observation; one that is not in the episode zeros, or the lowest
    choice."""
    active: dict[str, npt.NDArray[np.bool_]]
    """(N, A) the agents that act in the next step; at least one in every env."""
    masks: dict[str, npt.NDArray[np.bool_]]
    """(N, A, mask_size) possible choices of the next actions, for the groups that are masked;
    all True in resting rows. Which groups are masked is the same from the first reset on."""
    state: npt.NDArray[Any] | None
    """(N, ...) state of each env; ``None`` for an env without a state space."""


class MultiAgentStep(MultiAgentObs):
    """What one step of N envs of several agents returns.

    An agent's end is no reset: its row rests until the episode of its env ends. An env whose
    episode ended is reset within the step: ``obs``, ``active``, ``masks`` and ``state`` are then
    those of the next episode, the other fields those of the step.
    """

    rewards: dict[str, npt.NDArray[np.float64]]
    """(N, A) paid in this step. What a resting agent is paid belongs to its last action; what it
    is paid before its first action counts in its return only."""
    terminated: dict[str, npt.NDArray[np.bool_]]
    """(N, A) the agent's task itself ended in this step; no value beyond."""
    truncated: dict[str, npt.NDArray[np.bool_]]
    """(N, A) the agent was cut off in this step, by a time limit or the like; the value goes
    on."""
    final_obs: dict[str, Any]
    """The observations the step led to, in the form of ``obs``: the true last ones of agents that
    ended, and equal to ``obs`` if the env's episode and the agent go on."""
    final_state: npt.NDArray[Any] | None
    """(N, ...) states the step led to; equal to ``state`` if the episode goes on."""
    episode_ended: npt.NDArray[np.bool_]
    """(N,) all agents of the env have ended, so the env was reset."""


@runtime_checkable
class MultiAgentVecEnv(Protocol, metaclass=ForwardedMembers):
    """N copies of one env of several agents, stepped together.

    The agents and their order are fixed: those that are not in an episode have resting rows.
    """

    @property
    def n_envs(self) -> int:
        """Number of envs N."""

    @property
    def possible_agents(self) -> tuple[str, ...]:
        """Names of all agents, in the env's order."""

    @property
    def groups(self) -> tuple[AgentGroup, ...]:
        """Groups of agents of equal spaces; every agent is in one."""

    @property
    def state_space(self) -> gymnasium.Space[Any] | None:
        """Space of one env's state; ``None`` if it has none."""

    def reset_all(self, seed: int | Sequence[int] | None = None) -> MultiAgentObs:
        """Reset all envs.

        Args:
            seed: an integer s gives env i the seed s + i; a sequence gives each its own; ``None``
                continues every env's own stream.
        """

    def step_all(self, actions: Mapping[str, Any]) -> MultiAgentStep:
        """Step all envs.

        Args:
            actions: by group, (N, A, ...) arrays nested as the group's action space is.
        """

    def close(self) -> None:
        """Free the envs' resources."""
