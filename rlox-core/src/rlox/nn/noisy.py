"""Noisy linear layers (NoisyNet exploration)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812  # the field's name for it
from torch import Tensor, nn

__all__ = ["NoisyLinear", "draw_noise", "silence"]


class NoisyLinear(nn.Module):
    """y = (μ_w + σ_w ⊙ ε_w) x + μ_b + σ_b ⊙ ε_b, with factorised Gaussian noise ε.

    ε_w = f(ε_out) f(ε_in)ᵀ and ε_b = f(ε_out) with f(x) = sgn(x) √|x|, from one standard normal
    number for each input and each output. A new layer is silent, ε = 0; :func:`draw_noise` draws.

    Args:
        n_in: number of inputs p.
        n_out: number of outputs.
        std: σ₀; every σ begins at σ₀/√p, every μ uniform in ±1/√p.
        generator: source of the means; ``None`` uses torch's global one.

    Source:
        Fortunato et al. 2018, "Noisy networks for exploration", eq. 9 to 11 and section 3.2.
    """

    noise_in: Tensor
    noise_out: Tensor

    def __init__(
        self,
        n_in: int,
        n_out: int,
        *,
        std: float = 0.5,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        bound = 1 / math.sqrt(n_in)
        self.weight_mean = nn.Parameter(torch.empty(n_out, n_in))
        self.bias_mean = nn.Parameter(torch.empty(n_out))
        for mean in (self.weight_mean, self.bias_mean):
            nn.init.uniform_(mean, -bound, bound, generator=generator)
        self.weight_std = nn.Parameter(torch.full((n_out, n_in), std * bound))
        self.bias_std = nn.Parameter(torch.full((n_out,), std * bound))
        # not saved: whoever uses the layer draws again
        self.register_buffer("noise_in", torch.zeros(n_in), persistent=False)
        self.register_buffer("noise_out", torch.zeros(n_out), persistent=False)

    @property
    def weight(self) -> Tensor:
        """The noisy weights (n_out, n_in)."""
        return torch.addcmul(
            self.weight_mean, self.weight_std, torch.outer(self.noise_out, self.noise_in)
        )

    @property
    def bias(self) -> Tensor:
        """The noisy biases (n_out,)."""
        return torch.addcmul(self.bias_mean, self.bias_std, self.noise_out)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return outputs (B, n_out) of inputs (B, n_in), all with the same noise."""
        return F.linear(inputs, self.weight, self.bias)


def draw_noise(module: nn.Module, generator: torch.Generator | None = None) -> None:
    """Redraw the noise of every noisy layer of ``module``.

    Args:
        module: others of its layers stay as they are.
        generator: source of the noise, on the CPU; ``None`` uses torch's global one.
    """
    for layer in module.modules():
        if isinstance(layer, NoisyLinear):
            for noise in (layer.noise_in, layer.noise_out):
                normal = torch.randn(noise.shape, generator=generator)
                noise.copy_(normal.sign() * normal.abs().sqrt_())


def silence(module: nn.Module) -> None:
    """Let every noisy layer of ``module`` compute with its means, until noise is drawn again."""
    for layer in module.modules():
        if isinstance(layer, NoisyLinear):
            layer.noise_in.zero_()
            layer.noise_out.zero_()
