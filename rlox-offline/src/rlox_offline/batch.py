"""Minibatches of datasets in the units of the networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rlox.batches.transitions import TransitionBatch
from rlox.errors import CheckpointError
from rlox.nn.layer_data import LayerData, chain, layer_data
from torch import Tensor

KEYS = ("obs", "actions", "rewards", "next_obs", "terminated")


@dataclass(frozen=True)
class OfflineBatch:
    """A minibatch in the networks' units."""

    obs: Tensor
    """(B, obs_dim) float32, with the dataset's normalisation."""
    actions: Tensor
    """(B, act_dim) float32 in [-1, 1], or (B,) int64."""
    rewards: Tensor
    """(B,) float32."""
    next_obs: Tensor
    """(B, obs_dim) float32."""
    terminated: Tensor
    """(B,) float32: 1 if the task ended, so that nothing is bootstrapped, else 0."""
    returns_to_go: Tensor | None = None
    """(B,) float32, in the targets' units; ``None`` if the samples lack them."""

    def transitions(
        self, gamma: float = 1.0, reward_scale: float = 1.0, reward_shift: float = 0.0
    ) -> TransitionBatch:
        """Return the minibatch in the form of a replay batch, with equal weights.

        Args:
            gamma: discount γ.
            reward_scale: factor of the rewards.
            reward_shift: added after scaling.
        """
        return TransitionBatch(
            obs=self.obs,
            actions=self.actions,
            rewards=reward_scale * self.rewards + reward_shift,
            next_obs=self.next_obs,
            discounts=gamma * (1 - self.terminated),
            weights=self.rewards.new_ones(()),
            returns_to_go=self.returns_to_go,
        )


class Scaling:
    """The affine maps between a dataset's and env's units and the networks' units.

    Args:
        obs_mean: (obs_dim,) mean that the dataset subtracted from observations.
        obs_std: (obs_dim,) deviation by which it then divided them.
        act_low: (act_dim,) lower bounds of continuous actions; -1 for the networks.
        act_high: (act_dim,) upper bounds; 1 for the networks.
        device: device of the networks.
    """

    def __init__(
        self,
        obs_mean: npt.ArrayLike,
        obs_std: npt.ArrayLike,
        act_low: npt.ArrayLike,
        act_high: npt.ArrayLike,
        device: torch.device,
    ) -> None:
        self.device = device
        self._set(obs_mean, obs_std, act_low, act_high)

    def _set(self, *values: npt.ArrayLike) -> None:
        arrays = [np.array(value, np.float32) for value in values]
        self.obs_mean, self.obs_std, self.act_low, self.act_high = arrays
        mean, std, low, high = (torch.from_numpy(array).to(self.device) for array in arrays)
        self._mean, self._std = mean, std
        self._centre, self._half_range = (high + low) / 2, (high - low) / 2
        self._unit = bool((low == -1).all() and (high == 1).all())

    def obs_in(self, obs: Tensor) -> Tensor:
        """Apply the dataset's normalisation to an env's observations (B, obs_dim)."""
        return (obs - self._mean) / self._std

    def obs_out(self, obs: Tensor) -> Tensor:
        """Undo :meth:`obs_in`: return the env's observations (B, obs_dim)."""
        return obs * self._std + self._mean

    def actions_in(self, actions: Tensor) -> Tensor:
        """Map actions (B, act_dim) from their bounds to [-1, 1]."""
        return actions if self._unit else (actions - self._centre) / self._half_range

    def actions_out(self, actions: Tensor) -> Tensor:
        """Map actions (B, act_dim) from [-1, 1] to their bounds."""
        return actions if self._unit else self._centre + self._half_range * actions

    def batch(self, rows: Mapping[str, npt.NDArray[Any]], continuous: bool) -> OfflineBatch:
        """Return a dataset's sample as tensors in the networks' units."""
        returns = rows.get("returns_to_go")
        obs, actions, rewards, next_obs, terminated = (
            torch.as_tensor(rows[key], device=self.device) for key in KEYS
        )
        return OfflineBatch(
            obs.float(),
            self.actions_in(actions.float().view(len(obs), -1))
            if continuous
            else actions.view(-1).long(),
            rewards.float(),
            next_obs.float(),
            terminated.float(),
            None if returns is None else torch.as_tensor(returns, device=self.device).float(),
        )

    def layer_data(self, policy: Any, continuous: bool) -> LayerData:
        """Describe a policy in the env's units; see :mod:`rlox.nn.layer_data`.

        Args:
            policy: in the networks' units.
            continuous: whether its actions are a ``Box``.
        """
        seen = {"layer": "normalize", "mean": self.obs_mean, "std": self.obs_std}
        low, high = self.act_low.astype(np.float64), self.act_high.astype(np.float64)
        acted = {"layer": "affine", "scale": (high - low) / 2, "shift": (high + low) / 2}
        return chain(seen, layer_data(policy), *[acted] * continuous)

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the four arrays."""
        names = ("obs_mean", "obs_std", "act_low", "act_high")
        return {name: getattr(self, name).copy() for name in names}

    def load_state_dict(self, state: Mapping[str, Any], *, fixed: bool) -> None:
        """Restore the four arrays.

        Args:
            state: from :meth:`state_dict`.
            fixed: whether a dataset has already set the arrays; then they must agree.

        Raises:
            CheckpointError: the arrays differ from the dataset's, or have the wrong shape.
        """
        for name, own in self.state_dict().items():
            given = np.asarray(state[name], np.float32)
            if given.shape != own.shape:
                raise CheckpointError(f"{name} has shape {given.shape}, expected {own.shape}")
            # streaming a dataset gives the same statistics up to rounding
            if fixed and not np.allclose(given, own, rtol=1e-5):
                raise CheckpointError(
                    f"{name} differs between the checkpoint and the dataset; pass the dataset that "
                    "the training began with, normalised as it was then"
                )
        self._set(*(state[name] for name in self.state_dict()))
