"""The one checkpoint writer and reader.

A checkpoint is one safetensors file: the arrays are its tensors, and its metadata holds a JSON
manifest with the format version, the versions of the distributions, the algorithm's name, its
config, its env id and the tree of its state, in which each array is replaced by its tensor's name.
Nothing in it is code: reading one unpickles, imports and evaluates nothing.

A file is written beside its target, synced and renamed, so that a crash leaves the old checkpoint
or the new one, never half of one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as safetensors_bytes

from rlox.envs import env_id_of
from rlox.errors import CheckpointError
from rlox.versions import installed_versions

if TYPE_CHECKING:
    from rlox.algorithm import Algorithm

__all__ = ["FORMAT_VERSION", "load", "read", "save"]

FORMAT_VERSION = 1

MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""From each older format version, the function that makes its manifest one version newer."""

TENSOR_KEY = "$tensor"

AlgorithmT = TypeVar("AlgorithmT", bound="Algorithm")


def _pack(value: Any, path: str, tensors: dict[str, np.ndarray[Any, Any]]) -> Any:
    """Return ``value`` as JSON-able values; arrays move to ``tensors`` under their path."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
            raise TypeError(f"state at '{path}' must be of a real dtype, got {value.dtype}")
        name = path if path not in tensors else f"{path}#{len(tensors)}"  # "a.b" and "a" -> "b"
        tensors[name] = np.asarray(value, order="C")
        return {TENSOR_KEY: name}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        if TENSOR_KEY in value or not all(isinstance(k, str) for k in value):
            raise TypeError(f"the keys of the state at '{path}' must be text, not '{TENSOR_KEY}'")
        return {k: _pack(v, f"{path}.{k}" if path else k, tensors) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_pack(v, f"{path}.{i}", tensors) for i, v in enumerate(value)]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"state at '{path}' must be an array or a plain value, got {type(value)}")


def _unpack(value: Any, tensors: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, dict):
        if set(value) == {TENSOR_KEY}:
            return tensors[value[TENSOR_KEY]]
        return {k: _unpack(v, tensors) for k, v in value.items()}
    if isinstance(value, list):
        return [_unpack(v, tensors) for v in value]
    return value


def save(algorithm: Algorithm, path: str | Path) -> None:
    """Write a checkpoint of ``algorithm`` to ``path``; folders are made as needed.

    Raises:
        OSError: the file cannot be written; an older one at ``path`` is intact.
    """
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    state = {
        "clock": algorithm.clock.state_dict(),
        "streams": algorithm.streams.state_dict(),
        "callbacks": algorithm.callbacks.state_dict(),
        "algorithm": algorithm.state_dict(),
    }
    manifest = {
        "format_version": FORMAT_VERSION,
        "versions": installed_versions(),
        "name": algorithm.name,
        "config": algorithm.config.to_dict(),
        "env_id": env_id_of(algorithm.env_source),
        "state": _pack(state, "", tensors),
    }
    data = safetensors_bytes(tensors, metadata={"rlox": json.dumps(manifest)})
    _write_atomically(Path(path), data)


def _write_atomically(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read(path: str | Path) -> dict[str, Any]:
    """Return a checkpoint's manifest, its ``state`` with the arrays in place.

    Raises:
        CheckpointError: the file is missing, damaged, no rlox checkpoint, or too new.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"checkpoint '{path}' does not exist")
    try:
        with safe_open(path, framework="numpy") as file:
            manifest: dict[str, Any] = json.loads((file.metadata() or {})["rlox"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        version = manifest["format_version"]
        if type(version) is not int or version < 1:
            raise CheckpointError(
                f"checkpoint '{path}' has the format version {version!r}, expected an integer"
            )
        if version > FORMAT_VERSION:
            raise CheckpointError(
                f"checkpoint '{path}' has format version {version}, this rlox reads up to "
                f"{FORMAT_VERSION}; upgrade rlox"
            )
        while version < FORMAT_VERSION:
            manifest = MIGRATIONS[version](manifest)
            version = manifest["format_version"]
        manifest["state"] = _unpack(manifest["state"], tensors)
    except CheckpointError:
        raise
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError, OSError) as error:
        raise CheckpointError(f"'{path}' is no rlox checkpoint or is damaged: {error}") from None
    return manifest


def _env_id(manifest: Mapping[str, Any], path: str | Path) -> str:
    env_id = manifest.get("env_id")
    if env_id is None:
        raise CheckpointError(
            f"checkpoint '{path}' was trained on an env without an id; pass it as env_id="
        )
    # gymnasium imports the module of an id "module:name", and a file must not say what is imported
    if not isinstance(env_id, str) or ":" in env_id:
        raise CheckpointError(
            f"checkpoint '{path}' names the env {env_id!r}, which would import a module; pass it "
            "as env_id= if you trust it"
        )
    return env_id


_MISFITS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What a hostile config or state may raise."""


def load(
    cls: type[AlgorithmT], path: str | Path, env: Any, arguments: Mapping[str, Any]
) -> AlgorithmT:
    """Restore an algorithm; see :meth:`rlox.Algorithm.from_checkpoint`."""
    manifest = read(path)
    if manifest.get("name") != cls.name:
        raise CheckpointError(
            f"checkpoint '{path}' holds the algorithm '{manifest.get('name')}', not '{cls.name}'"
        )
    env = _env_id(manifest, path) if env is None else env
    try:
        config = cls.config_class(**manifest["config"])
    except _MISFITS as error:
        raise CheckpointError(f"checkpoint '{path}' holds no valid config: {error}") from None
    build: Any = cls
    algorithm = build(env, config=config, **arguments)
    try:
        state = manifest["state"]
        algorithm.clock.load_state_dict(state["clock"])
        algorithm.streams.load_state_dict(state["streams"])
        algorithm.load_state_dict(state["algorithm"])
        algorithm.callbacks.load_state_dict(state["callbacks"])
    except _MISFITS as error:
        raise CheckpointError(
            f"checkpoint '{path}' does not fit: {type(error).__name__}: {error}"
        ) from error
    return algorithm  # type: ignore[no-any-return]
