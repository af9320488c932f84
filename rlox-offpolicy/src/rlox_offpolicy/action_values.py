"""Action values of DQN's network: numbers, or distributions of returns.

A network's outputs are (B, A), or (B, A, n) with n numbers for the distribution of each action.
"""

from __future__ import annotations

from typing import Any, Protocol, final

import torch
import torch.nn.functional as F  # noqa: N812  # the field's name for it
from rlox.learners.value_objectives import (
    CategoricalQLearning,
    QLearning,
    QuantileQLearning,
)
from rlox.nn.layer_data import LayerData, array, chain
from torch import Tensor

from rlox_offpolicy.targets import categorical_projection, quantile_huber_loss, td_targets

__all__ = [
    "ActionValues",
    "CategoricalValues",
    "ExpectedValues",
    "QuantileValues",
    "make_action_values",
    "make_objective",
]

Objective = QLearning | CategoricalQLearning | QuantileQLearning


class ActionValues(Protocol):
    """Reads a network's outputs, and judges them."""

    n_atoms: int | None
    """Numbers n for each action; ``None`` is one, without that dimension."""

    def values(self, outputs: Tensor) -> Tensor:
        """Return the expected returns that outputs (..., n) stand for."""

    def layer_data(self) -> LayerData:
        """Describe :meth:`values`; see :mod:`rlox.nn.layer_data`."""

    def targets(self, next_outputs: Tensor, rewards: Tensor, discounts: Tensor) -> Tensor:
        """Return what is to be learnt of an action: the distribution of r + γ Z(s').

        Args:
            next_outputs: (B, n) of the target network, of the action chosen in s'.
            rewards: (B,)
            discounts: (B,)
        """

    def losses(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return losses (B,), and errors (B,) whose sizes are priorities.

        Args:
            outputs: (B, n) of the learning network, of the action taken.
            targets: what :meth:`targets` returned.
        """


@final
class ExpectedValues:
    """The outputs are Q(s, a).

    Args:
        loss: ``"huber"`` or ``"mse"``, of the TD errors.

    Source:
        Mnih et al. 2015.
    """

    n_atoms: int | None = None

    def __init__(self, loss: str) -> None:
        self._loss = F.smooth_l1_loss if loss == "huber" else F.mse_loss

    def values(self, outputs: Tensor) -> Tensor:
        """Return the outputs."""
        return outputs

    def layer_data(self) -> LayerData:
        """Describe :meth:`values`; see :mod:`rlox.nn.layer_data`."""
        return chain()

    def targets(self, next_outputs: Tensor, rewards: Tensor, discounts: Tensor) -> Tensor:
        """Return r + γ Q'(s', a')."""
        return td_targets(rewards, discounts, next_outputs)

    def losses(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses of the TD errors, and these."""
        return self._loss(outputs, targets, reduction="none"), outputs - targets


@final
class CategoricalValues:
    """C51: the outputs are logits of atoms between the least and the greatest return.

    Args:
        v_min: least return.
        v_max: greatest return.
        n_atoms: number of atoms.
        device: of the outputs.

    Source:
        Bellemare et al. 2017, "A distributional perspective on reinforcement learning".
    """

    def __init__(self, v_min: float, v_max: float, n_atoms: int, device: torch.device) -> None:
        self.n_atoms: int | None = n_atoms
        self.support = torch.linspace(v_min, v_max, n_atoms, device=device)
        """(n,) the atoms' returns."""

    def values(self, outputs: Tensor) -> Tensor:
        """Return Σ p_i z_i."""
        return outputs.softmax(-1) @ self.support

    def layer_data(self) -> LayerData:
        """Describe :meth:`values`; see :mod:`rlox.nn.layer_data`."""
        return {"layer": "expected", "support": array(self.support)}

    def targets(self, next_outputs: Tensor, rewards: Tensor, discounts: Tensor) -> Tensor:
        """Return the projected probabilities (B, n)."""
        return categorical_projection(next_outputs.softmax(-1), rewards, discounts, self.support)

    def losses(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return KL(target, prediction), for both.

        Its gradient is the paper's cross-entropy's; as priorities: Hessel et al. 2018.
        """
        losses = F.kl_div(outputs.log_softmax(-1), targets, reduction="none").sum(-1)
        return losses, losses


@final
class QuantileValues:
    """QR-DQN: the outputs are the returns at the quantile midpoints (i - ½)/n.

    Args:
        n_quantiles: their number n.

    Source:
        Dabney et al. 2018, "Distributional reinforcement learning with quantile regression".
    """

    def __init__(self, n_quantiles: int) -> None:
        self.n_atoms: int | None = n_quantiles

    def values(self, outputs: Tensor) -> Tensor:
        """Return the mean of the quantiles."""
        return outputs.mean(-1)

    def layer_data(self) -> LayerData:
        """Describe :meth:`values`; see :mod:`rlox.nn.layer_data`."""
        return {"layer": "mean"}

    def targets(self, next_outputs: Tensor, rewards: Tensor, discounts: Tensor) -> Tensor:
        """Return r + γ θ'_j, (B, n)."""
        return td_targets(rewards.unsqueeze(-1), discounts.unsqueeze(-1), next_outputs)

    def losses(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the quantile Huber losses, for both."""
        losses = quantile_huber_loss(outputs, targets)
        return losses, losses


def make_objective(config: Any) -> Objective:
    """Return what a :class:`rlox_offpolicy.configs.DQNConfig` says is to be learnt."""
    double = config.double_dqn
    if config.distributional == "c51":
        return CategoricalQLearning(config.v_min, config.v_max, config.n_atoms, double)
    if config.distributional == "qr-dqn":
        return QuantileQLearning(config.n_quantiles, double)
    return QLearning(double, config.loss)


def make_action_values(objective: Objective, device: torch.device) -> ActionValues:
    """Return how a network's outputs are read and judged for an objective."""
    if isinstance(objective, CategoricalQLearning):
        atoms = objective.v_min, objective.v_max, objective.n_atoms
        return CategoricalValues(*atoms, device)
    if isinstance(objective, QuantileQLearning):
        return QuantileValues(objective.n_quantiles)
    return ExpectedValues(objective.loss)
