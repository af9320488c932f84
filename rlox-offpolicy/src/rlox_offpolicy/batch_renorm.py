"""Batch renormalization, and perceptrons that use it before every linear layer.

Ioffe 2017, algorithm 1 (arXiv 1702.03275). In training mode, with batch statistics μ_B, σ_B and
running statistics μ, σ,

    r = clip(σ_B / σ, 1/r_max, r_max),  d = clip((μ_B - μ) / σ, -d_max, d_max)
    y = ((x - μ_B) / σ_B · r + d) · γ + β

where r and d have no gradient. In evaluation mode y = (x - μ) / σ · γ + β.

Deviations: r = 1 and d = 0 for ``warm_up`` steps, then both limits apply in full at once; σ
includes the constant ``eps`` inside the root (Bhatt et al. 2024, the authors' code).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  # the field's name for it
from rlox.nn.layer_data import LayerData, perceptron
from rlox.nn.mlp import ACTIVATIONS, Hidden, make_mlp
from torch import Tensor, nn

R_MAX, D_MAX = 3.0, 5.0


class BatchRenorm(nn.Module):
    """Batch renormalization over dimension -2.

    Args:
        size: number of features n.
        members: number of members K with separate statistics, for inputs (K, B, n); ``None`` for
            inputs (B, n).
        momentum: share of the running statistics kept in each training step.
        warm_up: training steps with plain batch normalization.
        eps: added to variances.
    """

    mean: Tensor
    variance: Tensor
    steps: Tensor

    def __init__(
        self,
        size: int,
        members: int | None = None,
        *,
        momentum: float = 0.99,
        warm_up: int = 100_000,
        eps: float = 1e-3,
    ) -> None:
        super().__init__()
        shape = (size,) if members is None else (members, 1, size)
        self.momentum, self.warm_up, self.eps = momentum, warm_up, eps
        self.scale = nn.Parameter(torch.ones(shape))
        self.shift = nn.Parameter(torch.zeros(shape))
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("variance", torch.ones(shape))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return normalised inputs of the same shape; in training mode update the statistics."""
        running = (self.variance + self.eps).sqrt()
        if not self.training:
            return (inputs - self.mean) / running * self.scale + self.shift
        keep = self.mean.dim() == inputs.dim()
        variance, mean = torch.var_mean(inputs, -2, correction=0, keepdim=keep)
        deviation = (variance + self.eps).sqrt()
        with torch.no_grad():
            warm = self.steps >= self.warm_up
            r = (deviation / running).clamp(1 / R_MAX, R_MAX)
            d = ((mean - self.mean) / running).clamp(-D_MAX, D_MAX)
            r, d = torch.where(warm, r, 1.0), torch.where(warm, d, 0.0)
            self.mean.lerp_(mean, 1 - self.momentum)
            self.variance.lerp_(variance, 1 - self.momentum)
            self.steps += 1
        return ((inputs - mean) / deviation * r + d) * self.scale + self.shift

    def folded(self, layer: nn.Linear) -> nn.Linear:
        """Return one linear layer equal to this one in evaluation mode followed by ``layer``."""
        made = nn.Linear(layer.in_features, layer.out_features)
        with torch.no_grad():
            factor = self.scale / (self.variance + self.eps).sqrt()
            made.weight.copy_(layer.weight * factor)
            made.bias.copy_(F.linear(self.shift - self.mean * factor, layer.weight, layer.bias))
        return made


class RenormMLP(nn.Module):
    """A perceptron with batch renormalization before every linear layer.

    Args:
        n_in: number of inputs.
        hidden: width of both hidden layers, or widths of any number of them.
        n_out: number of outputs.
        generator: source of the weights; ``None`` uses torch's global one.
        renorm: ``momentum`` and ``warm_up`` of :class:`BatchRenorm`.
    """

    def __init__(
        self,
        n_in: int,
        hidden: Hidden,
        n_out: int,
        *,
        generator: torch.Generator | None = None,
        **renorm: Any,
    ) -> None:
        super().__init__()
        self.net: Any = make_mlp(n_in, hidden, n_out, generator=generator)
        layers: Any = self.net.layers
        sizes = [layer.in_features for layer in layers]
        self.norms = nn.ModuleList(BatchRenorm(size, **renorm) for size in sizes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return outputs (B, n_out) for inputs (B, n_in)."""
        last, activate = len(self.norms) - 1, ACTIVATIONS[self.net.activation]
        for i, (norm, layer) in enumerate(zip(self.norms, self.net.layers, strict=True)):
            inputs = layer(norm(inputs))
            if i < last:
                inputs = activate(inputs)
        return inputs

    def layer_data(self) -> LayerData:
        """Describe the layers in evaluation mode; see :mod:`rlox.nn.layer_data`."""
        pairs: Any = zip(self.norms, self.net.layers, strict=True)
        layers = [norm.folded(layer) for norm, layer in pairs]
        return perceptron(layers, self.net.activation, (), self.net.n_hidden)


class RenormCritics(nn.Module):
    """K critics of continuous actions, each with its own statistics.

    Args:
        obs_dim: size of an observation.
        act_dim: size of an action.
        hidden: width of both hidden layers, or widths of any number of them.
        n_critics: K.
        generator: source of the weights; ``None`` uses torch's global one.
        renorm: ``momentum`` and ``warm_up`` of :class:`BatchRenorm`.
    """

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        hidden: Hidden,
        *,
        n_critics: int = 2,
        generator: torch.Generator | None = None,
        **renorm: Any,
    ) -> None:
        super().__init__()
        made: Any = {"n_members": n_critics, "critic": True, "generator": generator}
        self.net: Any = make_mlp(obs_dim + act_dim, hidden, 1, **made)
        weights: Any = self.net.weights
        sizes = [weight.shape[1] for weight in weights]
        self.norms = nn.ModuleList(BatchRenorm(size, n_critics, **renorm) for size in sizes)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return values (K, B) for observations (B, obs_dim) and actions (B, act_dim)."""
        inputs = torch.cat((obs, actions), -1)
        outputs, last = inputs.expand(self.net.n_members, *inputs.shape), len(self.norms) - 1
        activate = ACTIVATIONS[self.net.activation]
        layers = zip(self.norms, self.net.weights, self.net.biases, strict=True)
        for i, (norm, weight, bias) in enumerate(layers):
            outputs = torch.baddbmm(bias, norm(outputs), weight)
            if i < last:
                outputs = activate(outputs)
        return outputs.squeeze(-1)
