"""Protocols between the parts of rlox (structural typing)."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, runtime_checkable

import gymnasium
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

    from rlox.nn.distributions import Distribution

if TYPE_CHECKING:
    ProtocolMeta = ABCMeta
else:
    ProtocolMeta = type(Protocol)


class ForwardedMembers(ProtocolMeta):
    """Metaclass of protocols that an object satisfies if ``hasattr`` finds all members.

    Since Python 3.12 ``isinstance`` ignores members that ``__getattr__`` forwards: a wrapper of an
    env or buffer would silently lose its masks, its state or its priorities.
    """

    def __instancecheck__(self, instance: Any) -> bool:
        """Return whether the instance has all members, including forwarded ones."""
        if super().__instancecheck__(instance):
            return True
        names = getattr(self, "__protocol_attrs__", None)  # Python 3.12 and later
        if names is None or not getattr(self, "_is_protocol", False):
            return False
        return all(hasattr(instance, name) for name in names)


class _Step(TypedDict):
    """Fields of every step."""

    obs: Any
    """(N, *shape) observations to act on next; for a nested space a dict of such arrays by leaf
    name, see :mod:`rlox.spaces.rows`."""
    rewards: npt.NDArray[np.float64]
    """(N,)"""
    terminated: npt.NDArray[np.bool_]
    """(N,) the task itself ended; nothing is bootstrapped."""
    truncated: npt.NDArray[np.bool_]
    """(N,) a time limit or similar cut the episode; the value is bootstrapped."""
    final_obs: Any
    """Observations that the step led to, in the form of ``obs`` and equal to it if the episode
    continues."""


class VecEnvStep(_Step, total=False):
    """Result of one step of N envs.

    An env whose episode ended is reset within the step: its row of ``obs`` is the first
    observation of the next episode, and its row of ``final_obs`` the true last observation.
    """

    lost: npt.NDArray[np.bool_]
    """(N,) the env was lost before it made the step, and now begins a new episode; omitted if none
    was. Its row is not an outcome: truncated, a reward of 0, the observation acted on in
    ``final_obs``. Learners must skip it."""
    life_lost: npt.NDArray[np.bool_]
    """(N,) ``terminated`` means that a life was lost, and the game continues in ``obs``; omitted if
    none was. Learners treat it as an end; episode statistics do not."""


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
            seed: an integer s gives env i the seed s + i; a sequence gives each its own; ``None``
                continues every env's own stream.
        """

    def step_all(self, actions: Any) -> VecEnvStep:
        """Step all envs with (N, ...) actions, as arrays nested like the action space."""

    def close(self) -> None:
        """Free the envs' resources."""


@runtime_checkable
class StatefulVecEnv(Protocol, metaclass=ForwardedMembers):
    """A vector env whose complete state can be saved, which makes a resumed run exact.

    If only some envs can restore its state, the string ``state_kind`` names them.
    """

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the state of all envs; empty if there is none now, and new episodes begin."""

    def set_state(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Restore the state of all envs."""


@runtime_checkable
class MaskingVecEnv(Protocol, metaclass=ForwardedMembers):
    """A vector env with action masks."""

    def action_masks(self) -> npt.NDArray[np.bool_] | None:
        """Return (N, mask_size) masks of the next actions, or ``None`` if nothing is masked.

        True is a possible choice; :class:`rlox.spaces.ActionRows` lists the columns. Masks exist
        either from the first reset on or never.
        """


class TensorStep(TypedDict):
    """Result of one step of N envs of tensors, reset as in :class:`VecEnvStep`.

    An env whose copies are reset together truncates all of them in their last step.
    """

    obs: Any
    """(N, *shape) observations to act on next; for a nested space a dict of them by leaf name."""
    rewards: Tensor
    """(N,) float32."""
    terminated: Tensor
    """(N,) bool."""
    truncated: Tensor
    """(N,) bool."""
    final_obs: Any
    """Observations that the step led to, in the form of ``obs``."""


@runtime_checkable
class TensorEnv(Protocol, metaclass=ForwardedMembers):
    """N copies of one env whose tensors stay on their device, such as a simulator on a GPU.

    It may also have:

    - ``capturable = True``: a step neither asks the host for a value nor replaces tensors that it
      keeps, and draws from ``generator`` alone, so that a CUDA graph can replay it;
    - ``generator``, its ``torch.Generator``;
    - ``to(device)``, which returns the env on another device;
    - ``action_masks()``, which returns (N, mask_size) bool, see :class:`MaskingVecEnv`;
    - ``state_dict()`` and ``load_state_dict(state)`` with arrays, which make a resumed run exact.
    """

    @property
    def n_envs(self) -> int:
        """Number of envs N."""

    @property
    def device(self) -> Any:
        """Torch's device of all tensors."""

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """Space of one env's observation."""

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """Space of one env's action."""

    def reset(self, seed: int | None = None) -> Any:
        """Reset all envs and return their observations in the form of :attr:`TensorStep.obs`.

        Args:
            seed: fixes all later draws; ``None`` continues them.
        """

    def step(self, actions: Tensor) -> TensorStep:
        """Step all envs.

        Args:
            actions: (N, *shape) of the space's dtype, within the bounds of a ``Box``.
        """


