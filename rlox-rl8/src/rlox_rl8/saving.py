"""Policies in files: parameters, specs and names, and nothing that runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from rlox.errors import CheckpointError, ConfigError
from rlox.files import open_regular, write_atomically
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as tensors_bytes

from rlox_rl8 import _specs as specs
from rlox_rl8 import distributions, models

__all__ = ["read_policy", "write_policy"]

FORMAT_VERSION = 1
KEY = "rlox_rl8_policy"


def write_policy(policy: Any, path: str | os.PathLike[str]) -> None:
    """Write a policy as a safetensors file.

    Args:
        policy: of either kind.
        path: of the file.

    Raises:
        ConfigError: its specs cannot be written.
        OSError: the file cannot be written.
    """
    config = policy.model.config
    try:
        json.dumps(config)
    except (TypeError, ValueError):
        config = None
    header = {
        "format_version": FORMAT_VERSION,
        "kind": type(policy).__name__,
        "model": type(policy.model).__name__,
        "config": config,
        "distribution": policy.distribution_cls.__name__,
        "observation_spec": _to_data(policy.observation_spec),
        "action_spec": _to_data(policy.action_spec),
    }
    tensors = {
        name: tensor.detach().cpu().contiguous().clone()
        for name, tensor in policy.model.state_dict().items()
    }
    content = tensors_bytes(tensors, metadata={KEY: json.dumps(header)})
    write_atomically(Path(path), content)


def read_policy(
    cls: Any, path: Any, model: Any, model_cls: Any, distribution_cls: Any, device: Any
) -> Any:
    """Return the policy in a file that :func:`write_policy` wrote; see ``load`` of its class."""
    header, tensors = _read(path)
    if header["kind"] != cls.__name__:
        raise CheckpointError(f"'{path}' holds a {header['kind']}, not a {cls.__name__}")
    if model is None and model_cls is None:
        model_cls = _known(models, header["model"], "model", path)
    if distribution_cls is None:
        distribution_cls = _known(distributions, header["distribution"], "distribution", path)
    policy = cls(
        _from_data(header["observation_spec"], device),
        _from_data(header["action_spec"], device),
        model=model,
        model_cls=model_cls,
        model_config=None if model is not None else header["config"],
        distribution_cls=distribution_cls,
        device=device,
    )
    try:
        policy.model.load_state_dict(tensors)
    except RuntimeError as error:
        raise CheckpointError(f"'{path}' is of another model: {error}") from None
    return policy


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    try:
        with open_regular(Path(path), "rb") as file:
            content = file.read()
        tensors = load_tensors(content)
        size = int.from_bytes(content[:8], "little")
        header = json.loads(json.loads(content[8 : 8 + size])["__metadata__"][KEY])
        version = header["format_version"]
    except (OSError, SafetensorError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"'{path}' is no policy of rlox.rl8 or is damaged: {error}") from None
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"'{path}' has format version {version!r}, this rlox reads {FORMAT_VERSION}; upgrade"
        )
    return header, tensors


def _known(module: Any, name: str, what: str, path: Any) -> Any:
    if name not in module.__all__:
        raise ConfigError(
            f"'{path}' is of the {what} class '{name}', which is not rlox's; pass {what}_cls="
        )
    return getattr(module, name)


def _to_data(spec: specs.TensorSpec) -> dict[str, Any]:
    kind = specs.kind_of(spec)
    if kind is None:
        raise ConfigError(f"the spec {spec} cannot be written")
    if kind is specs.Composite:
        parts = {str(key): _to_data(spec[key]) for key in spec.keys()}  # noqa: SIM118
        return {"kind": "Composite", "parts": parts}
    data = {"kind": kind.__name__, "shape": list(spec.shape), "dtype": str(spec.dtype)}
    if kind is specs.MultiCategorical:
        data["numbers"] = spec.nvec.tolist()
    elif kind is specs.Categorical:
        data["number"] = int(spec.n)
    elif kind is specs.Bounded:
        data |= {"low": spec.low.tolist(), "high": spec.high.tolist()}
    return data


def _from_data(data: dict[str, Any], device: Any) -> specs.TensorSpec:
    kind = data["kind"]
    if kind == "Composite":
        parts = {key: _from_data(part, device) for key, part in data["parts"].items()}
        return specs.Composite(parts)
    shape = torch.Size(data["shape"])
    given = {"device": device, "dtype": getattr(torch, data["dtype"].removeprefix("torch."))}
    if kind == "MultiCategorical":
        return specs.MultiCategorical(data["numbers"], **given)
    if kind == "Categorical":
        return specs.Categorical(data["number"], shape=shape, **given)
    if kind == "Bounded":
        low, high = (torch.tensor(data[name], dtype=given["dtype"]) for name in ("low", "high"))
        return specs.Bounded(low, high, shape=shape, **given)
    return (specs.Binary if kind == "Binary" else specs.Unbounded)(shape=shape, **given)
