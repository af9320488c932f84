"""Segments and state trees, the contents of a checkpoint.

A segment is a part of a large buffer in a file, named by the SHA-256 of its contents. Checkpoints
thus share unchanged parts, and damage is detected. Nothing is read or removed outside the folder
``segments`` next to a checkpoint, and no link is followed.

A segment has the rows of a fixed range of slots, so that a ring's segments do not change until
they are overwritten. A save copies, digests and writes the segments with a row that changed since
the last save, and refers to the existing files of the others.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as arrays_of
from safetensors.numpy import save as safetensors_bytes

from rlox.errors import CheckpointError
from rlox.files import open_regular, remove_parts, sync_folder, target_of, write_atomically
from rlox.protocols import SegmentedBuffer, StatefulBuffer

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]


FOLDER = "segments"
SEGMENTS_KEY = "$segments"
"""Key of the list of segment files in a manifest's state tree."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_LARGEST_HEADER = 1 << 28

Arrays = dict[str, np.ndarray[Any, Any]]


class SegmentFolder:
    """The segment files of the checkpoints in one folder.

    Args:
        checkpoint: path of one of the checkpoints; if it is a link, the folder is next to its
            target.
    """

    def __init__(self, checkpoint: Path) -> None:
        self.path = target_of(checkpoint).parent / FOLDER

    def file(self, digest: str) -> Path:
        """Return the path of a segment.

        Raises:
            CheckpointError: ``digest`` is not a SHA-256, or the folder is a link.
        """
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise CheckpointError(f"a segment is named by a SHA-256, got {digest!r}")
        self._require_no_link()
        return self.path / f"{digest}.safetensors"

    def _require_no_link(self) -> None:
        if self.path.is_symlink():
            raise CheckpointError(
                f"the folder '{self.path}' is a link, which is not followed; move the folder itself"
            )

    def holds(self, digest: str, size: int) -> bool:
        """Return whether such a segment of ``size`` bytes exists; its contents are not read."""
        try:
            found = self.file(digest).lstat()
        except OSError:
            return False
        return stat.S_ISREG(found.st_mode) and found.st_size == size

    def write(self, arrays: Mapping[str, Any], about: Mapping[str, str]) -> tuple[str, int]:
        """Write a segment unless it already exists.

        It is durable once :meth:`sync` has been called.

        Args:
            arrays: by name.
            about: stored with them; segments that differ in it are different files.

        Returns:
            Its digest and its size in bytes.

        Raises:
            OSError: it cannot be written; no part of it is left.
        """
        ordered = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        data = safetensors_bytes(ordered, metadata=dict(about))
        digest = hashlib.sha256(data).hexdigest()
        path = self.file(digest)
        if not (self.holds(digest, len(data)) and path.read_bytes() == data):
            write_atomically(path, data, sync=False)
        return digest, len(data)

    def sync(self) -> None:
        """Make the names of the segments that were written durable."""
        if self.path.is_dir():
            sync_folder(self.path)

    def read(self, digest: str, size: int, about: Mapping[str, str]) -> Arrays:
        """Return a segment's arrays.

        Raises:
            CheckpointError: it is missing, damaged, another segment, or not a regular file; the
                message names the file.
        """
        metadata, arrays = self.read_with_metadata(digest, size)
        if metadata != dict(about):
            raise CheckpointError(
                f"segment '{self.file(digest)}' belongs to another place of a buffer"
            )
        return arrays

    def read_with_metadata(self, digest: str, size: int) -> tuple[dict[str, str], Arrays]:
        """Return a segment's metadata and arrays; see :meth:`read`."""
        data = self.require(digest, size)
        try:
            return metadata_of(data), dict(arrays_of(data))
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"file '{self.file(digest)}' is not a segment: {error}") from None

    def require(self, digest: str, size: int) -> bytes:
        """Return a segment's bytes after verifying them; see :meth:`read`."""
        path = self.file(digest)
        try:
            data = _read_regular(path, size)
        except FileNotFoundError:
            raise CheckpointError(
                f"segment '{path}' is missing; a checkpoint with a replay buffer, or of several "
                f"ranks, is moved together with the folder '{FOLDER}' next to it"
            ) from None
        except OSError as error:
            raise CheckpointError(f"segment '{path}' cannot be read: {error}") from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise CheckpointError(f"segment '{path}' is damaged, or another file in its place")
        return data

    @contextmanager
    def locked(self, *, to_remove: bool = False) -> Iterator[bool]:
        """Keep other processes and threads from removing segments while a checkpoint is written.

        Args:
            to_remove: exclude writers and removers instead of removers only.

        Yields:
            Whether the lock is held. A writer waits for it, and continues without it if the file
            system has no locks; a remover does neither.
        """
        self._require_no_link()
        held = True
        with ExitStack() as stack:
            if fcntl is not None:
                self.path.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context(open_regular(self.path / ".lock", "ab"))
                kind = fcntl.LOCK_EX | fcntl.LOCK_NB if to_remove else fcntl.LOCK_SH
                try:
                    fcntl.flock(file, kind)
                except OSError:
                    held = False
            yield held  # closing the file unlocks it