@dataclass(frozen=True)
class AgentGroup:
    """Agents of one env with equal spaces, whose rows fit into one array."""

    name: str
    """Key of the group's arrays."""
    agents: tuple[str, ...]
    """Names of the A agents, in the order of the arrays' columns."""
    observation_space: gymnasium.Space[Any]
    """Space of one agent's observation, without an action mask."""
    action_space: gymnasium.Space[Any]
    """Space of one agent's action."""


class MultiAgentObs(TypedDict):
    """State of N envs of several agents before the next step, by group of A agents.

    An agent's row rests (``active`` is False) if the agent does not act in the next step: it waits
    for its turn, has ended, or has not joined yet. Actions for resting rows are ignored.
    """

    obs: dict[str, Any]
    """(N, A, *shape) observations, for a nested space a dict of such arrays by leaf name. An agent
    that waits for its turn has an observation; one that is not in the episode has zeros, or the
    lowest value of the space."""
    active: dict[str, npt.NDArray[np.bool_]]
    """(N, A) whether the agent acts in the next step; at least one per env does."""
    masks: dict[str, npt.NDArray[np.bool_]]
    """(N, A, mask_size) possible choices of the next actions, for the groups with masks; all True
    in resting rows. A group has masks either from the first reset on or never."""
    state: npt.NDArray[Any] | None
    """(N, ...) state of each env; ``None`` for an env without a state space."""


class _TeamStep(MultiAgentObs):
    """Fields of every step of several agents."""

    rewards: dict[str, npt.NDArray[np.float64]]
    """(N, A) rewards of this step. A resting agent's reward belongs to its last action; a reward
    before its first action counts only in its return."""
    terminated: dict[str, npt.NDArray[np.bool_]]
    """(N, A) the agent's task itself ended in this step; nothing is bootstrapped."""
    truncated: dict[str, npt.NDArray[np.bool_]]
    """(N, A) the agent was cut off in this step, by a time limit or similar; the value is
    bootstrapped."""
    final_obs: dict[str, Any]
    """Observations that the step led to, in the form of ``obs``: the true last ones of agents that
    ended, and equal to ``obs`` if the env's episode and the agent continue."""
    final_state: npt.NDArray[Any] | None
    """(N, ...) states that the step led to; equal to ``state`` if the episode continues."""
    episode_ended: npt.NDArray[np.bool_]
    """(N,) all agents of the env have ended, so the env was reset."""


class MultiAgentStep(_TeamStep, total=False):
    """Result of one step of N envs of several agents.

    An agent's end is not a reset: its row rests until the episode of its env ends. An env whose
    episode ended is reset within the step: ``obs``, ``active``, ``masks`` and ``state`` then
    belong to the next episode, the other fields to the step.
    """

    final_masks: dict[str, npt.NDArray[np.bool_]]
    """Masks of ``final_obs``, in the form of ``masks``, for values after a truncation; all True if
    unknown. If omitted, they are unknown at the ends of episodes."""


