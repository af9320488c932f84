"""Layers and activations of policy files, computed with NumPy.

| layer | keys | computes |
| --- | --- | --- |
| chain | layers | one after the other |
| of_agent | number | leaves `obs` or `obs.<leaf>` of the inputs, and a leaf `agent` of (B,) \
equal numbers |
| join | leaves: pairs of name and layer | layers of the leaves, side by side |
| beside | layers | all of the same inputs, side by side |
| flatten | divide_by | the numbers (B, n), float32, divided |
| one_hot | first, size | a 1 at index first + number, for each number |
| image | channels_first, divide_by | (B, channels, height, width), float32, divided |
| pad | sides: top, bottom, left, right | zeros around images |
| convolution | weight, bias, stride | a convolution without padding |
| max_pool | size, stride, padding | maxima over squares of images; without the latter two, \
side by side |
| residual | inner | x + the inner layer of x |
| linear | weight, bias | W x + b |
| block_linear | weight, bias | a linear layer whose weight (K, n_in, n_out) has K blocks |
| activation | function | elementwise, see :mod:`rlox.deployment.layers` |
| layer_norm | weight, bias, eps | (x - mean x) / √(mean (x - mean x)² + eps) of the last \
dimension, times the weight, and the bias |
| rms_norm | weight, eps, axis | x / √(mean x² + eps) along the axis, times the weight |
| normalize | mean, std | (x - mean) / std in float32 |
| affine | scale, shift | scale x + shift in float64 |
| memory | kind, input_weight, hidden_weight, input_bias, hidden_bias | a step of an LSTM or \
GRU |
| world_model | deter, stoch, action, own, shared, norm, gates, posterior, policy, sizes | a step \
of DreamerV3's state, and its action in the model's encoding |
| most_probable | sizes | 1 at the maximum of each part of the columns, 0 elsewhere |
| atoms | count | (B, A n) as (B, A, n) |
| dueling | value, advantage, atoms | value + advantage - mean advantage |
| expected | support | the mean of the distribution over atoms with these logits |
| mean | | over the last dimension |
| first_half | | of the columns |
| mode | parts, plain | rows of actions (:mod:`rlox.spaces.rows`) |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + e^-x)."""
    # exp(-|x|) does not overflow
    small = np.exp(-np.abs(x))
    result: Array = np.where(x >= 0, 1, small) / (1 + small)
    return result


_erf = np.vectorize(math.erf, otypes=[np.float64])

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "bounded": lambda x: x / np.maximum(np.abs(x), 1),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "gelu": lambda x: (0.5 * x * (1 + _erf(x / math.sqrt(2)))).astype(np.float32),
    "leaky_relu": lambda x: np.where(x > 0, x, np.float32(0.01) * x),
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "symlog": lambda x: np.sign(x) * np.log1p(np.abs(x)),
    "tanh": np.tanh,
}


Layer = Mapping[str, Any]


class Step:
    """Memory and masks of a policy's layers in one step of B episodes.

    Args:
        state: (B, state_size) the memory before the step.
        masks: (B, mask_size) bool; ``None`` masks nothing.
    """

    def __init__(self, state: Array, masks: Array | None) -> None:
        self.masks = masks
        self._state = state
        self._used = 0
        self._after: list[Array] = []

    def recall(self, size: int) -> Array:
        """Return the next ``size`` columns of the memory."""
        self._used += size
        return self._state[:, self._used - size : self._used]

    def remember(self, state: Array) -> None:
        """Store the memory of a layer for the next step."""
        self._after.append(state)

    def after(self) -> Array:
        """Return the memory (B, state_size) after the step."""
        return np.concatenate(self._after, -1) if self._after else self._state


def compute(layer: Layer, inputs: Any, step: Step) -> Any:
    """Return a layer's outputs.

    Raises:
        LookupError, TypeError, ValueError: it does not describe a layer, or does not fit.
    """
    return LAYERS[layer["layer"]](layer, inputs, step)


def memory_size(layer: Any) -> int:
    """Return the size of an episode's memory in the layers inside a description."""
    if isinstance(layer, Mapping):
        if layer.get("layer") == "memory":
            size = int(np.shape(layer["hidden_weight"])[1])
            return 2 * size if layer["kind"] == "lstm" else size
        if layer.get("layer") == "world_model":
            return int(sum(layer["sizes"]))
        return sum(memory_size(value) for value in layer.values())
    return sum(memory_size(each) for each in layer) if isinstance(layer, list) else 0


