"""Multi-layer perceptrons and their layers, noisy ones included; layers with a memory.

Weights and biases are orthogonal, or uniform in ±1/√fan-in as in ``torch.nn.Linear`` and in the
published implementations of the off-policy algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, Literal, TypeVar, cast

import torch
import torch.nn.functional as F  # noqa: N812  # the field's name for it
from torch import Tensor, nn

from rlox.nn.devices import torch_threads
from rlox.nn.layer_data import LayerData, array, perceptron


class NoisyLinear(nn.Module):
    """y = (μ_w + σ_w ⊙ ε_w) x + μ_b + σ_b ⊙ ε_b, with factorised Gaussian noise ε.

    ε_w = f(ε_out) f(ε_in)ᵀ and ε_b = f(ε_out) with f(x) = sgn(x) √|x|, from one standard normal
    number for each input and output. A new layer is silent, ε = 0, until :func:`draw_noise`.

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
        self, n_in: int, n_out: int, *, std: float = 0.5, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        bound = 1 / math.sqrt(n_in)
        self.weight_mean = nn.Parameter(torch.empty(n_out, n_in))
        self.bias_mean = nn.Parameter(torch.empty(n_out))
        for mean in (self.weight_mean, self.bias_mean):
            nn.init.uniform_(mean, -bound, bound, generator=generator)
        self.weight_std = nn.Parameter(torch.full((n_out, n_in), std * bound))
        self.bias_std = nn.Parameter(torch.full((n_out,), std * bound))
        # not saved, since users of the layer draw again
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
        module: its other layers do not change.
        generator: source of the noise, on the CPU; ``None`` uses torch's global one.
    """
    for layer in module.modules():
        if isinstance(layer, NoisyLinear):
            for noise in (layer.noise_in, layer.noise_out):
                normal = torch.randn(noise.shape, generator=generator)
                noise.copy_(normal.sign() * normal.abs().sqrt_())


def silence(module: nn.Module) -> None:
    """Let every noisy layer of ``module`` use its means until noise is drawn again."""
    for layer in module.modules():
        if isinstance(layer, NoisyLinear):
            layer.noise_in.zero_()
            layer.noise_out.zero_()


LayerT = TypeVar("LayerT", bound=nn.Module)


def empty_layer(layer_class: type[LayerT], *arguments: int) -> LayerT:
    """Return a layer on the CPU with uninitialised parameters.

    ``torch.nn.utils.skip_init`` does the same, but imports torch's compiler, which takes longer
    than a small training.

    Args:
        layer_class: has all parameters directly, not in submodules, and no buffers.
        arguments: of its constructor.
    """
    layer = layer_class(*arguments, device="meta")
    for name, parameter in layer.named_parameters():
        setattr(layer, name, nn.Parameter(torch.empty(parameter.shape)))
    return layer


def orthogonal(
    layer_class: type[nn.Module],
    *arguments: int,
    gain: float = math.sqrt(2),
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Return a layer with orthogonal weights scaled by ``gain``, and biases 0.

    Args:
        layer_class: has parameters ``weight`` and ``bias``.
        arguments: of its constructor.
        gain: scale of the weights.
        generator: source of the weights; ``None`` uses torch's global one.
    """
    layer: Any = empty_layer(layer_class, *arguments)
    _orthogonalize(layer.weight, gain, generator)
    nn.init.zeros_(layer.bias)
    return layer  # type: ignore[no-any-return]


def _orthogonalize(weight: Tensor, gain: float, generator: torch.Generator | None) -> None:
    with torch_threads(1):  # the QR decomposition rounds differently on several threads
        nn.init.orthogonal_(weight, gain, generator)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "elu": F.elu,
    "gelu": F.gelu,
    "leaky_relu": F.leaky_relu,
    "relu": torch.relu_,
    "silu": F.silu,
    "tanh": torch.tanh_,
}
"""By the names in :data:`rlox.config.model.Activation`; they may overwrite their input."""


