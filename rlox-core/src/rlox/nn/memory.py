"""Recurrent layers whose state is one row per env."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rlox.nn.devices import torch_threads
from rlox.nn.layer_data import LayerData, array
from rlox.nn.mlp import empty_layer

MemoryKind = Literal["lstm", "gru"]


class Memory(nn.Module):
    """One LSTM or GRU layer over sequences within which episodes may begin.

    The state of an LSTM is its hidden and its cell state side by side, that of a GRU its hidden
    state; at the beginning of an episode it is 0. Weights are orthogonal, biases 0.

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
                continue
            with torch_threads(1):  # the QR decomposition rounds differently on several
                nn.init.orthogonal_(parameter, 1.0, generator)
        self.output_size = size
        self.state_size = 2 * size if kind == "lstm" else size
        self._kind = kind

    def forward(self, features: Tensor, state: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs (T, n, size) and the state (n, state_size) after them.

        Args:
            features: (T, n, input_size).
            state: (n, state_size) before the first step.
            starts: (T, n) bool, whether an episode begins with the step, which the state of the
                step before must not reach.
        """
        # in one call as long as no episode begins
        begins = starts[1:].any(1).nonzero().flatten() + 1
        outputs = []
        for begin, end in pairwise((0, *begins.tolist(), len(features))):
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
        """Return what the layer does, to which cuDNN gets its weights in one piece."""
        layer: Any = self.layer
        if not features.is_cuda:
            output, after = layer(features, state)
            return output, after
        # cuDNN takes them where a storage begins, which those of a flat optimiser do not
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
