"""Checkpoints: writer and reader.

A checkpoint is one safetensors file: the arrays are its tensors, and its metadata holds a JSON
manifest with the format version, the versions of the distributions, the algorithm's name, its
config, its env id and the tree of its state, in which each array is replaced by its tensor's name.
The rows of a large buffer are in segment files in the folder ``segments`` next to it, and the
manifest has their digests. A digest stored with the manifest detects a damaged file. A checkpoint
holds no code: reading one unpickles, imports and evaluates nothing, and builds nothing larger than
the files' contents.

A file is written next to its target, synced and renamed, so that a crash leaves the old or the new
checkpoint, never half of one. Segments are durable before a checkpoint refers to them, and are
removed after the last checkpoint that does.
"""

from __future__ import annotations

import json
import logging
import platform
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as safetensors_bytes

from rlox.config.composition import local_options
from rlox.config.model import Config
from rlox.envs.make import env_id_of
from rlox.errors import MISFITS, CheckpointError, ConfigError, MemoryLimitError
from rlox.files import require_memory_for, write_atomically
from rlox.ranks import RANKS, own_rank
from rlox.training.hooks import Trainable, unit_of
from rlox.training.parts_of_ranks import (
    begins_anew,
    difference_of_ranks,
    goes_on_exactly,
    leave_to_rank_0,
    parts_for,
    require_parts,
    state_of,
    state_of_this_rank,
)
from rlox.training.segments import (
    Arrays,
    SavedBuffer,
    SegmentFolder,
    digest_of,
    pack,
    remove_unused,
    require_like,
    segment_reader,
    segments_of,
    unpack,
    with_tensors,
    writing_segments,
)

_LOG = logging.getLogger("rlox")

FORMAT_VERSION = 3

TrainableT = TypeVar("TrainableT", bound="Trainable")


def save(algorithm: Trainable, path: str | Path) -> None:
    """Write a checkpoint of ``algorithm`` to ``path``; folders are made as needed.

    If ``path`` is a link, its target is written. Segments of large buffers go to the folder
    ``segments`` next to it, which the checkpoints of one folder share; segments that only an older
    checkpoint at ``path`` referred to are removed. With several ranks, rank 0 writes it, and the
    others write their parts next to it (:mod:`rlox.training.parts_of_ranks`).

    Raises:
        OSError: the file cannot be written, or ``path`` is not a regular file; an older checkpoint
            at ``path`` is intact.
    """
    path = Path(path)
    if leave_to_rank_0(algorithm):
        return
    folder = SegmentFolder(path)
    before = segments_of(path)
    state = state_of(algorithm)
    with folder.locked() if RANKS or _has_segments(state) else nullcontext():
        # the segments, then the file that refers to them
        tensors: Arrays = {}
        tree = pack(state, "", tensors, lambda buffer, name: buffer.write(folder, name))
        manifest = {
            "format_version": FORMAT_VERSION,
            "versions": installed_versions(),
            "name": algorithm.name,
            "config": local_options(type(algorithm.config), algorithm.config.to_dict()),
            "env_id": env_id_of(algorithm.env_source),
            **_own_code_of(algorithm),
            **parts_for(algorithm, path, tensors),
            **({"in_iteration": True} if algorithm.clock.in_iteration else {}),
            "state": tree,
        }
        text = json.dumps(manifest)
        metadata = {"rlox": text, "digest": digest_of(text, tensors)}
        write_atomically(path, safetensors_bytes(tensors, metadata=metadata))
    remove_unused(folder, before - segments_of(path))


def _has_segments(state: Any) -> bool:
    if isinstance(state, Mapping):
        return any(map(_has_segments, state.values()))
    return isinstance(state, SavedBuffer)


def read(path: str | Path) -> dict[str, Any]:
    """Return a checkpoint's manifest, with the arrays put into its ``state``.

    Raises:
        CheckpointError: the file is missing, damaged, not an rlox checkpoint, or too new.
    """
    return _read(Path(path), with_arrays=True)[0]


def steps_of(path: str | Path) -> int:
    """Return the number of steps at which a checkpoint was saved, without reading its arrays.

    Steps are in the training's unit, :attr:`rlox.training.Progress.unit`.

    Raises:
        CheckpointError: see :func:`read`.
    """
    manifest, _ = _read(Path(path), with_arrays=False)
    try:
        clock = manifest["state"]["clock"]
        steps = clock[unit_of(clock)]
        if type(steps) is not int or steps < 0:
            raise ValueError(f"{steps!r} steps")
        return steps
    except MISFITS as error:
        raise CheckpointError(f"checkpoint '{path}' has no count of steps: {error!r}") from None