def _read_regular(path: Path, size: int) -> bytes:
    """Return the contents of a regular file of ``size`` bytes that is not a link."""
    if path.is_symlink():
        raise OSError(f"'{path}' is a link, which is not followed")
    with open_regular(path, "rb") as file:
        found = os.fstat(file.fileno()).st_size
        if found != size:
            raise OSError(f"expected {size} bytes, found {found}")
        return file.read()


def digest_of(text: str, arrays: Arrays) -> str:
    """Return the SHA-256 of a file's contents; it detects damage, not another author."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def metadata_of(data: bytes) -> dict[str, str]:
    """Return the metadata of a safetensors file from its bytes; the library only takes paths."""
    length = int.from_bytes(data[:8], "little")
    found = json.loads(data[8 : 8 + length])["__metadata__"]
    return dict(found)


def segments_of(checkpoint: Path) -> set[str]:
    """Return the digests of the segments that a checkpoint refers to.

    Only its header is read. A file that is not a checkpoint, or whose header is damaged, refers
    to none.
    """
    if not checkpoint.is_file():  # opening a pipe would wait for a writer
        return set()
    try:
        with open_regular(checkpoint, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= _LARGEST_HEADER:
                return set()
            header = json.loads(file.read(length))
        return {digest for digest, _ in files_in(json.loads(header["__metadata__"]["rlox"]))}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return set()


def files_in(tree: Any) -> Iterator[list[Any]]:
    """Yield digest and size of every segment that a manifest, or a part of one, lists."""
    if isinstance(tree, dict):
        if SEGMENTS_KEY in tree:
            yield from tree[SEGMENTS_KEY]["files"]
        tree = list(tree.values())
    if isinstance(tree, list):
        for branch in tree:
            yield from files_in(branch)


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint, and the segments that no other checkpoint in its folder refers to.

    A missing checkpoint is not an error; a link is removed and its target kept.
    """
    if path.is_symlink():
        path.unlink()
        return
    digests = segments_of(path)
    path.unlink(missing_ok=True)
    if digests:
        sync_folder(path.parent)  # a crash must not leave the checkpoint without its segments
        remove_unused(SegmentFolder(path), digests)


def remove_unused(folder: SegmentFolder, digests: Iterable[str]) -> None:
    """Remove the given segments that no checkpoint in the folder's parent refers to.

    If another process is saving there, the next call of :func:`remove_orphans` removes them.
    """
    unused = set(digests)
    if not unused or not folder.path.is_dir() or folder.path.is_symlink():
        return
    with folder.locked(to_remove=True) as alone:
        if not alone:
            return
        for other in folder.path.parent.iterdir():
            if other.is_file():
                unused -= segments_of(other)
        for digest in unused:
            if _DIGEST.fullmatch(digest):
                folder.file(digest).unlink(missing_ok=True)


