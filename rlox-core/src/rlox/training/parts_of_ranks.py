"""Parts of checkpoints that ranks above 0 save next to rank 0's.

Rank 0 writes the checkpoint. Each other rank then writes its random streams, envs, buffers and
everything else that differs from rank 0's into segment files next to it, which the checkpoint
lists. The same number of ranks thus continues exactly; another number begins new episodes.

During training rank 0 decides when to save, at an iteration's end, and asks the others
(:func:`agree_on_end`). Outside of training all ranks call ``save``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlox.errors import CheckpointError, WorkerLostError
from rlox.ranks import RANKS, Ranks, own_rank
from rlox.training.hooks import Trainable
from rlox.training.segments import (
    SEGMENTS_KEY,
    Arrays,
    SegmentFolder,
    digest_of,
    files_in,
    pack,
    segment_reader,
    unpack,
    writing_segments,
)

_LOG = logging.getLogger("rlox")

SAVING = 2**20
"""Sent by rank 0 instead of its wish to stop, 0 or 1, to have the others write their parts."""


def state_of(algorithm: Trainable) -> dict[str, Any]:
    """Return this process's state for a checkpoint, with buffers instead of their contents."""
    with writing_segments():
        return {
            "clock": algorithm.clock.state_dict(),
            "streams": algorithm.streams.state_dict(),
            "callbacks": algorithm.callbacks.state_dict(),
            "algorithm": algorithm.state_dict(),
        }


@contextmanager
def saving(how: str) -> Iterator[None]:
    """Set :attr:`rlox.ranks.Ranks.saving` within the block."""
    before = [ranks.saving for ranks in RANKS]
    for ranks in RANKS:
        ranks.saving = how
    try:
        yield
    finally:
        for ranks, was in zip(RANKS, before, strict=True):
            ranks.saving = was


def agree_on_end(ranks: Ranks, algorithm: Trainable, wish: bool) -> bool:
    """Save whenever rank 0 asks for it, then return whether a rank wishes to end.

    Raises:
        WorkerLostError: another rank has gone, or does not answer.
        OSError: this rank's part cannot be written.
    """
    while (said := ranks.total(wish, "the end of the training")) >= SAVING:
        _write_part(algorithm, ranks)
    return said > 0


def leave_to_rank_0(algorithm: Trainable) -> bool:
    """Write this rank's part if all ranks save; return whether rank 0 writes the checkpoint.

    Raises:
        WorkerLostError: rank 0 has gone, or does not save.
        OSError: the part cannot be written.
    """
    for ranks in RANKS:
        if ranks.rank and ranks.saving == "together" and algorithm.streams.is_spread:
            _write_part(algorithm, ranks)
    return own_rank() > 0


def parts_for(algorithm: Trainable, path: Path, tensors: Arrays) -> dict[str, Any]:
    """Have the other ranks write their parts, and return their list for the checkpoint.

    Args:
        algorithm: of rank 0, or of the only process.
        path: of the checkpoint, in a folder that all ranks see.
        tensors: of rank 0; the others do not write these again.

    Raises:
        OSError: a part cannot be written.
    """
    for ranks in RANKS:
        said: dict[str, Any] = {"n_ranks": ranks.size}
        if ranks.saving == "alone" or not algorithm.streams.is_spread:
            return said
        digests = {name: digest_of(name, {name: array}) for name, array in tensors.items()}
        asked = {"checkpoint": str(path.absolute()), "digests": digests}
        try:
            if ranks.saving == "asked":
                ranks.total(SAVING, "a checkpoint")
            ranks.gather_text(json.dumps(asked), "a checkpoint")
            answers = ranks.gather_text("", "a checkpoint")
        except WorkerLostError as error:  # a part of it is better than nothing
            _LOG.warning("the checkpoint '%s' holds rank 0 alone: %s", path, error)
            return said
        parts = [json.loads(answer) for answer in answers[1:]]
        for rank, part in enumerate(parts, 1):
            if "error" in part:
                raise OSError(f"rank {rank} cannot write its part of '{path}': {part['error']}")
        return {**said, "parts": [{SEGMENTS_KEY: part} for part in parts]}
    return {}