def difference_in(path: str | Path, algorithm: Trainable) -> str | None:
    """Return why an algorithm does not continue exactly from its checkpoint.

    Returns:
        The reasons, or ``None`` if it does.

    Raises:
        CheckpointError: see :func:`read`.
    """
    manifest = _read(Path(path), with_arrays=False)[0]
    reasons = [difference_of_ranks(manifest) or ""]
    if begins_anew(state_of(algorithm)):
        reasons.append(
            "the checkpoint has no state from which these envs go on: new episodes begin, so that "
            "the result is not that of an uninterrupted run"
        )
    if "in_iteration" in manifest:
        reasons.append(
            "the checkpoint was saved within an iteration, which begins again, so that the result "
            "may not be that of an uninterrupted run"
        )
    return "; ".join(filter(None, reasons)) or None


MOST_TRIES = 5
"""Maximum number of attempts to read a checkpoint that its training keeps replacing."""


def _read(path: Path, *, with_arrays: bool) -> tuple[dict[str, Any], Arrays]:
    for _ in range(MOST_TRIES - 1):
        before = _version_of(path)
        try:
            return _read_once(path, with_arrays=with_arrays)
        except CheckpointError:
            if _version_of(path) == before:
                raise
    return _read_once(path, with_arrays=with_arrays)


def _version_of(path: Path) -> int | None:
    """Return a value that changes when the file is replaced."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def _read_once(path: Path, *, with_arrays: bool) -> tuple[dict[str, Any], Arrays]:
    if not path.is_file():
        folder = "is a folder; name a file in it, such as checkpoints/final.safetensors of a run"
        raise CheckpointError(
            f"checkpoint '{path}' {folder if path.is_dir() else 'does not exist'}"
        )
    try:
        if with_arrays:  # a sparse file may be larger than the memory
            size = path.stat().st_size
            require_memory_for("its arrays", None, size, "load it on a larger machine")
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            names = file.keys() if with_arrays else ()
            tensors = {name: file.get_tensor(name) for name in names}
        manifest = json.loads(metadata["rlox"])
        version = manifest["format_version"]
        if type(version) is not int or version != FORMAT_VERSION:
            newer = type(version) is int and version > FORMAT_VERSION
            raise CheckpointError(
                f"checkpoint '{path}' has format version {version!r}, this rlox reads "
                f"{FORMAT_VERSION}; {'upgrade rlox' if newer else 'train and save it again'}"
            )
        if with_arrays:
            if metadata["digest"] != digest_of(metadata["rlox"], tensors):
                raise ValueError("its contents have changed since it was written")
            require_parts(manifest, path)
            manifest["state"] = unpack(manifest["state"], tensors, segment_reader(path))
    except CheckpointError:
        raise
    except MemoryLimitError as error:
        raise CheckpointError(f"checkpoint '{path}' cannot be loaded: {error}") from None
    except (SafetensorError, *MISFITS, OSError) as error:
        raise CheckpointError(f"'{path}' is damaged or not an rlox checkpoint: {error}") from None
    return manifest, tensors


def _env_id(manifest: Mapping[str, Any], path: str | Path) -> str:
    env_id = manifest.get("env_id")
    if env_id is None:
        raise CheckpointError(
            f"checkpoint '{path}' was trained on an env that no id alone makes; pass it as env_id= "
            "(--env)"
        )
    # gymnasium imports the module of an id "module:name", and a file must not choose imports
    if not isinstance(env_id, str) or ":" in env_id:
        raise CheckpointError(
            f"checkpoint '{path}' names the env {env_id!r}, which would import a module; pass it "
            "as env_id= (--env) if you trust it"
        )
    return env_id


ALWAYS_BUILT = 256
"""Number of envs, units in a layer and so on that any checkpoint may ask for."""


def _require_sizes(config: Config, values: int, path: str | Path) -> None:
    """Refuse a config with larger envs and layers than a file of ``values`` numbers supports.

    A checkpoint holds at least one number per env, or per number of an observation, and a square of
    weights per layer, so a genuine one passes. One that asks for a huge network or a million envs
    is refused before anything is built.
    """
    for name, field in type(config).model_fields.items():
        extra = field.json_schema_extra
        unit = extra.get("unit") if isinstance(extra, dict) else None
        size = getattr(config, name)
        if unit not in ("envs", "numbers", "units") or not isinstance(size, int):
            continue
        if size > ALWAYS_BUILT and (size**2 if unit == "units" else size) > values:
            raise CheckpointError(
                f"checkpoint '{path}' has {name} = {size} but holds {values} numbers, fewer than "
                "that takes; it is not loaded"
            )


def load(
    cls: type[TrainableT], path: str | Path, env: Any, arguments: Mapping[str, Any]
) -> TrainableT:
    """Restore an algorithm; see :meth:`rlox.Algorithm.from_checkpoint`."""
    if "config" in arguments:
        raise ConfigError("a checkpoint brings its own config; pass the options to change by name")
    if cls.env_required and "env" in arguments:
        raise ConfigError(f"from_checkpoint takes env_id=..., got env={arguments['env']!r}")
    manifest, tensors = _read(path := Path(path), with_arrays=True)
    if manifest.get("name") != cls.name:
        raise CheckpointError(
            f"checkpoint '{path}' holds the algorithm '{manifest.get('name')}', not '{cls.name}'"
        )
    if env is None and (cls.env_required or manifest.get("env_id") is not None):
        env = arguments.get("env_fn") or _env_id(manifest, path)
    try:
        # a file must not choose machines to connect to
        config = cls.config_class(**local_options(cls.config_class, manifest["config"]))
    except MISFITS as error:
        raise CheckpointError(f"checkpoint '{path}' holds no valid config: {error}") from None
    _require_sizes(config, sum(array.size for array in tensors.values()), path)
    constructor: Any = cls
    build = partial(constructor, config=config, **arguments)
    by_keyword = {} if env is None else {"env": env}  # not every constructor has an env
    try:
        algorithm = build(env) if cls.env_required else build(**by_keyword)
    except MemoryError as error:
        raise CheckpointError(f"checkpoint '{path}' cannot be loaded: {error}") from None
    try:
        _require_own_code(manifest, algorithm)
        state = state_of_this_rank(manifest, tensors, path)
        with writing_segments():  # without the contents of buffers
            require_like(state["algorithm"], fresh := algorithm.state_dict())
        algorithm.clock.load_state_dict(state["clock"])
        if "seed" not in arguments or arguments["seed"] == state["streams"]["seed"]:
            algorithm.streams.load_state_dict(state["streams"], own=goes_on_exactly(manifest))
        algorithm.load_state_dict(with_tensors(state["algorithm"], fresh))
        algorithm.callbacks.load_state_dict(state["callbacks"])
    except MISFITS as error:
        reason = str(error) if isinstance(error, CheckpointError) else repr(error)
        saved = manifest.get("env_id")
        other = f" (it was saved on the env {saved!r}, not {env!r})" if saved != env else ""
        algorithm.close()
        raise CheckpointError(f"checkpoint '{path}' does not fit{other}: {reason}") from error
    if (difference := difference_of_ranks(manifest)) and not own_rank():
        _LOG.warning("checkpoint '%s' goes on otherwise: %s", path, difference)
    return algorithm  # type: ignore[no-any-return]


def _own_code_of(algorithm: Trainable) -> dict[str, Any]:
    """Return the names of a user's own losses and parts, whose code is not saved."""
    own, parts = algorithm.own_objective, algorithm.own_parts.items()
    named: dict[str, Any] = {
        "objective": None if own is None else type(own).__name__,
        "added_losses": algorithm.added_losses.names,
        "own_parts": {k: type(part).__name__ for k, part in parts if not isinstance(part, str)},
    }
    return {name: value for name, value in named.items() if value}


