"""Policies as ONNX graphs, and acting with onnxruntime."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rlox.deployment.files import ALWAYS_MADE
from rlox.deployment.policy import Compute, PolicyData, example
from rlox.envs.preprocessing import CLIP, EPSILON, FrameStack, Preprocessor
from rlox.errors import CheckpointError, import_extra
from rlox.spaces import ActionRows

Array = npt.NDArray[Any]
Layer = Mapping[str, Any]

OPSET = 17
IR_VERSION = 8
OPERATORS = frozenset((
    "Abs", "Add", "ArgMax", "Cast", "Concat", "Conv", "Div", "Elu", "Erf", "Expand",
    "Flatten", "Gather", "Gemm", "LeakyRelu", "Log", "MatMul", "Max", "MaxPool", "Min", "Mul",
    "OneHot", "Pad", "ReduceMean", "ReduceSum", "Relu", "Reshape", "Round", "Shape", "Sigmoid",
    "Sign", "Slice", "Softmax", "Split", "Sqrt", "Squeeze", "Sub", "Tanh", "Transpose", "Unsqueeze",
    "Where",
))  # fmt: skip
"""Operators of the graphs."""


def onnx_bytes(data: PolicyData, metadata: Mapping[str, str]) -> bytes:
    """Return a whole policy as an ONNX file.

    Its inputs are ``obs``, or ``obs.<leaf>`` for each leaf, (B, *shape) as the env gives them;
    ``mask`` (B, mask_size) if it takes masks, and ``state`` (B, state_size) if it has a memory,
    zeros at the beginning of an episode. Its outputs are ``actions``, or ``actions.<leaf>``, as the
    env takes them, and ``next_state``.

    Args:
        data: the policy.
        metadata: texts by name, stored in the file.

    Raises:
        MissingDependencyError: onnx is not installed.
    """
    onnx = import_extra("onnx", "exporting a policy as .onnx", "onnx")
    obs, masks = example(data)
    leaves = obs if isinstance(obs, dict) else {"": obs}
    seen = {leaf: _named("obs", leaf) for leaf in leaves}
    given = {seen[leaf]: array for leaf, array in leaves.items()}
    graph = GraphBuilder(onnx, given if masks is None else {**given, "mask": masks})
    if data.preprocessor is not None:
        seen = graph.see(data.preprocessor, seen)
    rows = graph.layer(data.network, seen if isinstance(obs, dict) else seen[""])
    outputs = graph.to_env(ActionRows(data.action_space), rows)
    if graph.after:
        outputs.append(graph.node("Concat", *graph.after, name="next_state", axis=1))
    model = graph.model(outputs)
    for name, text in metadata.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = name, text
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def _named(name: str, leaf: str) -> str:
    return f"{name}.{leaf}" if leaf else name


def open_onnx(content: bytes, path: Path) -> tuple[bytes, Callable[[PolicyData], Compute]]:
    """Return an ONNX file's description of its policy, and a function that computes its graph.

    Raises:
        CheckpointError: it is not an ONNX file, or not one of rlox.
        MissingDependencyError: onnxruntime is not installed.
    """
    ort, onnx = (import_extra(each, f"'{path.name}'", "onnx") for each in ("onnxruntime", "onnx"))
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # a faulty file is an error, not a log line
    try:
        _require_plain(onnx, onnx.load_from_string(content), len(content))
        session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        text = session.get_modelmeta().custom_metadata_map["rlox_policy"]
    except KeyError:
        raise CheckpointError(
            f"'{path}' holds no policy of rlox; write one with rlox export"
        ) from None
    except Exception as error:  # onnxruntime has a class of its own for each failure
        raise CheckpointError(f"'{path}' is no ONNX file or is damaged: {error}") from None
    return base64.b64decode(text), lambda data: OnnxNetwork(session, ActionRows(data.action_space))


def _require_plain(onnx: Any, model: Any, size: int) -> None:
    """Refuse graphs that :func:`onnx_bytes` never writes, before anything is computed or opened.

    Raises:
        ValueError: the graph has foreign operators, weights in another file or that are not
            finite, or a result larger than a file of ``size`` bytes can justify.
    """
    graph = model.graph
    if others := {node.op_type for node in graph.node} - OPERATORS:
        raise ValueError(f"its graph has other operators than rlox writes: {', '.join(others)}")
    attributes = [each for node in graph.node for each in node.attribute]
    if graph.sparse_initializer or model.functions or any(a.HasField("t") for a in attributes):
        raise ValueError("its weights are elsewhere than rlox writes them")
    for tensor in graph.initializer:
        if onnx.external_data_helper.uses_external_data(tensor):
            raise ValueError("its weights are in another file, which is not read")
        array = onnx.numpy_helper.to_array(tensor)
        # the value of a masked action is a separate constant
        if array.dtype.kind == "f" and not (np.isfinite(array).all() or array == -np.inf):
            raise ValueError(f"its weights '{tensor.name}' are not finite")
    for known in (*graph.input, *onnx.shape_inference.infer_shapes(model).graph.value_info):
        shape = [each.dim_value or 1 for each in known.type.tensor_type.shape.dim]
        if math.prod(shape) > max(size, ALWAYS_MADE):
            raise ValueError("it asks for arrays that are larger than the file")


class OnnxNetwork:
    """A graph computed by onnxruntime.

    Args:
        session: session of a graph from :func:`onnx_bytes`.
        actions: the policy's actions.
    """

    def __init__(self, session: Any, actions: ActionRows) -> None:
        self._session, self._leaves = session, actions.leaves
        self._inputs = {each.name: each.shape for each in session.get_inputs()}
        self.state_size = int(self._inputs.get("state", (0, 0))[1])

    def __call__(
        self, obs: Any, state: npt.NDArray[np.float32], masks: npt.NDArray[np.bool_] | None
    ) -> tuple[Array, npt.NDArray[np.float32]]:
        """Return rows of B actions and the memory (B, state_size) after them."""
        leaves = obs if isinstance(obs, dict) else {"": obs}
        given = {_named("obs", name): leaf for name, leaf in leaves.items()} | {"state": state}
        if "mask" in self._inputs:
            shape = len(state), self._inputs["mask"][1]
            given["mask"] = np.ones(shape, np.bool_) if masks is None else masks
        # a leaf that the policy ignores is not an input of the graph
        used = {name: array for name, array in given.items() if name in self._inputs}
        try:
            found = self._session.run(None, used)
        except Exception as error:  # see open_onnx
            raise ValueError(f"the graph cannot be computed: {error}") from None
        # rows count from 0, the env's actions from the space's start
        rows, *more = (
            actions - getattr(leaf.space, "start", 0)
            for actions, leaf in zip(found, self._leaves, strict=False)
        )
        if self._leaves[0].name:
            rows = np.concatenate([each.reshape(len(each), -1) for each in (rows, *more)], 1)
        return rows, found[-1] if self.state_size else state


class GraphBuilder:
    """Nodes of a graph, one layer after the other.

    Args:
        onnx: the library.
        inputs: an example of each input by name.
    """

    def __init__(self, onnx: Any, inputs: Mapping[str, Array]) -> None:
        self._onnx = onnx
        self._inputs = dict(inputs)
        self._dims = {name: array.ndim for name, array in inputs.items()}
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self.after: list[str] = []
        """Names of the layers' states, in the order of the state's columns."""
        self._used = 0

    def model(self, outputs: list[str]) -> Any:
        """Return the model with these outputs; it takes any number of rows."""
        helper, types = self._onnx.helper, self._onnx.helper.np_dtype_to_tensor_dtype
        self._inputs["state"] = np.zeros((1, self._used), np.float32)
        used = {name for node in self._nodes for name in node.input}
        given = [
            helper.make_tensor_value_info(name, types(array.dtype), ["B", *array.shape[1:]])
            for name, array in self._inputs.items()
            if name in used
        ]
        graph = helper.make_graph(self._nodes, "policy", given, [], self._constants)
        graph.output.extend(helper.make_empty_tensor_value_info(name) for name in outputs)
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, producer_name="rlox")
        model.ir_version = IR_VERSION
        del model.graph.output[:]
        inferred = self._onnx.shape_inference.infer_shapes(model, strict_mode=True)
        known = {each.name: each for each in inferred.graph.value_info}
        model.graph.output.extend(known[name] for name in outputs)
        return model

    def node(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        name = name or f"{operator.lower()}_{len(self._nodes)}"
        made = self._onnx.helper.make_node(operator, list(inputs), [name], name=name, **attributes)
        self._nodes.append(made)
        return name

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Return the name of a constant."""
        name = f"constant_{len(self._constants)}"
        array = np.ascontiguousarray(value, dtype)
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def slice(self, x: str, begin: int, end: int, axis: int = 1) -> str:
        """Return columns of (B, n), or a part of another axis."""
        bounds = [self.constant([each], np.int64) for each in (begin, end, axis)]
        return self.node("Slice", x, *bounds)

    def shape(self, x: str, *shape: int) -> str:
        """Return ``x`` in another shape; 0 keeps a dimension."""
        return self.node("Reshape", x, self.constant(shape, np.int64))

    def cast(self, x: str, dtype: Any) -> str:
        """Return ``x`` in another dtype."""
        to = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.node("Cast", x, to=to)

    def clip(self, x: str, low: Any, high: Any) -> str:
        """Return float64 numbers within bounds."""
        x = self.node("Max", x, self.constant(low, np.float64))
        return self.node("Min", x, self.constant(high, np.float64))

    def see(self, seen: Preprocessor, leaves: Mapping[str, str]) -> dict[str, str]:
        """Add the work of :class:`Preprocessor`, and return the names of its results by leaf."""
        shown = dict(leaves)
        for name, moments in seen.moments.items():
            x, mean = self.cast(leaves[name], np.float64), self.constant(moments.mean)
            scale = self.constant(np.sqrt(moments.variance + EPSILON))
            x = self.node("Div", self.node("Sub", x, mean), scale)
            shown[name] = self.cast(self.clip(x, -CLIP, CLIP), np.float32)
            self._dims[shown[name]] = self._dims[leaves[name]]
        if not seen.has_frames:
            return shown
        begun = self._recall(1)
        self.after.append(self.node("Max", begun, self.constant(1, np.float32)))
        begun = self.cast(begun, np.bool_)
        stacks = seen.stacks if isinstance(seen.stacks, dict) else {"": seen.stacks}
        for name, stack in stacks.items():
            dtype = self._inputs[leaves[name]].dtype
            shown[name] = self._stack(stack, shown[name], begun, dtype)
        return shown

    def _stack(self, stack: FrameStack, x: str, begun: str, dtype: Any) -> str:
        """Add a stack of frames; the state holds all but the newest."""
        axis, shape = stack.axis, [0, *(stack.space.shape or ())]
        end = shape[axis]
        width = end // stack.size
        shape[axis] = width
        x = self.shape(x, *shape)
        shape[axis] = end - width
        first = self.node("Concat", *[x] * (stack.size - 1), axis=axis)
        first = self.cast(self.node("Flatten", first, axis=1), np.float32)
        kept = self.node("Where", begun, self._recall(math.prod(shape[1:])), first)
        stacked = self.node("Concat", self.cast(self.shape(kept, *shape), dtype), x, axis=axis)
        after = self.slice(stacked, width, end, axis)
        self.after.append(self.cast(self.node("Flatten", after, axis=1), np.float32))
        self._dims[stacked] = len(shape)
        return stacked

    def to_env(self, actions: ActionRows, rows: str) -> list[str]:
        """Add the work of :meth:`ActionRows.to_env`, and return the names of its results."""
        outputs, at = [], 0
        for leaf in actions.leaves:
            space, x = leaf.space, self.slice(rows, at, at + leaf.columns) if leaf.name else rows
            at += leaf.columns
            x = self.shape(x, 0, *(space.shape or ()))
            if isinstance(space, spaces.Box):
                x = self.cast(x, np.float64)
                x = self.node("Round", x) if space.dtype.kind in "iu" else x
                x = self.clip(x, np.nan_to_num(space.low), np.nan_to_num(space.high))
            else:
                start = self.constant(getattr(space, "start", 0), np.int64)
                x = self.node("Add", self.cast(x, np.int64), start)
            to = self._onnx.helper.np_dtype_to_tensor_dtype(space.dtype)
            outputs.append(self.node("Cast", x, name=_named("actions", leaf.name), to=to))
        return outputs

    def layer(self, layer: Layer, x: Any) -> Any:
        """Add a layer of :mod:`rlox.deployment.layers` and return the name of its output."""
        return getattr(self, f"_{layer['layer']}")(layer, x)

    def _chain(self, layer: Layer, x: Any) -> Any:
        for each in layer["layers"]:
            x = self.layer(each, x)
        return x

    def _of_agent(self, layer: Layer, x: Any) -> dict[str, str]:
        leaves = {f"obs.{name}": leaf for name, leaf in x.items()} if isinstance(x, dict) else {}
        leaves = leaves or {"obs": x}
        shape = self.node("Shape", next(iter(leaves.values())))
        bounds = [self.constant([each], np.int64) for each in (0, 1)]
        rows = self.node("Slice", shape, *bounds)
        number = self.constant([layer["number"]], np.int64)
        return {**leaves, "agent": self.node("Expand", number, rows)}

    def _join(self, layer: Layer, x: Mapping[str, str]) -> str:
        parts = [self.layer(each, x[name]) for name, each in layer["leaves"]]
        return self.node("Concat", *parts, axis=1)

    def _beside(self, layer: Layer, x: Any) -> str:
        return self.node("Concat", *(self.layer(each, x) for each in layer["layers"]), axis=1)

    def _divided(self, x: str, by: float) -> str:
        x = self.cast(x, np.float32)
        return x if by == 1 else self.node("Div", x, self.constant(by, np.float32))

    def _flatten(self, layer: Layer, x: str) -> str:
        return self._divided(self.node("Flatten", x, axis=1), layer["divide_by"])

    def _one_hot(self, layer: Layer, x: str) -> str:
        places = self.cast(self.node("Flatten", x, axis=1), np.int64)
        places = self.node("Add", places, self.constant(layer["first"], np.int64))
        depth, values = self.constant(layer["size"], np.int64), self.constant([0, 1], np.float32)
        hot = self.node("OneHot", places, depth, values)
        return self.node("ReduceSum", hot, self.constant([1], np.int64), keepdims=0)

    def _image(self, layer: Layer, x: str) -> str:
        if self._dims[x] == 3:
            x = self.node("Unsqueeze", x, self.constant([1], np.int64))
        elif not layer["channels_first"]:
            x = self.node("Transpose", x, perm=[0, 3, 1, 2])
        return self._divided(x, layer["divide_by"])

    def _pad(self, layer: Layer, x: str) -> str:
        top, bottom, left, right = layer["sides"]
        sides = [0, 0, top, left, 0, 0, bottom, right]
        return self.node("Pad", x, self.constant(sides, np.int64))

    def _max_pool(self, layer: Layer, x: str) -> str:
        size = layer["size"]
        strides, pads = [layer.get("stride", size)] * 2, [layer.get("padding", 0)] * 4
        return self.node("MaxPool", x, kernel_shape=[size] * 2, strides=strides, pads=pads)

    def _residual(self, layer: Layer, x: str) -> str:
        return self.node("Add", x, self.layer(layer["inner"], x))

    def _convolution(self, layer: Layer, x: str) -> str:
        numbers = [self.constant(layer[name]) for name in ("weight", "bias")]
        return self.node("Conv", x, *numbers, strides=[layer["stride"]] * 2)

    def _product(self, x: str, weight: Array, bias: Array) -> str:
        return self.node("Gemm", x, self.constant(weight), self.constant(bias), transB=1)

    def _linear(self, layer: Layer, x: str) -> str:
        return self._product(x, layer["weight"], layer["bias"])

    def _block_linear(self, layer: Layer, x: str) -> str:
        blocks = self.shape(x, 0, len(layer["weight"]), 1, -1)
        products = self.node("MatMul", blocks, self.constant(layer["weight"]))
        return self.node("Add", self.shape(products, 0, -1), self.constant(layer["bias"]))

    def _rms_norm(self, layer: Layer, x: str) -> str:
        squares = self.node("Mul", x, x)
        mean = self.node("ReduceMean", squares, axes=[layer["axis"]], keepdims=1)
        root = self.node("Sqrt", self.node("Add", mean, self.constant(layer["eps"], np.float32)))
        return self.node("Mul", self.node("Div", x, root), self.constant(layer["weight"]))

    def _layer_norm(self, layer: Layer, x: str) -> str:
        centred = self.node("Sub", x, self.node("ReduceMean", x, axes=[-1], keepdims=1))
        normed = self._rms_norm({**layer, "axis": -1}, centred)
        return self.node("Add", normed, self.constant(layer["bias"]))

    def _activation(self, layer: Layer, x: str) -> str:
        function = layer["function"]
        if function in ("bounded", "symlog"):
            one, size = self.constant(1, np.float32), self.node("Abs", x)
            if function == "bounded":
                return self.node("Div", x, self.node("Max", size, one))
            logarithm = self.node("Log", self.node("Add", size, one))
            return self.node("Mul", self.node("Sign", x), logarithm)
        if function == "silu":
            return self.node("Mul", x, self.node("Sigmoid", x))
        if function == "gelu":
            scaled = self.node("Mul", x, self.constant(1 / math.sqrt(2), np.float32))
            weight = self.node("Add", self.node("Erf", scaled), self.constant(1, np.float32))
            half = self.node("Mul", x, self.constant(0.5, np.float32))
            return self.node("Mul", half, weight)
        if function == "leaky_relu":
            return self.node("LeakyRelu", x, alpha=0.01)
        return self.node(function.capitalize(), x)

    def _normalize(self, layer: Layer, x: str) -> str:
        centred = self.node("Sub", x, self.constant(layer["mean"]))
        return self.node("Div", centred, self.constant(layer["std"]))

    def _affine(self, layer: Layer, x: str) -> str:
        scaled = self.node("Mul", self.cast(x, np.float64), self.constant(layer["scale"]))
        return self.node("Add", scaled, self.constant(layer["shift"]))

    def _recall(self, size: int) -> str:
        self._used += size
        return self.slice("state", self._used - size, self._used)

    def _memory(self, layer: Layer, x: str) -> str:
        size = layer["hidden_weight"].shape[1]
        hidden = self._recall(size)
        given = self._product(x, layer["input_weight"], layer["input_bias"])
        recalled = self._product(hidden, layer["hidden_weight"], layer["hidden_bias"])

        def gate(function: str, number: int, *sums: str) -> str:
            parts = [self.slice(each, number * size, (number + 1) * size) for each in sums]
            total = parts[0] if len(parts) == 1 else self.node("Add", *parts)
            return self.node(function, total)

        if layer["kind"] == "gru":
            reset, update = gate("Sigmoid", 0, given, recalled), gate("Sigmoid", 1, given, recalled)
            own = self.node("Mul", reset, self.slice(recalled, 2 * size, 3 * size))
            total = self.node("Add", self.slice(given, 2 * size, 3 * size), own)
            new = self.node("Tanh", total)
            kept = self.node("Mul", update, self.node("Sub", hidden, new))
            self.after.append(self.node("Add", new, kept))
            return self.after[-1]
        cell = self._recall(size)
        sums = self.node("Add", given, recalled)
        kept = self.node("Mul", gate("Sigmoid", 1, sums), cell)
        written = self.node("Mul", gate("Sigmoid", 0, sums), gate("Tanh", 2, sums))
        cell = self.node("Add", kept, written)
        hidden = self.node("Mul", gate("Sigmoid", 3, sums), self.node("Tanh", cell))
        self.after += [hidden, cell]
        return hidden

    def _most_probable(self, layer: Layer, x: str) -> str:
        parts, at, values = [], 0, self.constant([0, 1], np.float32)
        for size in layer["sizes"]:
            chosen = self.node("ArgMax", self.slice(x, at, at + size), axis=1, keepdims=0)
            parts.append(self.node("OneHot", chosen, self.constant(size, np.int64), values))
            at += size
        return self.node("Concat", *parts, axis=1)

    def _world_model(self, layer: Layer, x: str) -> str:
        state = [self._recall(size) for size in layer["sizes"]]
        names = ("deter", "stoch", "action")
        parts = [self.layer(layer[name], each) for name, each in zip(names, state, strict=True)]
        shared = self.layer(layer["shared"], self.node("Concat", *parts, axis=1))
        inputs = self.node("Add", self.layer(layer["own"], state[0]), shared)
        gates = self.layer(layer["gates"], self.layer(layer["norm"], inputs))
        weight = layer["gates"]["weight"]
        blocks = self.shape(gates, 0, len(weight), 3, weight.shape[2] // 3)
        reset, candidate, update = (
            self.shape(self.node("Gather", blocks, self.constant(i, np.int64), axis=2), 0, -1)
            for i in range(3)
        )
        candidate = self.node("Tanh", self.node("Mul", self.node("Sigmoid", reset), candidate))
        late = self.node("Sub", update, self.constant(1, np.float32))
        change = self.node("Sub", candidate, state[0])
        moved = self.node("Mul", self.node("Sigmoid", late), change)
        deter = self.node("Add", state[0], moved)
        stoch = self.layer(layer["posterior"], self.node("Concat", deter, x, axis=1))
        seen = self.node("Concat", deter, stoch, axis=1)
        action: str = self.layer(layer["policy"], seen)
        self.after += [seen, action]
        return action

    def _atoms(self, layer: Layer, x: str) -> str:
        return self.shape(x, 0, -1, layer["count"])

    def _dueling(self, layer: Layer, x: str) -> str:
        n = layer["atoms"] or 1
        value = self.shape(self.layer(layer["value"], x), 0, 1, n)
        advantage = self.shape(self.layer(layer["advantage"], x), 0, -1, n)
        mean = self.node("ReduceMean", advantage, axes=[1], keepdims=1)
        values = self.node("Add", value, self.node("Sub", advantage, mean))
        return values if layer["atoms"] else self.shape(values, 0, -1)

    def _expected(self, layer: Layer, x: str) -> str:
        weights = self.node("Softmax", x, axis=-1)
        return self.node("MatMul", weights, self.constant(layer["support"]))

    def _mean(self, layer: Layer, x: str) -> str:
        return self.node("ReduceMean", x, axes=[-1], keepdims=0)

    def _first_half(self, layer: Layer, x: str) -> str:
        halves = [f"half_{len(self._nodes)}", f"rest_{len(self._nodes)}"]
        made = self._onnx.helper.make_node("Split", [x], halves, axis=1)
        self._nodes.append(made)
        return halves[0]

    def _mode(self, layer: Layer, x: str) -> str:
        columns, at, mask_at = [], 0, 0
        floats = any(part["kind"] == "numbers" for part in layer["parts"])
        for part in layer["parts"]:
            for size in part["sizes"]:
                outputs = self.slice(x, at, at + size)
                at += size
                if part["kind"] == "numbers":
                    columns.append(outputs)
                    continue
                choices = size
                if part["kind"] == "binary":
                    none = self.node("Mul", outputs, self.constant(0, np.float32))
                    outputs, choices = self.node("Concat", none, outputs, axis=1), 2
                if "mask" in self._inputs:
                    possible = self.slice("mask", mask_at, mask_at + choices)
                    never = self.constant(-np.inf, np.float32)
                    outputs = self.node("Where", possible, outputs, never)
                mask_at += choices
                chosen = self.node("ArgMax", outputs, axis=1, keepdims=1)
                columns.append(self.cast(chosen, np.float32) if floats else chosen)
        if layer["plain"]:
            return self.node("Squeeze", columns[0], self.constant([1], np.int64))
        return self.node("Concat", *columns, axis=1)