def _write_part(algorithm: Trainable, ranks: Ranks) -> None:
    """Write the state that only this rank has, and report the files to rank 0.

    Raises:
        OSError: a file cannot be written; rank 0 gets the reason.
    """
    asked = json.loads(ranks.gather_text("", "a checkpoint")[0])
    folder = SegmentFolder(Path(asked["checkpoint"]))
    state, tensors, listed = state_of(algorithm), Arrays(), list[list[Any]]()
    del state["clock"]  # shared by all ranks
    error: OSError | None = None
    try:
        with folder.locked():
            tree = pack(state, "", tensors, lambda buffer, name: buffer.write(folder, name))
            known = asked["digests"]
            own = {k: v for k, v in tensors.items() if digest_of(k, {k: v}) != known.get(k)}
            text = json.dumps(tree)
            listed = [list(folder.write(own, {"part": text})), *files_in(tree)]
            folder.sync()
    except OSError as caught:
        error = caught
    answer = {"files": listed} if error is None else {"error": str(error)}
    ranks.gather_text(json.dumps(answer), "a checkpoint")
    if error is not None:
        raise error


def goes_on_exactly(manifest: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint has a part for every rank of this training."""
    size = RANKS[0].size if RANKS else 1
    saved, parts = manifest.get("n_ranks", 1), manifest.get("parts", [])
    return bool(saved == size == 1 + len(parts))


def difference_of_ranks(manifest: Mapping[str, Any]) -> str | None:
    """Return how the ranks keep a training from continuing exactly; ``None`` if they do not."""
    if goes_on_exactly(manifest):
        return None
    saved, size = manifest.get("n_ranks", 1), RANKS[0].size if RANKS else 1
    if saved == size:
        return (
            f"it holds the part of rank 0 of {saved} alone, as others were not asked: they begin "
            "new episodes"
        )
    return (
        f"it was saved by {_many(saved)} and goes on with {_many(size)}: ranks above 0 begin new "
        "episodes, with streams of their own"
    )


def _many(size: Any) -> str:
    return "1 rank" if size == 1 else f"{size} ranks"


def require_parts(manifest: Mapping[str, Any], path: Path) -> None:
    """Check all ranks' parts of a checkpoint, on every rank, if they are going to be read.

    Raises:
        CheckpointError: a file is missing or damaged; the text names it.
    """
    if not goes_on_exactly(manifest):
        return
    folder = SegmentFolder(path)
    for part in manifest.get("parts", []):
        for digest, size in part[SEGMENTS_KEY]["files"]:
            folder.require(digest, size)


def state_of_this_rank(
    manifest: Mapping[str, Any], tensors: Arrays, path: Path
) -> Mapping[str, Any]:
    """Return the state from which this process continues.

    Args:
        manifest: of the checkpoint, its state unpacked.
        tensors: of the checkpoint.
        path: its path.

    Raises:
        CheckpointError: this rank's part is missing or damaged.
    """
    state: Mapping[str, Any] = manifest["state"]
    rank = own_rank()
    if not rank:
        return state
    if not goes_on_exactly(manifest):
        return {**state, "algorithm": _without_envs(state["algorithm"])}
    digest, size = manifest["parts"][rank - 1][SEGMENTS_KEY]["files"][0]
    metadata, own = SegmentFolder(path).read_with_metadata(digest, size)
    if "part" not in metadata:
        raise CheckpointError(f"checkpoint '{path}' lists a segment that is not part of a rank")
    found = unpack(json.loads(metadata["part"]), {**tensors, **own}, segment_reader(path))
    return {**found, "clock": state["clock"]}


OF_ENVS = {"started", "env"}
"""Keys that only the state of envs has."""


def begins_anew(state: Any) -> bool:
    """Return whether a state has envs that had started but whose own state is missing."""
    if not isinstance(state, Mapping):
        return isinstance(state, list) and any(map(begins_anew, state))
    if state.keys() >= OF_ENVS:
        return bool(state["started"] and state["env"] is None)
    return any(map(begins_anew, state.values()))


def _without_envs(state: Any) -> Any:
    """Drop the envs' state, so that they begin new episodes when it is loaded."""
    if isinstance(state, Mapping):
        of_envs = state.keys() >= OF_ENVS
        kept = {name: _without_envs(value) for name, value in state.items()}
        return {**kept, "env": None} if of_envs else kept
    return [_without_envs(each) for each in state] if isinstance(state, list) else state