def remove_orphans(checkpoints: Path) -> None:
    """Remove leftovers of killed processes in the folder of segments.

    Args:
        checkpoints: folder of checkpoints; it need not exist.
    """
    folder = SegmentFolder(checkpoints / "any")
    if not folder.path.is_dir() or folder.path.is_symlink():
        return
    remove_parts(folder.path)
    names = (path.name.removesuffix(".safetensors") for path in folder.path.iterdir())
    remove_unused(folder, [name for name in names if _DIGEST.fullmatch(name)])


SEGMENT_BYTES = 1 << 18
"""Approximate bytes of a segment, whose number of rows is a power of two."""

FEWEST_ROWS = 64
"""Minimum number of rows in a segment, so that large images do not get a file each."""

_writing: ContextVar[bool] = ContextVar("writing_segments", default=False)


@contextmanager
def writing_segments() -> Iterator[None]:
    """Let :meth:`SavedBuffer.state` return the buffer instead of a copy of its contents."""
    token = _writing.set(True)
    try:
        yield
    finally:
        _writing.reset(token)


class SavedBuffer:
    """A buffer for checkpoints, with a record of the rows that the last ones have.

    An algorithm keeps one for each buffer and puts :meth:`state` into its ``state_dict``.

    Args:
        buffer: saved in segments if it is a :class:`rlox.protocols.SegmentedBuffer`, else whole.
    """

    def __init__(self, buffer: StatefulBuffer) -> None:
        self.buffer: Any = buffer
        self._segmented = isinstance(buffer, SegmentedBuffer)
        self._mark = 0
        self._rows_per_file = 0
        self._files: list[tuple[str, int]] = []
        """Digest and size in bytes of every segment at the mark."""
        self._written: set[tuple[Path, str]] = set()
        """Folders and digests of the segments that this object has written."""

    def state(self) -> Any:
        """Return a copy of the buffer's state, or this object while a checkpoint is written."""
        return self if self._segmented and _writing.get() else self.buffer.state()

    def write(self, folder: SegmentFolder, name: str) -> dict[str, Any]:
        """Write the segments that changed since the last call, and return the list of all segments.

        Args:
            folder: segments missing there are written too.
            name: of the buffer in the state; stored in every segment.

        Raises:
            OSError: a segment cannot be written; a later call writes it.
        """
        mark, rows, changed = self.buffer.changed_rows(self._mark)
        if not self._rows_per_file and rows:
            self._rows_per_file = rows_per_file(self.buffer.rows(0, 1))
        size = self._rows_per_file or FEWEST_ROWS
        count = max(-(-rows // size), 1)
        stale = _stale(changed, size, count)
        stale[len(self._files) :] = True
        files = []
        for k in range(count):
            known = None if stale[k] else self._files[k]
            if (
                known is None
                or (folder.path, known[0]) not in self._written
                or not folder.holds(*known)
            ):
                arrays = self.buffer.rows(k * size, min((k + 1) * size, rows))
                known = folder.write(arrays, _about(name, k * size))
                self._written.add((folder.path, known[0]))
            files.append(known)
        folder.sync()
        dropped = {digest for digest, _ in self._files} - {digest for digest, _ in files}
        self._written = {pair for pair in self._written if pair[1] not in dropped}
        if rows:  # the segment of an empty buffer is not reused later
            self._mark, self._files = mark, files
        return {"rows": rows, "rows_per_file": size, "files": [list(file) for file in files]}


def rows_per_file(row: Mapping[str, Any]) -> int:
    """Return the number of rows of a segment, from the arrays (1, ...) of one row."""
    size = max(sum(np.asarray(array).nbytes for array in row.values()), 1)
    return max(1 << max((SEGMENT_BYTES // size).bit_length() - 1, 0), FEWEST_ROWS)


def _stale(changed: Any, size: int, count: int) -> np.ndarray[Any, Any]:
    """Find those of ``count`` segments with a row in the ranges (M, 2) of changed slots."""
    ranges = np.asarray(changed, np.int64).reshape(-1, 2)
    ranges = ranges[ranges[:, 0] < ranges[:, 1]]
    ends = np.zeros(count + 1, np.int64)
    np.add.at(ends, np.minimum(ranges[:, 0] // size, count), 1)
    np.add.at(ends, np.minimum((ranges[:, 1] - 1) // size + 1, count), -1)
    return np.asarray(np.cumsum(ends[:-1]) > 0)


def _about(name: str, first: int) -> dict[str, str]:
    # one key: safetensors writes several in any order, and equal segments must be equal files
    return {"rows": f"{name} from {first}"}


def segment_reader(checkpoint: Path) -> Callable[[Mapping[str, Any], str], Arrays]:
    """Return a function that reads the rows of a checkpoint's buffers.

    It takes the result of :meth:`SavedBuffer.write`, and the name of the buffer in the state. It
    raises a CheckpointError that names the file if a segment is missing, damaged or of another
    buffer, and a ValueError if its argument is not such a list. Every segment is read once, so
    that a short list cannot fill the memory.
    """
    folder, seen = SegmentFolder(checkpoint), set[str]()

    def read(node: Mapping[str, Any], name: str) -> Arrays:
        digests = [digest for digest, _ in node["files"]]
        if len(set(digests)) < len(digests) or seen & set(digests):
            raise CheckpointError(f"checkpoint '{checkpoint}' lists a segment twice")
        seen.update(digests)
        return _rows(node, folder, name)

    return read


def _rows(node: Mapping[str, Any], folder: SegmentFolder, name: str) -> Arrays:
    rows, size, files = node["rows"], node["rows_per_file"], node["files"]
    if type(rows) is not int or type(size) is not int or rows < 0 or size < 1:
        raise ValueError(f"'{SEGMENTS_KEY}' has {rows!r} rows in files of {size!r}")
    if len(files) != max(-(-rows // size), 1):
        raise ValueError(f"{rows} rows in files of {size} do not make {len(files)} files")
    parts: list[Arrays] = []
    for k, (digest, n_bytes) in enumerate(files):
        part = folder.read(digest, n_bytes, _about(name, k * size))
        expected = min(size, rows - k * size)
        fits = all(array.ndim and len(array) == expected for array in part.values())
        if not fits or _kinds(part) != _kinds(parts[0] if parts else part):
            raise CheckpointError(
                f"segment '{folder.file(digest)}' must hold {expected} rows like those of the "
                "others"
            )
        parts.append(part)
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _kinds(part: Arrays) -> dict[str, Any]:
    return {key: (array.dtype, array.shape[1:]) for key, array in part.items()}


TENSOR_KEY = "$tensor"
REST_KEY = "$rest"

WriteBuffer = Callable[[SavedBuffer, str], dict[str, Any]]
ReadBuffer = Callable[[Mapping[str, Any], str], Arrays]


def pack(value: Any, path: str, tensors: Arrays, write: WriteBuffer | None = None) -> Any:
    """Return a state as values for JSON.

    Args:
        value: the state.
        path: its place in the whole state.
        tensors: gets the arrays, under their paths.
        write: writes the segments of a buffer, given its path, and returns their list.

    Raises:
        TypeError: a value is neither an array of real numbers nor a plain value.
    """
    if hasattr(value, "detach"):  # a torch tensor; torch is not imported here
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
            raise TypeError(f"state at '{path}' must be of a real dtype, got {value.dtype}")
        name = path if path not in tensors else f"{path}#{len(tensors)}"  # "a.b" and "a" -> "b"
        tensors[name] = np.asarray(value, order="C")
        return {TENSOR_KEY: name}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, SavedBuffer) and write is not None:
        listed = write(value, path)
        return {SEGMENTS_KEY: listed, REST_KEY: pack(value.buffer.rest(), path, tensors)}
    if isinstance(value, Mapping):
        if {TENSOR_KEY, SEGMENTS_KEY} & value.keys() or not all(isinstance(k, str) for k in value):
            raise TypeError(f"the keys of the state at '{path}' must be text, not '{TENSOR_KEY}'")
        return {k: pack(v, f"{path}.{k}" if path else k, tensors, write) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [pack(v, f"{path}.{i}", tensors, write) for i, v in enumerate(value)]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"state at '{path}' must be an array or a plain value, got {type(value)}")


NOT_NEGATIVE = ("count", "exp_avg_sq", "square_avg", "step", "variance")
"""Names of arrays of counts and of means of squares."""

BESIDE = {"exp_avg", "mean", "square_avg"}
"""Sibling names: one of them is in states of optimisers and moments, but none in modules'."""

MAY_BE_INFINITE = ("env", "obs")
"""Names that may hold infinities: the env's own state, and observations."""

LARGEST_COUNT = 2**53
"""Largest count that floating point represents exactly."""


def require_like(saved: Any, fresh: Any, path: str = "algorithm") -> None:
    """Refuse a saved state whose arrays and counts differ in kind from a fresh one's.

    Args:
        saved: the result of :func:`unpack`.
        fresh: the state of a new object of the same kind; entries that it lacks are not compared.
        path: the place of both in the whole state.

    Raises:
        CheckpointError: an array has another dtype or is not finite where the fresh one is, or a
            count is negative or not an integer.
    """
    if isinstance(saved, list):
        saved, fresh = dict(enumerate(saved)), None
    if hasattr(fresh, "detach"):
        fresh = fresh.detach().cpu().numpy()
    if isinstance(saved, Mapping) and not isinstance(fresh, SavedBuffer):
        known = fresh if isinstance(fresh, Mapping) else {}
        for key, value in saved.items():
            if key not in MAY_BE_INFINITE:
                require_like(value, known.get(key), f"{path}.{key}")
            most = LARGEST_COUNT if key in ("count", "step") else np.inf
            counts = key in NOT_NEGATIVE and BESIDE & saved.keys() and isinstance(value, np.ndarray)
            if counts and not np.all((value >= 0) & (value <= most)):
                raise CheckpointError(f"'{path}.{key}' must lie in [0, {most}]")
    elif isinstance(saved, np.ndarray):
        if isinstance(fresh, np.ndarray) and saved.dtype != fresh.dtype:
            raise CheckpointError(f"'{path}' is of dtype {saved.dtype}, expected {fresh.dtype}")
        if saved.dtype.kind == "f":
            # squares of huge rewards are infinite without stopping the training
            is_square = path.rpartition(".")[2] in NOT_NEGATIVE
            odd = np.isnan(saved) if is_square else ~np.isfinite(saved)
            alike = isinstance(fresh, np.ndarray) and fresh.shape == saved.shape
            if odd.any() and not (alike and np.array_equal(saved[odd], fresh[odd], equal_nan=True)):
                raise CheckpointError(f"'{path}' is not finite")
    elif type(fresh) is int and fresh >= 0 and (type(saved) is not int or saved < 0):
        raise CheckpointError(f"'{path}' must be an integer of at least 0, got {saved!r}")


def with_tensors(saved: Any, fresh: Any) -> Any:
    """Return a saved state with tensors where a fresh one has them, on the same devices."""
    if isinstance(saved, Mapping) and isinstance(fresh, Mapping):
        return {key: with_tensors(value, fresh.get(key)) for key, value in saved.items()}
    return fresh.new_tensor(saved) if hasattr(fresh, "new_tensor") else saved


def unpack(value: Any, tensors: Arrays, read: ReadBuffer | None = None, path: str = "") -> Any:
    """Return the state that was given to :func:`pack`, buffers as the dict of their state.

    Args:
        value: the result of :func:`pack`.
        tensors: the arrays.
        read: reads the segments of a list, given the buffer's path.
        path: the place of ``value`` in the whole state.
    """
    if isinstance(value, dict):
        if set(value) == {TENSOR_KEY}:
            return tensors[value[TENSOR_KEY]]
        if read is not None and set(value) == {SEGMENTS_KEY, REST_KEY}:
            rest = unpack(value[REST_KEY], tensors)
            return {**rest, **read(value[SEGMENTS_KEY], path)}
        return {k: unpack(v, tensors, read, f"{path}.{k}" if path else k) for k, v in value.items()}
    if isinstance(value, list):
        return [unpack(v, tensors, read, f"{path}.{i}") for i, v in enumerate(value)]
    return value