@dataclass(frozen=True)
class Layers:
    """Options of the layers of default networks; a config has fields of these names."""

    hidden: int | Sequence[int]
    """Width of two hidden layers, or widths of any number of them."""
    critic_hidden: int | Sequence[int] | None = None
    """The same for critics and state values; ``None``: equal to ``hidden``."""
    activation: str | None = None
    """A name in :data:`ACTIVATIONS`; ``None``: tanh with orthogonal weights, else ReLU."""
    layer_norm: bool = False
    """Whether the outputs of hidden layers are normalised before the activation."""
    conv: str | Sequence[tuple[int, int, int]] = "auto"
    """Convolutions for images; see :func:`rlox.nn.make_encoder`."""
    gain: float | None = None
    """Scale of the hidden layers' orthogonal weights; ``None``: that of each network's class."""
    shared: bool = False
    """Whether a policy and its state values share the hidden layers."""
    log_std: float = 0.0
    """Initial log standard deviation of a policy's real numbers, if it is a parameter."""

    @classmethod
    def of(cls, config: Any) -> Layers:
        """Return a config's layers; it may lack all fields but ``hidden``."""
        found: Any = {each.name: getattr(config, each.name, each.default) for each in fields(cls)}
        return cls(**found)

    @classmethod
    def expand(cls, hidden: Hidden, n: int = 2) -> Layers:
        """Return layers with explicit widths, for critics too; a number stands for ``n`` layers."""
        like = hidden if isinstance(hidden, Layers) else cls(hidden)
        both = [like.hidden, like.hidden if like.critic_hidden is None else like.critic_hidden]
        own, critic = ((each,) * n if isinstance(each, int) else tuple(each) for each in both)
        return replace(like, hidden=own, critic_hidden=critic)


Hidden = int | Sequence[int] | Layers
"""Width of two hidden layers, widths of any number of them, or all options of layers."""


def layer_widths(hidden: Hidden, layers: int = 2) -> tuple[int, ...]:
    """Return the widths of hidden layers; a number is the width of ``layers`` layers."""
    return tuple(Layers.expand(hidden, layers).hidden)  # type: ignore[arg-type]


def _uniform(parameter: Tensor, fan_in: int, generator: torch.Generator | None) -> None:
    bound = 1 / math.sqrt(fan_in)
    nn.init.uniform_(parameter, -bound, bound, generator=generator)


def _linear(n_in: int, n_out: int, generator: torch.Generator | None) -> nn.Linear:
    layer = empty_layer(nn.Linear, n_in, n_out)
    _uniform(layer.weight, n_in, generator)
    _uniform(layer.bias, n_in, generator)
    return layer


class MLP(nn.Module):
    """Linear layers with an activation between them.

    Args:
        sizes: input size, hidden sizes, output size.
        activation: a name in :data:`ACTIVATIONS`.
        layer_norm: whether hidden outputs are normalised before the activation.
        activates_last: whether the last layer has an activation too.
        output_gain: scale of the last layer's orthogonal weights; biases are 0. ``None``: all are
            uniform in ±1/√fan-in.
        gain: scale of hidden layers' orthogonal weights.
        noisy_std: σ₀ of the layers, which are :class:`rlox.nn.NoisyLinear` and not orthogonal;
            ``None`` adds no noise.
        generator: source of the weights; ``None`` uses torch's global one.

    Source:
        Huang et al. 2022, "The 37 implementation details of PPO", detail 2.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        activation: str = "relu",
        layer_norm: bool = False,
        activates_last: bool = False,
        output_gain: float | None = None,
        gain: float = math.sqrt(2),
        noisy_std: float | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.activation, self.layer_norm = activation, layer_norm
        self.n_hidden = len(sizes) - (1 if activates_last else 2)
        self.layers = nn.ModuleList()
        for n_in, n_out in pairwise(sizes):
            layer: nn.Module
            if noisy_std is not None:
                layer = NoisyLinear(n_in, n_out, std=noisy_std, generator=generator)
            elif output_gain is not None:
                scale = gain if len(self.layers) < self.n_hidden else output_gain
                layer = orthogonal(nn.Linear, n_in, n_out, gain=scale, generator=generator)
            else:
                layer = _linear(n_in, n_out, generator)
            self.layers.append(layer)
        hidden = sizes[1 : self.n_hidden + 1] if layer_norm else ()
        self.norms = nn.ModuleList(nn.LayerNorm(size) for size in hidden)
        self.compute_dtype = torch.float32
        """Dtype of the hidden layers' computations; see :func:`set_compute_dtype`."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return outputs (B, n_out) of inputs (B, n_in)."""
        if self.compute_dtype == torch.float32:
            return self._run(inputs, 0, len(self.layers))
        with torch.autocast(inputs.device.type, self.compute_dtype):
            features = self._run(inputs, 0, self.n_hidden)
        return self._run(features.float(), self.n_hidden, len(self.layers))

    def _run(self, inputs: Tensor, begin: int, end: int) -> Tensor:
        # called as functions, since calling modules doubles the time of small networks
        activate, layers = ACTIVATIONS[self.activation], cast("Sequence[nn.Linear]", self.layers)
        for i in range(begin, end):
            inputs = F.linear(inputs, layers[i].weight, layers[i].bias)
            if i < self.n_hidden:
                inputs = activate(self.norms[i](inputs) if self.layer_norm else inputs)
        return inputs

    def layer_data(self) -> LayerData:
        """Describe the layers; see :mod:`rlox.nn.layer_data`."""
        return perceptron([*self.layers], self.activation, [*self.norms], self.n_hidden)