def _require_own_code(manifest: Mapping[str, Any], algorithm: Trainable) -> None:
    """Refuse an algorithm whose loss differs from the checkpoint's, or that lacks its parts.

    The user may replace a part by another object or a registered name.

    Raises:
        CheckpointError: an objective or an added loss is missing or new, or nothing was passed for
            a part of the user's own.
    """
    saved, present = manifest.get("objective"), _own_code_of(algorithm).get("objective")
    if saved != present:
        raise CheckpointError(
            f"it was trained with {_named(saved)}, got {_named(present)}; pass the same as "
            "objective="
        )
    algorithm.added_losses.require_same(manifest.get("added_losses", []))
    for argument, name in manifest.get("own_parts", {}).items():
        if argument not in algorithm.own_parts:
            raise CheckpointError(
                f"it was trained with your own {name} as {argument}; pass one again as "
                f"{argument}=, or a registered name to go on with that"
            )


def _named(objective: str | None) -> str:
    return f"the objective {objective}" if objective else "the algorithm's own objective"


@cache  # the metadata of hundreds of distributions takes a tenth of a second to read
def installed_versions() -> dict[str, str]:
    """Return the versions of Python, every rlox distribution, and libraries that affect results."""
    found = {"python": platform.python_version()}
    for distribution in metadata.distributions():
        name = distribution.name or ""
        if name.startswith("rlox") or name in ("torch", "numpy", "gymnasium"):
            found[name] = distribution.version
    return dict(sorted(found.items()))
