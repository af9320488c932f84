"""Algorithms restored from checkpoints to act."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlox import registry
from rlox.cli.runs.folder import RunFolder
from rlox.cli.runs.parts import is_code, load_parts
from rlox.errors import ConfigError
from rlox.training import checkpoint

if TYPE_CHECKING:
    from rlox.algorithm import Algorithm

__all__ = ["parts_of_run", "restore"]


def restore(path: Path, env: str | None, parts: Mapping[str, str]) -> Algorithm:
    """Return the algorithm in a checkpoint.

    Args:
        path: the checkpoint.
        env: id of the env; ``None`` takes the one trained on.
        parts: names of what it is given, which win over those of the run folder that the
            checkpoint lies in.

    Raises:
        CheckpointError: the file is damaged or does not fit.
    """
    manifest = checkpoint.read(path)
    algorithm_class: type[Algorithm] = registry.algorithm_class(str(manifest.get("name")))
    texts = {**parts_of_run(path), **parts}
    if registry.spec(algorithm_class.name).env:
        texts.pop("dataset", None)  # it acts without what it learnt from
    given = {**_in_place_of_own(manifest), **load_parts(texts)}
    return algorithm_class.from_checkpoint(path, env_id=env, **given)


def _in_place_of_own(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments in the place of a replay buffer and noise that only training needs."""
    config, own = manifest.get("config"), manifest.get("own_parts")
    if not isinstance(config, dict) or not isinstance(own, dict):
        return {}
    names = {name: config[name] for name in ("buffer", "exploration") if name in own}
    return {**names, "save_replay_buffer": False} if "buffer" in names else names


def parts_of_run(checkpoint: Path) -> dict[str, str]:
    """Return the names of the parts that a checkpoint's algorithm was made with, without code.

    They are in the record of the run folder that the checkpoint lies in; one that lies elsewhere
    has none.
    """
    folder = RunFolder(checkpoint.absolute().parent.parent)
    try:
        record = folder.read()
    except ConfigError:
        return {}
    options = record.get("options")
    parts = options.get("parts") if isinstance(options, dict) else None
    known = parts.items() if isinstance(parts, dict) else ()
    return {str(k): str(v) for k, v in known if not is_code(str(k))}
