"""Algorithms restored from checkpoints to act."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rlox import registry
from rlox.cli.runs.folder import parts_of_run
from rlox.cli.runs.parts import load_parts
from rlox.training import checkpoint

if TYPE_CHECKING:
    from rlox.algorithm import Algorithm

__all__ = ["restore"]


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
    texts = dict(parts)
    if not registry.spec(algorithm_class.name).env:  # others act without what they learnt from
        texts = {**parts_of_run(path), **texts}
    return algorithm_class.from_checkpoint(path, env_id=env, **load_parts(texts))
