"""Perceptrons, attention, perceivers and connections for models."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from rlox_rl8.nn.functional import SkipKind, masked_log_softmax, skip_connection

P = ParamSpec("P")
T = TypeVar("T")


class Module(ABC, Generic[P, T], nn.Module):
    """A typed module: ``Module[[Tensor], Tensor]`` takes a tensor and returns one."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call :meth:`forward` with torch's hooks."""
        result: T = super().__call__(*args, **kwargs)
        return result

    @abstractmethod
    def forward(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the module's output."""


class SquaredReLU(Module[[Tensor], Tensor]):
    """max(x, 0)²."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the squares."""
        return x.relu().square()


ACTIVATIONS: dict[str, type[nn.Module]] = {
    "celu": nn.CELU, "elu": nn.ELU, "gelu": nn.GELU, "hard_shrink": nn.Hardshrink,
    "hard_sigmoid": nn.Hardsigmoid, "hard_swish": nn.Hardswish, "hard_tanh": nn.Hardtanh,
    "identity": nn.Identity, "leaky_relu": nn.LeakyReLU, "log_sigmoid": nn.LogSigmoid,
    "log_softmax": nn.LogSoftmax, "mish": nn.Mish, "relu": nn.ReLU, "relu6": nn.ReLU6,
    "selu": nn.SELU, "sigmoid": nn.Sigmoid, "softmax": nn.Softmax, "softplus": nn.Softplus,
    "softsign": nn.Softsign, "squared_relu": SquaredReLU, "swish": nn.SiLU, "tanh": nn.Tanh,
}  # fmt: skip

IN_PLACE = frozenset({"celu", "elu", "hard_tanh", "leaky_relu", "relu", "relu6", "selu"})
"""Activations that can overwrite their input, as their gradient does not need it."""


def get_activation(name: str, /, **params: Any) -> nn.Module:
    """Return the activation called ``name``, made with ``params``.

    ``inplace=True`` overwrites the input where the gradient allows it, and is ignored elsewhere.

    Raises:
        ValueError: the name is unknown.
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {sorted(ACTIVATIONS)}, got {name!r}")
    if name not in IN_PLACE:
        params.pop("inplace", None)
    return ACTIVATIONS[name](**params)


class MLP(nn.Sequential, Module[[Tensor], Tensor]):
    """Linear layers with activations between them; the last has none.

    Args:
        input_dim: width of the input.
        hiddens: widths of the layers.
        activation_fn: see :func:`get_activation`.
        norm_layer: class of a layer before each activation, such as ``torch.nn.LayerNorm``.
        bias: whether layers have one.
        dropout: probability after each activation.
        inplace: see :func:`get_activation`.
    """

    def __init__(
        self,
        input_dim: int,
        hiddens: Sequence[int],
        /,
        *,
        activation_fn: str = "relu",
        norm_layer: type[nn.Module] | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        inplace: bool = False,
    ) -> None:
        layers: list[nn.Module] = []
        for width in hiddens[:-1]:
            layers.append(nn.Linear(input_dim, width, bias=bias))
            if norm_layer is not None:
                layers.append(norm_layer(width))
            layers.append(get_activation(activation_fn, inplace=inplace))
            if dropout:
                layers.append(nn.Dropout(dropout))
            input_dim = width
        layers.append(nn.Linear(input_dim, hiddens[-1], bias=bias))
        super().__init__(*layers)


class PositionalEmbedding(Module[[Tensor], Tensor]):
    """Adds sines and cosines of the position to sequences of ``max_len`` steps or fewer.

    Widths may be odd; ``dropout`` is the probability after the addition.

    Source:
        Vaswani et al. 2017, "Attention is all you need", sec. 3.5.
    """

    pe: Tensor
    """(1, max_len, embed_dim)."""

    def __init__(self, embed_dim: int, max_len: int, /, *, dropout: float = 0.0) -> None:
        super().__init__()
        place = torch.arange(max_len)[:, None]
        rate = torch.exp(torch.arange(0, embed_dim, 2) * (-math.log(10_000.0) / embed_dim))
        table = torch.zeros(1, max_len, embed_dim)
        table[0, :, 0::2] = torch.sin(place * rate)
        table[0, :, 1::2] = torch.cos(place * rate[: embed_dim // 2])
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("pe", table)

    def forward(self, x: Tensor, /) -> Tensor:
        """Return ``x`` (B, T, embed_dim) plus the embedding."""
        out: Tensor = self.dropout(x + self.pe[:, : x.shape[1]])
        return out


class SequentialSkipConnection(Module[[Tensor, Tensor], Tensor]):
    """Combines an input with a layer's output, then with those of appended modules.

    Args:
        embed_dim: width of all.
        kind: ``"residual"`` adds; ``"cat"`` concatenates, and a linear layer restores the width;
            ``None`` uses the output alone.

    Raises:
        ValueError: the kind is unknown.
    """

    kind: SkipKind

    def __init__(self, embed_dim: int, kind: SkipKind = "cat") -> None:
        super().__init__()
        if kind not in ("residual", "cat", None):
            raise ValueError(f"kind must be 'residual', 'cat' or None, got {kind!r}")
        self.kind, self._width = kind, embed_dim
        self._layers = nn.ModuleList([self._fan_in()])

    def _fan_in(self) -> nn.Module:
        return nn.Linear(2 * self._width, self._width) if self.kind == "cat" else nn.Identity()

    def append(self, module: nn.Module, /) -> int:
        """Append a module of the same width, and return :attr:`out_features`."""
        self._layers += [module, self._fan_in()]
        return self.out_features

    def forward(self, x: Tensor, y: Tensor, /) -> Tensor:
        """Combine an input ``x`` and an output ``y``, and pass them through all modules."""
        first, *others = self._layers
        out: Tensor = first(skip_connection(x, y, kind=self.kind))
        for module, fan_in in zip(others[::2], others[1::2], strict=True):
            out = fan_in(skip_connection(out, module(out), kind=self.kind))
        return out

    @property
    def in_features(self) -> int:
        """Width of input and output."""
        return self._width

    out_features = in_features


class _Attention(Module[P, Tensor]):
    """Base of both kinds; arguments are those of :class:`CrossAttention`."""

    norms: ClassVar[tuple[str, ...]]
    """Names of the layers that normalise the inputs."""

    def __init__(
        self,
        embed_dim: int,
        /,
        num_heads: int = 2,
        hidden_dim: int = 128,
        activation_fn: str = "relu",
        attention_dropout: float = 0.0,
        hidden_dropout: float = 0.0,
        skip_kind: SkipKind = "cat",
    ) -> None:
        super().__init__()
        for name in self.norms:
            self.add_module(name, nn.LayerNorm(embed_dim))
        self.attention = nn.MultiheadAttention(
            embed_dim, num_heads, dropout=attention_dropout, batch_first=True
        )
        self.skip_connection = SequentialSkipConnection(embed_dim, skip_kind)
        self.skip_connection.append(
            nn.Sequential(
                nn.LayerNorm(embed_dim),
                nn.Linear(embed_dim, hidden_dim),
                get_activation(activation_fn),
                nn.Dropout(hidden_dropout),
                nn.Linear(hidden_dim, embed_dim),
            )
        )

    def _attend(
        self, x: Tensor, q: Tensor, kv: Tensor, padding: Tensor | None, forbidden: Tensor | None
    ) -> Tensor:
        masks = {"key_padding_mask": padding, "attn_mask": forbidden}
        found: Tensor = self.attention(q, kv, kv, **masks, need_weights=False)[0]
        return self.skip_connection(x, found)


class CrossAttention(_Attention[[Tensor, Tensor, Tensor | None, Tensor | None]]):
    """Attention of queries to keys, and a perceptron, each with a skip connection.

    Args:
        embed_dim: width.
        num_heads: number of heads, a divisor of the width.
        hidden_dim: width of the perceptron's hidden layer.
        activation_fn: see :func:`rlox_rl8.nn.get_activation`.
        attention_dropout: dropout probability of attention weights.
        hidden_dropout: dropout probability within the perceptron.
        skip_kind: see :class:`SequentialSkipConnection`.
    """

    norms = ("q_norm", "kv_norm")
    q_norm: nn.Module
    kv_norm: nn.Module

    def forward(
        self,
        q: Tensor,
        kv: Tensor,
        key_padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return (B, Q, embed_dim) for queries (B, Q, ...) and keys (B, K, ...).

        Masks (B, K) and (Q, K) are true where attention is forbidden.
        """
        return self._attend(q, self.q_norm(q), self.kv_norm(kv), key_padding_mask, attention_mask)


class SelfAttention(_Attention[[Tensor, Tensor | None, Tensor | None]]):
    """Attention of a sequence to itself; arguments are those of :class:`CrossAttention`."""

    norms = ("x_norm",)
    x_norm: nn.Module

    def forward(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return (B, T, embed_dim); masks are true where attention is forbidden."""
        normal = self.x_norm(x)
        return self._attend(x, normal, normal, key_padding_mask, attention_mask)


class SelfAttentionStack(Module[[Tensor, Tensor | None, Tensor | None], Tensor]):
    """Layers of self-attention: copies of one, or with ``share_parameters`` that one each time."""

    def __init__(
        self, module: SelfAttention, num_layers: int, /, *, share_parameters: bool = False
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            module if share_parameters else copy.deepcopy(module) for _ in range(num_layers)
        )

    def forward(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return (B, T, embed_dim)."""
        for layer in self.layers:
            x = layer(x, key_padding_mask, attention_mask)
        return x


class PointerNetwork(Module[[Tensor, Tensor, Tensor | None], Tensor]):
    """Pointers from each element of one sequence to the elements of another of the same width.

    Source:
        Vinyals et al. 2015, "Pointer networks", eq. 3.
    """

    def __init__(self, embed_dim: int, /) -> None:
        super().__init__()
        self.W1 = nn.Linear(embed_dim, embed_dim, bias=False)
        self.W2 = nn.Linear(embed_dim, embed_dim, bias=False)
        self.VT = nn.Linear(embed_dim, 1, bias=False)

    def forward(
        self, decoder_out: Tensor, encoder_out: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Return log-probabilities (B, D, E) of D pointing elements and E targets.

        The mask (B, D, E) is true for allowed targets; ``None`` allows all.
        """
        blended = torch.tanh(self.W2(decoder_out)[:, :, None] + self.W1(encoder_out)[:, None])
        return masked_log_softmax(self.VT(blended).squeeze(-1), mask=mask)


class PerceiverLayer(Module[[Tensor, Tensor, Tensor | None, Tensor | None], Tensor]):
    """Latent vectors attend to a sequence, and then to themselves.

    ``num_layers`` and ``share_parameters`` are those of a :class:`SelfAttentionStack`, the others
    those of :class:`CrossAttention`.

    Source:
        Jaegle et al. 2021, "Perceiver: general perception with iterative attention", sec. 3.1.
    """

    def __init__(
        self,
        embed_dim: int,
        /,
        *,
        num_heads: int = 2,
        hidden_dim: int = 128,
        num_layers: int = 2,
        activation_fn: str = "relu",
        attention_dropout: float = 0.0,
        hidden_dropout: float = 0.0,
        skip_kind: SkipKind = "cat",
        share_parameters: bool = False,
    ) -> None:
        super().__init__()
        arguments = (
            embed_dim, num_heads, hidden_dim, activation_fn, attention_dropout, hidden_dropout,
            skip_kind,
        )  # fmt: skip
        self.cross_attention = CrossAttention(*arguments)
        self.self_attention = SelfAttentionStack(
            SelfAttention(*arguments), num_layers, share_parameters=share_parameters
        )

    def forward(
        self,
        q: Tensor,
        kv: Tensor,
        key_padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return latent vectors (B, Q, embed_dim); see :meth:`CrossAttention.forward`."""
        latent = self.cross_attention(q, kv, key_padding_mask, attention_mask)
        return self.self_attention(latent, None, None)


class PerceiverIOLayer(Module[[Tensor, Tensor, Tensor | None, Tensor | None], Tensor]):
    """A perceiver with an output of another length: a learnt array attends to its latent vectors.

    ``output_seq_dim`` is the output's length O, the other arguments are those of
    :class:`PerceiverLayer`.

    Source:
        Jaegle et al. 2022, "Perceiver IO: a general architecture for structured inputs &
        outputs", sec. 3.1.
    """

    def __init__(
        self,
        embed_dim: int,
        output_seq_dim: int,
        /,
        *,
        num_heads: int = 2,
        hidden_dim: int = 128,
        num_layers: int = 2,
        activation_fn: str = "relu",
        attention_dropout: float = 0.0,
        hidden_dropout: float = 0.0,
        skip_kind: SkipKind = "cat",
        share_parameters: bool = False,
    ) -> None:
        super().__init__()
        arguments: dict[str, Any] = {
            "num_heads": num_heads, "hidden_dim": hidden_dim, "activation_fn": activation_fn,
            "attention_dropout": attention_dropout, "hidden_dropout": hidden_dropout,
            "skip_kind": skip_kind,
        }  # fmt: skip
        self.perceiver_layer = PerceiverLayer(
            embed_dim, num_layers=num_layers, share_parameters=share_parameters, **arguments
        )
        self.output_query = nn.Parameter(torch.empty(output_seq_dim, embed_dim))
        nn.init.xavier_uniform_(self.output_query)
        self.decoder = CrossAttention(embed_dim, **arguments)

    def forward(
        self,
        q: Tensor,
        kv: Tensor,
        key_padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return (B, O, embed_dim); see :meth:`CrossAttention.forward`."""
        latent = self.perceiver_layer(q, kv, key_padding_mask, attention_mask)
        queries = self.output_query.expand(len(latent), -1, -1)
        return self.decoder(queries, latent, None, None)
