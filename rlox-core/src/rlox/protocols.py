"""The contracts between the parts of rlox; anything that has the methods fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, runtime_checkable

import gymnasium
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

    from rlox.nn.distributions import Distribution

__all__ = [
    "DeterministicActor",
    "DiscreteQFunction",
    "ExplorationStrategy",
    "MaskingVecEnv",
    "OnPolicyActor",
    "PrioritizedBuffer",
    "QFunction",
    "RecurrentActor",
    "ReplayBuffer",
    "ReplayBufferProtocol",
    "StatefulBuffer",
    "StatefulVecEnv",
    "StochasticActor",
    "VecEnv",
    "VecEnvStep",
]


class VecEnvStep(TypedDict):
    """What one step of N envs returns.

    An env whose episode ended is reset within the step: its row of ``obs`` is the first
    observation of the next episode, and its row of ``final_obs`` the true last observation.
    """

    obs: Any
    """(N, *shape) observations to act on next; of a nested space a dict of such arrays by leaf
    name, see :mod:`rlox.spaces.nested`."""
    rewards: npt.NDArray[np.float64]
    """(N,)"""
    terminated: npt.NDArray[np.bool_]
    """(N,) the task itself ended; no value beyond."""
    truncated: npt.NDArray[np.bool_]
    """(N,) a time limit or the like cut the episode; the value goes on."""
    final_obs: Any
    """The observations the step led to, in the form of ``obs`` and equal to it where the episode
    goes on."""


@runtime_checkable
class VecEnv(Protocol):
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
class StatefulVecEnv(Protocol):
    """A vector env whose complete state can be saved, which makes a resumed run exact."""

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the state of all envs."""

    def set_state(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Restore the state of all envs."""


@runtime_checkable
class MaskingVecEnv(Protocol):
    """A vector env that says which actions are possible."""

    def action_masks(self) -> npt.NDArray[np.bool_] | None:
        """Return (N, mask_size) masks of the next actions, or none where nothing is masked.

        True is a possible choice; :mod:`rlox.spaces.action_rows` says what the columns are. Whether there are
        masks is the same from the first reset on.
        """


@runtime_checkable
class OnPolicyActor(Protocol):
    """A policy with a value estimate; any ``torch.nn.Module`` with these methods will do.

    Observations of a nested space are a dict of tensors by leaf name, see :mod:`rlox.spaces.nested`.

    Where the env masks actions, all methods that take or return actions get one more argument,
    ``action_masks``, a bool tensor (B, mask_size). A further method ``evaluate_actions(obs,
    actions)`` may return log-probabilities, entropies and values in one pass.
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
class StochasticActor(Protocol):
    """SAC's policy; any ``torch.nn.Module`` with these methods will do.

    Actions are in [-1, 1]; ``sample`` may be called ``get_action_and_logprob``.
    """

    def sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Sample actions (B, act_dim), differentiably, with their log-probabilities (B,)."""

    def deterministic(self, obs: Tensor) -> Tensor:
        """Return the actions (B, act_dim) to take where nothing is explored."""


@runtime_checkable
class DeterministicActor(Protocol):
    """TD3's and DDPG's policy; any ``torch.nn.Module`` will do that is called with observations.

    Where it has a method ``deterministic``, that is called.
    """

    def forward(self, obs: Tensor) -> Tensor:
        """Return actions (B, act_dim) in [-1, 1]."""


@runtime_checkable
class QFunction(Protocol):
    """SAC's and TD3's critics; any ``torch.nn.Module`` called with observations and actions."""

    def __call__(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return values (K, B) of K critics for actions (B, act_dim) in [-1, 1]."""


@runtime_checkable
class DiscreteQFunction(Protocol):
    """DQN's network; any ``torch.nn.Module`` that is called with observations."""

    def __call__(self, obs: Tensor) -> Tensor:
        """Return action values (B, A), or (B, A, n) logits of atoms or quantiles."""


@runtime_checkable
class ExplorationStrategy(Protocol):
    """Changes the actions that a policy chose before the envs take them."""

    def explore(
        self, actions: npt.NDArray[Any], episode_start: npt.NDArray[np.bool_], step: int
    ) -> npt.NDArray[Any]:
        """Return the actions to take.

        Args:
            actions: (N,) int64, or (N, act_dim) float32 in [-1, 1], as what is returned is then.
            episode_start: (N,) whether env i begins an episode.
            step: env steps done.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return what changes from step to step, but for streams that the algorithm gave."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""


@runtime_checkable
class ReplayBuffer(Protocol):
    """What off-policy algorithms store transitions in and draw them from."""

    def __len__(self) -> int:
        """Return how many transitions can be drawn."""

    def push_batch(
        self,
        obs: npt.ArrayLike,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        next_obs: npt.ArrayLike,
    ) -> None:
        """Store a copy of one vector step: row i of every array is env i's.

        Args:
            obs: (N, *shape) observations acted on; of a nested space the rows of
                :mod:`rlox.replay.observation_codec`.
            actions: (N,) int64, or (N, act_dim) float32 in [-1, 1].
            rewards: (N,)
            terminated: (N,) bool, the task itself ended.
            truncated: (N,) bool, the episode was cut.
            next_obs: (N, *shape) what the step led to, never the next episode's first observation.
        """

    def sample(self, batch_size: int) -> Mapping[str, npt.NDArray[Any]]:
        """Draw B transitions.

        Returns:
            ``obs`` and ``next_obs`` (B, *shape), ``actions`` (B, 1) or (B, act_dim), ``rewards``
            (B,) float32, ``terminated`` (B,) bool. A buffer of several steps adds, any other may,
            ``discounts`` (B,) float32, what the value of ``next_obs`` counts (γᵏ after k steps, 0
            where the task ended). Any may add ``weights`` (B,) float32 of the transitions' losses,
            and ``indices`` (B,) for :meth:`PrioritizedBuffer.update_priorities`.
        """


@runtime_checkable
class ReplayBufferProtocol(Protocol):
    """A buffer that stores one transition at a time; off-policy algorithms take it too.

    One :class:`ReplayBuffer` is asked less often.
    """

    def __len__(self) -> int:
        """Return how many transitions can be drawn."""

    def push(
        self,
        obs: npt.NDArray[Any],
        action: Any,
        reward: float,
        terminated: bool,
        truncated: bool,
        next_obs: npt.NDArray[Any],
    ) -> None:
        """Store a transition, a row of those of :meth:`ReplayBuffer.push_batch`."""

    def sample(self, batch_size: int, seed: int) -> Mapping[str, npt.NDArray[Any]]:
        """Draw what :meth:`ReplayBuffer.sample` does, by a seed; ``seed`` may be left out."""


@runtime_checkable
class PrioritizedBuffer(Protocol):
    """A replay buffer that draws in proportion to priorities."""

    def update_priorities(self, indices: Any, priorities: npt.ArrayLike) -> None:
        """Give the transitions ``indices`` (B,) of a batch new priorities (B,)."""

    def set_beta(self, beta: float) -> None:
        """Set the exponent β in [0, 1] of the weights that correct for the priorities."""


@runtime_checkable
class StatefulBuffer(Protocol):
    """A replay buffer that can be saved in a checkpoint."""

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return a copy of all that decides how the buffer goes on."""

    def set_state(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Go on exactly from a :meth:`state`."""


@runtime_checkable
class Optimizer(Protocol):
    """Moves the parameters of a module; see :class:`rlox.nn.FlatOptimizer`.

    Gradients of several losses, or of several ranks, add up between :meth:`backward` and
    :meth:`apply`.
    """

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of ``loss``, a scalar, to the gradients since the last step."""

    def apply(self, learning_rate: float) -> None:
        """Clip the gradients, take one step down them at ``learning_rate`` and drop them."""

    def require_views(self) -> None:
        """Raise a RuntimeError if steps would not reach the module's parameters."""

    def is_finite(self) -> bool:
        """Return whether all parameters are finite."""

    def state_dict(self) -> dict[str, Any]:
        """Return what the optimiser keeps, as arrays."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""


@runtime_checkable
class RecurrentActor(Protocol):
    """A policy and a value estimate with a memory; any ``torch.nn.Module`` with these will do.

    The memory is one row per env, which is 0 where an episode begins. Masks and observations of
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
            actions: theirs.
            action_masks: (T*n, mask_size) bool; none: nothing is masked.
            state: (n, state_size) before the sequences.
            episode_starts: (T*n,) bool, whether an episode begins with the observation.
        """