def _chain(layer: Layer, x: Any, step: Step) -> Any:
    for each in layer["layers"]:
        x = compute(each, x, step)
    return x


def _of_agent(layer: Layer, x: Any, step: Step) -> dict[str, Array]:
    leaves = (
        {f"obs.{name}": leaf for name, leaf in x.items()} if isinstance(x, dict) else {"obs": x}
    )
    rows = len(next(iter(leaves.values())))
    return {**leaves, "agent": np.full(rows, layer["number"], np.int64)}


def _joined(pairs: Sequence[tuple[Layer, Any]], step: Step) -> Array:
    return np.concatenate([compute(each, x, step) for each, x in pairs], -1)


def _pad(layer: Layer, x: Array, step: Step) -> Array:
    top, bottom, left, right = layer["sides"]
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))


def _flatten(layer: Layer, x: Array, step: Step) -> Any:
    flat = x.reshape(len(x), -1).astype(np.float32, copy=False)
    return flat if layer["divide_by"] == 1 else flat / np.float32(layer["divide_by"])


def _one_hot(layer: Layer, x: Array, step: Step) -> Array:
    places = x.reshape(len(x), -1) + layer["first"]
    features = np.zeros((len(x), layer["size"]), np.float32)
    np.put_along_axis(features, places, 1, -1)
    return features


def _image(layer: Layer, x: Array, step: Step) -> Any:
    if x.ndim == 3:
        x = x[:, None]
    elif not layer["channels_first"]:
        x = x.transpose(0, 3, 1, 2)
    return x.astype(np.float32) / np.float32(layer["divide_by"])


def _max_pool(layer: Layer, x: Array, step: Step) -> Any:
    size, edge = layer["size"], [layer.get("padding", 0)] * 2
    stride = layer.get("stride", size)
    x = np.pad(x, ((0, 0), (0, 0), edge, edge), constant_values=-np.inf)
    squares = np.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))
    return squares[:, :, ::stride, ::stride].max((4, 5))


def _convolution(layer: Layer, x: Array, step: Step) -> Array:
    weight, stride = layer["weight"], layer["stride"]
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], (2, 3))
    windows = windows[:, :, ::stride, ::stride]  # (B, in, height, width, size, size)
    out = np.tensordot(windows, weight, ([1, 4, 5], [1, 2, 3])) + layer["bias"]
    return np.ascontiguousarray(out.transpose(0, 3, 1, 2))


def _block_linear(layer: Layer, x: Array, step: Step) -> Any:
    blocks = x.reshape(len(x), len(layer["weight"]), 1, -1) @ layer["weight"]
    return blocks.reshape(len(x), -1) + layer["bias"]


def _rms_norm(layer: Layer, x: Array, step: Step) -> Any:
    mean = np.square(x).mean(layer["axis"], keepdims=True)
    return x / np.sqrt(mean + np.float32(layer["eps"])) * layer["weight"]


def _layer_norm(layer: Layer, x: Array, step: Step) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return _rms_norm({**layer, "axis": -1}, centred, step) + layer["bias"]


def _most_probable(layer: Layer, x: Array, step: Step) -> Array:
    hot = np.zeros_like(x)
    at = 0
    for size in layer["sizes"]:
        np.put_along_axis(hot, at + x[:, at : at + size].argmax(-1, keepdims=True), 1, -1)
        at += size
    return hot


def _world_model(layer: Layer, x: Array, step: Step) -> Any:
    deter, stoch, action = (step.recall(size) for size in layer["sizes"])
    before = zip(("deter", "stoch", "action"), (deter, stoch, action), strict=True)
    seen = np.concatenate([compute(layer[name], each, step) for name, each in before], -1)
    inputs = compute(layer["own"], deter, step) + compute(layer["shared"], seen, step)
    gates = compute(layer["gates"], compute(layer["norm"], inputs, step), step)
    blocks = gates.reshape(len(x), len(layer["gates"]["weight"]), -1)
    reset, candidate, update = (each.reshape(len(x), -1) for each in np.split(blocks, 3, -1))
    candidate = np.tanh(sigmoid(reset) * candidate)
    deter = deter + sigmoid(update - 1) * (candidate - deter)
    stoch = compute(layer["posterior"], np.concatenate([deter, x], -1), step)
    state = np.concatenate([deter, stoch], -1)
    chosen = compute(layer["policy"], state, step)
    step.remember(np.concatenate([state, chosen], -1))
    return chosen


