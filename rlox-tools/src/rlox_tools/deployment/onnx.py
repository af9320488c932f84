"""Policies as ONNX graphs, and acting with onnxruntime."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rlox.deployment.policy import Compute, PolicyData, example
from rlox.errors import CheckpointError, import_extra

from rlox_tools.deployment.onnx_graph import GraphBuilder

__all__ = ["OnnxNetwork", "onnx_bytes", "open_onnx"]

Array = npt.NDArray[Any]


def onnx_bytes(data: PolicyData, metadata: Mapping[str, str]) -> bytes:
    """Return a policy's network as an ONNX file.

    Its inputs are ``obs``, or ``obs.<leaf>`` for each leaf, (B, *shape) as the network sees them;
    ``state`` (B, state_size) if it has a memory, and ``mask`` (B, mask_size) if it takes masks. Its
    outputs are ``actions``, rows as in :mod:`rlox.spaces.rows`, and ``next_state``.

    Args:
        data: the policy.
        metadata: texts by name, which the file carries.

    Raises:
        MissingDependencyError: onnx is not installed.
    """
    onnx = import_extra("onnx", "exporting a policy as .onnx", "onnx")
    obs, state, masks = example(data)
    leaves = obs if isinstance(obs, dict) else {"": obs}
    names = {leaf: f"obs.{leaf}" if leaf else "obs" for leaf in leaves}
    given = {names[leaf]: array for leaf, array in leaves.items()}
    given |= {"state": state} if state.size else {}
    given |= {} if masks is None else {"mask": masks}
    graph = GraphBuilder(onnx, given)
    rows = graph.layer(data.network, names if isinstance(obs, dict) else names[""])
    graph.node("Identity", rows, name="actions")
    outputs = ["actions"]
    if graph.after:
        graph.node("Concat", *graph.after, name="next_state", axis=1)
        outputs.append("next_state")
    model = graph.model(outputs)
    for name, text in metadata.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = name, text
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def open_onnx(content: bytes, path: Path) -> tuple[bytes, Callable[[PolicyData], Compute]]:
    """Return what the metadata of an ONNX file say of its policy, and what computes its graph.

    Raises:
        CheckpointError: it is no ONNX file, or not of rlox.
        MissingDependencyError: onnxruntime is not installed.
    """
    ort = import_extra("onnxruntime", f"'{path.name}'", "onnx")
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what is wrong with a file is an error, not a line
    try:
        session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        text = session.get_modelmeta().custom_metadata_map["rlox"]
    except KeyError:
        raise CheckpointError(
            f"'{path}' holds no policy of rlox; write one with rlox export"
        ) from None
    except Exception as error:  # onnxruntime has an exception of its own for each way to fail
        raise CheckpointError(f"'{path}' is no ONNX file or is damaged: {error}") from None
    return base64.b64decode(text), lambda data: OnnxNetwork(session)


class OnnxNetwork:
    """A graph computed by onnxruntime.

    Args:
        session: of a graph that :func:`onnx_bytes` made.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._inputs = {each.name: each.shape for each in session.get_inputs()}

    def __call__(
        self, obs: Any, state: npt.NDArray[np.float32], masks: npt.NDArray[np.bool_] | None
    ) -> tuple[Array, npt.NDArray[np.float32]]:
        """Return rows of B actions and the memory (B, state_size) after them."""
        if isinstance(obs, dict):
            given: dict[str, Array] = {f"obs.{name}": leaf for name, leaf in obs.items()}
        else:
            given = {"obs": obs}
        if "state" in self._inputs:
            given["state"] = state
        if "mask" in self._inputs:
            shape = len(state), self._inputs["mask"][1]
            given["mask"] = np.ones(shape, np.bool_) if masks is None else masks
        # a leaf that the policy does not look at is no input of the graph
        used = {name: array for name, array in given.items() if name in self._inputs}
        rows, *after = self._session.run(None, used)
        return rows, after[0] if after else state