@runtime_checkable
class MultiAgentVecEnv(Protocol, metaclass=ForwardedMembers):
    """N copies of one env of several agents, stepped together.

    The agents and their order are fixed: agents that are not in an episode have resting rows.
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


@runtime_checkable
class ReplayBuffer(Protocol, metaclass=ForwardedMembers):
    """Stores transitions for off-policy algorithms, which draw batches from it."""

    def __len__(self) -> int:
        """Return the number of transitions that can be drawn."""

    def push_batch(
        self,
        obs: npt.ArrayLike,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        next_obs: npt.ArrayLike,
    ) -> None:
        """Store a copy of one vector step: row i of every array belongs to env i.

        Args:
            obs: (N, *shape) observations acted on; for a nested space the rows of
                :mod:`rlox.replay.codecs`.
            actions: (N,) int64, or (N, act_dim) float32 in [-1, 1].
            rewards: (N,)
            terminated: (N,) bool, the task itself ended.
            truncated: (N,) bool, the episode was cut.
            next_obs: (N, *shape) next observations, never the first ones of the next episode.
        """

    def sample(self, batch_size: int) -> Mapping[str, npt.NDArray[Any]]:
        """Draw B transitions.

        Returns:
            ``obs`` and ``next_obs`` (B, *shape), ``actions`` (B, 1) or (B, act_dim), ``rewards``
            (B,) float32, ``terminated`` (B,) bool. A buffer of several steps must add, any other
            may, ``discounts`` (B,) float32, the factor of the value of ``next_obs`` (γᵏ after k
            steps, 0 if the task ended). Optional: ``weights`` (B,) float32 of the transitions'
            losses, and ``indices`` (B,) for :meth:`PrioritizedBuffer.update_priorities`.
        """


@runtime_checkable
class ReplayBufferProtocol(Protocol, metaclass=ForwardedMembers):
    """A buffer that stores one transition at a time; off-policy algorithms take it too.

    A :class:`ReplayBuffer` needs fewer calls.
    """

    def __len__(self) -> int:
        """Return the number of transitions that can be drawn."""

    def push(
        self,
        obs: npt.NDArray[Any],
        action: Any,
        reward: float,
        terminated: bool,
        truncated: bool,
        next_obs: npt.NDArray[Any],
    ) -> None:
        """Store a transition, one row of :meth:`ReplayBuffer.push_batch`."""

    def sample(self, batch_size: int, seed: int) -> Mapping[str, npt.NDArray[Any]]:
        """Draw as :meth:`ReplayBuffer.sample` does, by a seed; the parameter is optional."""


@runtime_checkable
class PrioritizedBuffer(Protocol, metaclass=ForwardedMembers):
    """A replay buffer that draws in proportion to priorities."""

    def update_priorities(self, indices: Any, priorities: npt.ArrayLike) -> None:
        """Give the transitions ``indices`` (B,) of a batch new priorities (B,)."""

    def set_beta(self, beta: float) -> None:
        """Set the exponent β in [0, 1] of the weights that correct for the priorities."""


@runtime_checkable
class StatefulBuffer(Protocol, metaclass=ForwardedMembers):
    """A replay buffer that can be saved in a checkpoint.

    A large one is a :class:`SegmentedBuffer` too.
    """

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return a copy of the complete state."""

    def set_state(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Continue exactly from a :meth:`state`."""


@runtime_checkable
class SegmentedBuffer(StatefulBuffer, Protocol):
    """A buffer whose checkpoints write only the rows that changed.

    Its rows are in numbered slots: a ring numbers them by position, a buffer of several streams
    in any order; empty slots may have any contents. Its :meth:`state` is
    ``{**rest(), **rows(0, n)}`` with all n slots.
    """

    def changed_rows(self, since: int) -> tuple[int, int, Sequence[tuple[int, int]]]:
        """Return the rows that may have changed since an older call.

        Args:
            since: mark that the older call returned; 0 stands for the beginning, since which all
                rows have changed.

        Returns:
            A mark of this moment, positive if there are rows; the number of slots; and ranges of
            slots, (start, stop) each, which cover every row that was written, overwritten or
            updated since. After :meth:`set_state` all have changed.
        """

    def rows(self, start: int, stop: int) -> dict[str, npt.NDArray[Any]]:
        """Return a copy of the rows in the slots from ``start`` to ``stop``, as (n, ...) arrays.

        Raises:
            ValueError: there are no such slots.
        """

    def rest(self) -> dict[str, Any]:
        """Return a copy of the state apart from the rows, which every save writes in full."""


@runtime_checkable
class SequenceBuffer(Protocol, metaclass=ForwardedMembers):
    """Stores one stream of rows per env, and samples sequences of consecutive rows.

    World models and recurrent value functions learn from sequences. A row is an observation with
    its past: the previous action, its reward, and the position in the episode. The last
    observation of an episode has its own row, so that streams of envs stepped together differ in
    length.
    """

    def push(self, rows: Mapping[str, npt.ArrayLike], envs: npt.ArrayLike) -> None:
        """Append one row to the streams of some envs.

        Args:
            rows: arrays (M, ...) by field: observations by leaf name (images as uint8), ``action``,
                ``reward``, ``is_first``, ``is_last``, ``is_terminal``, and the declared fields,
                such as the state of a recurrent model after the row.
            envs: (M,) envs whose streams the rows continue.

        Raises:
            ValueError: a field is missing, unknown or of another shape.
        """

    def sample(self, batch_size: int, length: int, seed: int | None = None) -> dict[str, Any]:
        """Return sequences of consecutive rows of one stream each.

        Args:
            batch_size: number of sequences B.
            length: rows T of each, after the context.
            seed: fixes the draw; ``None`` continues the buffer's own stream.

        Returns:
            Arrays (B, T + 1, ...) by field. Row 0 is the context: the row before the sequence,
            whose declared fields a model starts from. ``indices`` (B, T + 1) identify the rows for
            :meth:`update`.

        Raises:
            ValueError: no stream has T + 1 rows yet.
        """

    def update(self, indices: npt.ArrayLike, fields: Mapping[str, npt.ArrayLike]) -> None:
        """Write declared fields of rows back; rows overwritten since then are skipped.

        Args:
            indices: (B, T) from :meth:`sample`.
            fields: arrays (B, T, ...) of some of the declared fields.
        """

    def state(self) -> dict[str, Any]:
        """Return the complete state for later samples, as arrays and plain values."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a :meth:`state`."""

    def __len__(self) -> int:
        """Return the number of rows."""


@runtime_checkable
class OnPolicyActor(Protocol):
    """A policy with a value estimate; any ``torch.nn.Module`` with these methods works.

    Observations of a nested space are tensors by leaf name, see :mod:`rlox.spaces.rows`.

    If the env masks actions, all methods that take or return actions get an extra argument,
    ``action_masks``, a bool tensor (B, mask_size). An optional method ``evaluate_actions(obs,
    actions)`` may return log-probabilities, entropies and values in one pass, and
    ``act_with_value(obs)`` may sample actions and return them, log-probabilities and values in one
    pass: rollouts then store these values instead of computing all of them at the end.
    """

    def get_action_and_logprob(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Sample actions (B, ...) for observations (B, *shape), with log-probabilities (B,)."""

    def get_value(self, obs: Tensor) -> Tensor:
        """Return state values (B,)."""

    def get_logprob_and_entropy(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities (B,) of given actions and the distribution's entropies (B,)."""

    def deterministic(self, obs: Tensor) -> Tensor:
        """Return the mode of the action distribution (B, ...)."""


@runtime_checkable
class RecurrentActor(Protocol):
    """A policy and a value estimate with a memory; any ``torch.nn.Module`` with these works.

    The memory is one row per env, 0 at the beginning of an episode. Masks and observations of
    nested spaces are as in :class:`OnPolicyActor`.
    """

    state_size: int
    """Length of a row of the memory."""

    def step(
        self, obs: Tensor, state: Tensor, action_masks: Tensor | None = None
    ) -> tuple[Distribution, Tensor, Tensor]:
        """Return distributions of N actions, values (N,) and the next state (N, state_size)."""

    def evaluate_actions(
        self,
        obs: Tensor,
        actions: Tensor,
        action_masks: Tensor | None = None,
        *,
        state: Tensor,
        episode_starts: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities, entropies and values, each (T*n,), of n sequences of T steps.

        Args:
            obs: T*n observations, step 0 of all sequences first.
            actions: the actions on those observations.
            action_masks: (T*n, mask_size) bool; ``None`` masks nothing.
            state: (n, state_size) before the sequences.
            episode_starts: (T*n,) bool, whether an episode begins with the observation.
        """


@runtime_checkable
class StochasticActor(Protocol):
    """SAC's policy; any ``torch.nn.Module`` with these methods works.

    Actions are in [-1, 1]; ``sample`` may be called ``get_action_and_logprob``.
    """

    def sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Sample actions (B, act_dim), differentiably, with their log-probabilities (B,)."""

    def deterministic(self, obs: Tensor) -> Tensor:
        """Return the actions (B, act_dim) to take without exploration."""


@runtime_checkable
class DeterministicActor(Protocol):
    """TD3's and DDPG's policy; any ``torch.nn.Module`` called with observations works.

    If it has a method ``deterministic``, that is called instead.
    """

    def forward(self, obs: Tensor) -> Tensor:
        """Return actions (B, act_dim) in [-1, 1]."""


@runtime_checkable
class ExplorationStrategy(Protocol):
    """Changes the actions of a policy before the envs take them."""

    def explore(
        self, actions: npt.NDArray[Any], episode_start: npt.NDArray[np.bool_], step: int
    ) -> npt.NDArray[Any]:
        """Return the actions to take.

        Args:
            actions: (N,) int64, or (N, act_dim) float32 in [-1, 1]; the result has the same form.
            episode_start: (N,) whether env i begins an episode.
            step: number of env steps done.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return the state that changes between steps, apart from the algorithm's streams."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a :meth:`state_dict`."""


@runtime_checkable
class Optimizer(Protocol):
    """Moves the parameters of a module; see :class:`rlox.nn.FlatOptimizer`.

    Gradients of several losses, or of several ranks, add up between :meth:`backward` and
    :meth:`apply`.
    """

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of ``loss``, a scalar, to the gradients since the last step."""

    def apply(self, learning_rate: float | None = None) -> None:
        """Clip the gradients, take one step down them and drop them.

        ``None`` takes the learning rate that a torch scheduler has set.
        """

    def require_views(self) -> None:
        """Raise a RuntimeError if steps would not change the module's parameters."""

    def is_finite(self) -> bool:
        """Return whether all parameters are finite."""

    def state_dict(self) -> dict[str, Any]:
        """Return the optimiser's state, as arrays."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a :meth:`state_dict`."""
