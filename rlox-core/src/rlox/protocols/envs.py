"""Protocols of vector envs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, runtime_checkable

import gymnasium
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    pass

__all__ = ["MaskingVecEnv", "StatefulVecEnv", "VecEnv", "VecEnvStep"]


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
        """Return (N, mask_size) masks of the next actions, or ``None`` if nothing is masked.

        True is a possible choice; :class:`rlox.spaces.ActionRows` lists the columns. Whether there
        are masks is the same from the first reset on.
        """