def _memory(layer: Layer, x: Array, step: Step) -> Any:
    size = layer["hidden_weight"].shape[1]
    hidden = step.recall(size)
    given = x @ layer["input_weight"].T + layer["input_bias"]
    recalled = hidden @ layer["hidden_weight"].T + layer["hidden_bias"]
    if layer["kind"] == "gru":
        (r, z, n), (own_r, own_z, own_n) = np.split(given, 3, -1), np.split(recalled, 3, -1)
        update = sigmoid(z + own_z)
        new = np.tanh(n + sigmoid(r + own_r) * own_n)
        after = (1 - update) * new + update * hidden
        step.remember(after)
        return after
    i, f, g, o = np.split(given + recalled, 4, -1)
    cell = sigmoid(f) * step.recall(size) + sigmoid(i) * np.tanh(g)
    output = sigmoid(o) * np.tanh(cell)
    step.remember(np.concatenate([output, cell], -1))
    return output


def _dueling(layer: Layer, x: Array, step: Step) -> Any:
    value, advantage = (compute(layer[name], x, step) for name in ("value", "advantage"))
    n = layer["atoms"] or 1
    advantage = advantage.reshape(len(x), -1, n)
    values = value[:, None] + advantage - advantage.mean(1, keepdims=True)
    return values if layer["atoms"] else values[..., 0]


def _expected(layer: Layer, x: Array, step: Step) -> Any:
    weights = np.exp(x - x.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)) @ layer["support"]


def _mode(layer: Layer, x: Array, step: Step) -> Array:
    columns: list[Array] = []
    at = mask_at = 0
    for part in layer["parts"]:
        kind, sizes = part["kind"], part["sizes"]
        for size in sizes:
            outputs = x[:, at : at + size]
            at += size
            if kind == "numbers":
                columns.append(outputs[:, 0])
                continue
            if kind == "binary":
                outputs = np.concatenate([np.zeros_like(outputs), outputs], -1)
            choices = outputs.shape[1]
            if step.masks is not None:
                possible = step.masks[:, mask_at : mask_at + choices]
                outputs = np.where(possible, outputs, -np.inf)
            mask_at += choices
            columns.append(outputs.argmax(-1))
    if layer["plain"]:
        return columns[0]
    rows = np.stack(columns, -1)
    return rows.astype(np.float32) if rows.dtype.kind == "f" else rows


LAYERS: dict[str, Callable[[Layer, Any, Step], Any]] = {
    "activation": lambda layer, x, step: ACTIVATIONS[layer["function"]](x),
    "affine": lambda layer, x, step: layer["scale"] * x.astype(np.float64) + layer["shift"],
    "atoms": lambda layer, x, step: x.reshape(len(x), -1, layer["count"]),
    "beside": lambda layer, x, step: _joined([(each, x) for each in layer["layers"]], step),
    "block_linear": _block_linear,
    "chain": _chain,
    "convolution": _convolution,
    "dueling": _dueling,
    "expected": _expected,
    "first_half": lambda layer, x, step: x[:, : x.shape[1] // 2],
    "flatten": _flatten,
    "image": _image,
    "join": lambda layer, x, step: _joined([(each, x[k]) for k, each in layer["leaves"]], step),
    "layer_norm": _layer_norm,
    "linear": lambda layer, x, step: x @ layer["weight"].T + layer["bias"],
    "max_pool": _max_pool,
    "mean": lambda layer, x, step: x.mean(-1),
    "memory": _memory,
    "mode": _mode,
    "most_probable": _most_probable,
    "normalize": lambda layer, x, step: (x - layer["mean"]) / layer["std"],
    "of_agent": _of_agent,
    "one_hot": _one_hot,
    "pad": _pad,
    "residual": lambda layer, x, step: x + compute(layer["inner"], x, step),
    "rms_norm": _rms_norm,
    "world_model": _world_model,
}
