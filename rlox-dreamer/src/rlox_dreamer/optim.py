"""The LaProp optimiser."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class LaProp(torch.optim.Optimizer):
    """Momentum of gradients divided by their root mean square, elementwise.

        v ← β₂ v + (1 - β₂) g²,  m ← β₁ m + (1 - β₁) g / (√v̂ + ε),  θ ← θ - α m̂

    where hats denote bias correction.

    Args:
        params: parameters to move.
        lr: α.
        betas: β₁ of the momentum and β₂ of the squares.
        eps: ε.

    Raises:
        ValueError: a number is out of range.

    Source:
        Ziyin et al. 2020, "LaProp: separating momentum and adaptivity in Adam", algorithm 1, with
        the momentum debiased by 1 - β₁ᵗ as in DreamerV3.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 4e-5,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-20,
    ) -> None:
        if not lr >= 0:
            raise ValueError(f"lr must be at least 0, got {lr}")
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas must lie in [0, 1), got {betas}")
        if not eps > 0:
            raise ValueError(f"eps must be above 0, got {eps}")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step down the gradients."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["step"] = torch.zeros((), dtype=torch.float32)
                    state["exp_avg"] = torch.zeros_like(parameter)
                    state["exp_avg_sq"] = torch.zeros_like(parameter)
                state["step"] += 1
                count = float(state["step"])
                squares = state["exp_avg_sq"]
                squares.mul_(beta2).addcmul_(parameter.grad, parameter.grad, value=1 - beta2)
                root = squares.div(1 - beta2**count).sqrt_().add_(group["eps"])
                momentum = state["exp_avg"].mul_(beta1)
                momentum.addcdiv_(parameter.grad, root, value=1 - beta1)
                parameter.add_(momentum, alpha=-group["lr"] / (1 - beta1**count))
        return loss
