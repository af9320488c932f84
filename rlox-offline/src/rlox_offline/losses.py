"""The objectives of the offline algorithms as functions of tensors, each with its equation.

Everything is to be minimised and is a mean over the batch of size B.
"""

from __future__ import annotations

from torch import Tensor

__all__ = ["bc_loss", "bc_nll"]


def bc_loss(policy_actions: Tensor, actions: Tensor) -> Tensor:
    """Return mean (π(s) - a)², over the batch and the action's dimensions.

    Args:
        policy_actions: (B, act_dim) π(s).
        actions: (B, act_dim) the dataset's.

    Source:
        Pomerleau 1989, "ALVINN"; the regulariser of Fujimoto and Gu 2021, eq. 3.
    """
    return (policy_actions - actions).square().mean()


def bc_nll(log_probs: Tensor) -> Tensor:
    """Return -mean log π(a|s).

    Args:
        log_probs: (B,) of the dataset's actions.
    """
    return -log_probs.mean()
