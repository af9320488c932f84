"""Protocols of policies, exploration noise and optimisers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

    from rlox.nn.distributions import Distribution


@runtime_checkable
class OnPolicyActor(Protocol):
    """A policy with a value estimate; any ``torch.nn.Module`` with these methods will do.

    Observations of a nested space are tensors by leaf name, see :mod:`rlox.spaces.rows`.

    If the env masks actions, all methods that take or return actions get one more argument,
    ``action_masks``, a bool tensor (B, mask_size). A further method ``evaluate_actions(obs,
    actions)`` may return log-probabilities, entropies and values in one pass, and
    ``act_with_value(obs)`` may sample actions and return them, log-probabilities and values in one
    pass: rollouts then keep these values, where they otherwise compute them all at the end.
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
            action_masks: (T*n, mask_size) bool; ``None`` masks nothing.
            state: (n, state_size) before the sequences.
            episode_starts: (T*n,) bool, whether an episode begins with the observation.
        """


@runtime_checkable
class StochasticActor(Protocol):
    """SAC's policy; any ``torch.nn.Module`` with these methods will do.

    Actions are in [-1, 1]; ``sample`` may be called ``get_action_and_logprob``.
    """

    def sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Sample actions (B, act_dim), differentiably, with their log-probabilities (B,)."""

    def deterministic(self, obs: Tensor) -> Tensor:
        """Return the actions (B, act_dim) to take if nothing is explored."""


@runtime_checkable
class DeterministicActor(Protocol):
    """TD3's and DDPG's policy; any ``torch.nn.Module`` will do that is called with observations.

    If it has a method ``deterministic``, that is called.
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
class Optimizer(Protocol):
    """Moves the parameters of a module; see :class:`rlox.nn.FlatOptimizer`.

    Gradients of several losses, or of several ranks, add up between :meth:`backward` and
    :meth:`apply`.
    """

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of ``loss``, a scalar, to the gradients since the last step."""

    def apply(self, learning_rate: float | None = None) -> None:
        """Clip the gradients, take one step down them and drop them.

        ``None`` takes the learning rate that a scheduler of torch has written.
        """

    def require_views(self) -> None:
        """Raise a RuntimeError if steps would not reach the module's parameters."""

    def is_finite(self) -> bool:
        """Return whether all parameters are finite."""

    def state_dict(self) -> dict[str, Any]:
        """Return what the optimiser keeps, as arrays."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