def make_mlp(
    n_in: int, hidden: Hidden, *n_out: int, critic: bool = False, **options: Any
) -> MLP | EnsembleMLP:
    """Return a perceptron with the given hidden layers.

    Args:
        n_in: number of inputs.
        hidden: see :data:`Hidden`.
        n_out: number of outputs; if omitted, the last hidden layer's outputs are returned.
        critic: whether it has the layers of critics.
        options: of the class; ``n_members`` makes an :class:`EnsembleMLP`.
    """
    like = Layers.expand(hidden)
    widths: Any = like.critic_hidden if critic else like.hidden
    activation = like.activation or ("tanh" if "output_gain" in options else "relu")
    make: Any = EnsembleMLP if "n_members" in options else MLP
    if like.gain is not None:
        options = {"output_gain": 1.0, **options, "gain": like.gain}
    if not n_out:
        options["activates_last"] = True
    common = {"activation": activation, "layer_norm": like.layer_norm}
    return make(sizes=(n_in, *widths, *n_out), **common, **options)  # type: ignore[no-any-return]


class EnsembleMLP(nn.Module):
    """K independent perceptrons of one size, computed by batched products.

    Args:
        n_members: K.
        sizes: input size, hidden sizes, output size, of each.
        activation: see :class:`MLP`.
        layer_norm: see :class:`MLP`.
        output_gain: see :class:`MLP`.
        gain: see :class:`MLP`.
        generator: source of the weights; ``None`` uses torch's global one.
    """

    def __init__(
        self,
        n_members: int,
        sizes: Sequence[int],
        *,
        activation: str = "relu",
        layer_norm: bool = False,
        output_gain: float | None = None,
        gain: float = math.sqrt(2),
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.n_members = n_members
        self.activation, self.layer_norm = activation, layer_norm
        self.weights = nn.ParameterList()
        """Per layer (K, n_in, n_out)."""
        self.biases = nn.ParameterList()
        """Per layer (K, 1, n_out)."""
        self.norms = nn.ParameterList()
        """Per normalised layer, scale and shift (2, K, 1, n_out)."""
        for n_in, n_out in pairwise(sizes):
            weight = nn.Parameter(torch.empty(n_members, n_in, n_out))
            bias = nn.Parameter(torch.zeros(n_members, 1, n_out))
            if output_gain is None:
                _uniform(weight, n_in, generator)
                _uniform(bias, n_in, generator)
            else:
                last = len(self.weights) == len(sizes) - 2
                for each in weight.detach():
                    _orthogonalize(each, output_gain if last else gain, generator)
            self.weights.append(weight)
            self.biases.append(bias)
        for size in sizes[1:-1] if layer_norm else ():
            scale = torch.ones(n_members, 1, size)
            self.norms.append(torch.stack((scale, torch.zeros_like(scale))))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the members' outputs (K, B, n_out) of the same inputs (B, n_in)."""
        outputs = inputs.expand(self.n_members, *inputs.shape)
        activate = ACTIVATIONS[self.activation]
        *hidden, last = zip(self.weights, self.biases, strict=True)
        for i, (weight, bias) in enumerate(hidden):
            outputs = torch.baddbmm(bias, outputs, weight)
            if self.layer_norm:
                scale, shift = self.norms[i]
                outputs = F.layer_norm(outputs, outputs.shape[-1:]) * scale + shift
            outputs = activate(outputs)
        return torch.baddbmm(last[1], outputs, last[0])


MemoryKind = Literal["lstm", "gru"]


class Memory(nn.Module):
    """One LSTM or GRU layer over sequences that may contain the start of an episode.

    The state of an LSTM is its hidden and its cell state side by side, of a GRU its hidden state;
    it is 0 at the beginning of an episode. Weights are orthogonal, biases 0.

    Args:
        input_size: size of the features.
        size: number of units.
        kind: ``"lstm"`` or ``"gru"``.
        generator: source of the weights; ``None`` uses torch's global one.

    Source:
        Huang et al. 2022, "The 37 implementation details of PPO", LSTM details 1 to 3 and 5.
    """

    def __init__(
        self,
        input_size: int,
        size: int,
        kind: MemoryKind,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        layer = nn.LSTM if kind == "lstm" else nn.GRU
        self.layer = empty_layer(layer, input_size, size)
        for name, parameter in self.layer.named_parameters():
            if name.startswith("bias"):
                nn.init.zeros_(parameter)
            else:
                _orthogonalize(parameter, 1.0, generator)
        self.by_step = False
        """Whether each step is a call of its own, so that the host need not know where episodes
        begin."""
        self.output_size = size
        self.state_size = 2 * size if kind == "lstm" else size
        self._kind = kind

    def forward(self, features: Tensor, state: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs (T, n, size) and the state (n, state_size) after them.

        Args:
            features: (T, n, input_size).
            state: (n, state_size) before the first step.
            starts: (T, n) bool, whether an episode begins with the step, so that the previous
                state is dropped.
        """
        begins = list(range(1, len(features)))
        if not self.by_step:  # one call for all steps until an episode begins
            begins = (starts[1:].any(1).nonzero().flatten() + 1).tolist()
        outputs = []
        for begin, end in pairwise((0, *begins, len(features))):
            state = state.masked_fill(starts[begin].unsqueeze(-1), 0.0)
            output, state = self._run(features[begin:end], state)
            outputs.append(output)
        return torch.cat(outputs), state

    def _run(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        if self._kind == "gru":
            output, hidden = self._call(features, state.unsqueeze(0))
            return output, hidden.squeeze(0)
        parts = [part.contiguous() for part in state.unsqueeze(0).chunk(2, -1)]
        output, parts = self._call(features, parts)
        return output, torch.cat(list(parts), -1).squeeze(0)

    def _call(self, features: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Call the layer, giving cuDNN its weights in one piece."""
        layer: Any = self.layer
        if not features.is_cuda:
            output, after = layer(features, state)
            return output, after
        # cuDNN needs them at the start of a storage, unlike a flat optimiser's views
        weights: list[Tensor] = list(layer.parameters())
        flat = torch.cat([weight.flatten() for weight in weights])
        parts = torch.split(flat, [weight.numel() for weight in weights])
        weights = [part.view_as(w) for part, w in zip(parts, weights, strict=True)]
        function: Any = torch.lstm if self._kind == "lstm" else torch.gru
        output, *after = function(
            features, state, weights, layer.bias, layer.num_layers, layer.dropout, layer.training,
            layer.bidirectional, layer.batch_first,
        )  # fmt: skip
        return output, after[0] if self._kind == "gru" else after

    def layer_data(self) -> LayerData:
        """Describe one step of the layer; see :mod:`rlox.nn.layer_data`."""
        return {
            "layer": "memory",
            "kind": self._kind,
            "input_weight": array(self.layer.weight_ih_l0),
            "hidden_weight": array(self.layer.weight_hh_l0),
            "input_bias": array(self.layer.bias_ih_l0),
            "hidden_bias": array(self.layer.bias_hh_l0),
        }
