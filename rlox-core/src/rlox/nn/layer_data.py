"""Layer descriptions: torch modules as plain data.

A description is a dict with the key ``"layer"``, the other keys of that kind of layer, and NumPy
arrays; :mod:`rlox.deployment` computes it without torch and lists the kinds. A module describes
itself with a method ``layer_data()`` that returns such a dict; torch's own common layers are
described here. Policies describe the layers from an observation to its most probable action.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from torch import nn

from rlox.errors import ExportError
from rlox.spaces.rows import ActionRows

LayerData = dict[str, Any]

FUNCTIONS = {
    nn.ELU: "elu",
    nn.GELU: "gelu",
    nn.LeakyReLU: "leaky_relu",
    nn.ReLU: "relu",
    nn.SiLU: "silu",
    nn.Sigmoid: "sigmoid",
    nn.Tanh: "tanh",
}
"""Activations that can be described, with torch's default numbers only."""

DEFAULTS: dict[Any, tuple[str, Any]] = {
    nn.ELU: ("alpha", 1.0),
    nn.GELU: ("approximate", "none"),
    nn.LeakyReLU: ("negative_slope", 0.01),
}


def array(tensor: Any) -> npt.NDArray[Any]:
    """Return a tensor's numbers as an array that shares no memory with it."""
    numbers: npt.NDArray[Any] = np.array(tensor.detach().cpu().numpy())
    return numbers


def chain(*layers: LayerData) -> LayerData:
    """Describe layers that are computed in sequence."""
    return {"layer": "chain", "layers": list(layers)}


def activation(function: str) -> LayerData:
    """Describe an activation by its name."""
    return {"layer": "activation", "function": function}


def linear(layer: Any) -> LayerData:
    """Describe a layer with ``weight`` (n_out, n_in) and ``bias`` (n_out,), or ``None``."""
    bias = np.zeros(len(layer.weight), np.float32) if layer.bias is None else array(layer.bias)
    return {"layer": "linear", "weight": array(layer.weight), "bias": bias}


def layer_norm(layer: Any) -> LayerData:
    """Describe a ``LayerNorm`` of the last dimension."""
    numbers = {"weight": array(layer.weight), "bias": array(layer.bias)}
    return {"layer": "layer_norm", "eps": layer.eps, **numbers}


def perceptron(layers: Sequence[Any], function: str, norms: Sequence[Any], n: int) -> LayerData:
    """Describe linear layers with an activation after the first ``n``, and norms before it."""
    described = [linear(each) for each in layers]
    for i in reversed(range(n)):
        described[i + 1 : i + 1] = [*map(layer_norm, norms[i : i + 1]), activation(function)]
    return chain(*described)


def mode(space: gymnasium.Space[Any]) -> LayerData:
    """Describe the step from outputs to rows of most probable actions; see :class:`ActionHead`.

    Args:
        space: of one env's action. Discrete columns have one output per choice, columns of a
            ``MultiBinary`` one, the logit of 1, and columns of a ``Box`` one, the mean.
    """
    parts = [
        {"kind": "numbers", "sizes": [1] * leaf.columns}
        if not leaf.sizes
        else {"kind": "binary", "sizes": [1] * leaf.columns}
        if isinstance(leaf.space, spaces.MultiBinary)
        else {"kind": "choices", "sizes": list(leaf.sizes)}
        for leaf in ActionRows(space).leaves
    ]
    return {"layer": "mode", "parts": parts, "plain": isinstance(space, spaces.Discrete)}


def layer_data(module: Any) -> LayerData:
    """Return a module's description.

    Args:
        module: has a method ``layer_data()``, or is a ``torch.nn.Sequential`` of modules that can
            be described, a ``Linear``, a ``Flatten`` of all dimensions, a ``LayerNorm`` of the last
            one, or an activation.

    Raises:
        ExportError: it is not one of these, or inherits its method.
    """
    kind = type(module)
    if "layer_data" in vars(kind):
        return module.layer_data()  # type: ignore[no-any-return]
    if hasattr(module, "layer_data"):
        # the inherited description lacks the subclass's changes
        raise ExportError(
            f"{kind.__name__} inherits layer_data(), which describes the class that it derives "
            "from; give it one of its own"
        )
    if kind in (nn.Sequential, nn.Identity):
        return chain(*(layer_data(each) for each in module.children()))
    if kind is nn.Linear:
        return linear(module)
    if kind is nn.LayerNorm and module.bias is not None and len(module.normalized_shape) == 1:
        return layer_norm(module)
    if kind is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
        return {"layer": "flatten", "divide_by": 1.0}
    if kind in FUNCTIONS:
        name, default = DEFAULTS.get(kind, ("", None))
        if name and getattr(module, name) != default:
            raise ExportError(
                f"a policy file has {kind.__name__} with {name}={default!r} only, got "
                f"{getattr(module, name)!r}"
            )
        return activation(FUNCTIONS[kind])
    raise ExportError(
        f"{kind.__name__} cannot be described in a policy file; give it a method layer_data(), see "
        "rlox.nn.layer_data, or build it of torch.nn.Sequential, Linear and activations"
    )
