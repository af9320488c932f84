"""Tests of :mod:`rlox.files`: regular files, folders without links."""

from __future__ import annotations

import ast
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import rlox.algorithms
from rlox.errors import ConfigError
from rlox.files import open_regular, read_text, require_plain_folder
from rlox.files.opening import ByteMode, TextMode
from rlox.logging import CsvLogger, JsonlLogger
from rlox.registry import resolve

PACKAGES = sorted(Path(__file__).parents[2].glob("rlox-*/src/*/"))
WRITERS = {"write_text", "write_bytes", "touch"}
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="named pipes")

ALLOWED = {
    "rlox/cli/__init__.py",  # the null device
    "rlox/envs/workers/arena.py",  # descriptors
    "rlox/files/atomic.py",
    "rlox/files/opening.py",
}


@pytest.mark.parametrize("mode", ["w", "wb", "a", "ab", "r+b"])
def test_a_link_is_not_written_through(tmp_path: Path, mode: TextMode | ByteMode) -> None:
    """Neither emptied nor changed."""
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("kept")
    link.symlink_to(target)
    with pytest.raises(OSError, match="is a link, which is not written through"):
        open_regular(link, mode)  # type: ignore[call-overload]
    assert target.read_text() == "kept"


def test_a_link_is_read(tmp_path: Path) -> None:
    """Its path is what its user gave."""
    (tmp_path / "target").write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert read_text(tmp_path / "link") == "text"


@POSIX
@pytest.mark.parametrize("mode", ["r", "rb", "a", "w", "r+b"])
def test_a_named_pipe_is_refused_without_waiting(tmp_path: Path, mode: TextMode | ByteMode) -> None:
    """With a reader on the other side too, without which opening it to write fails of itself."""
    os.mkfifo(tmp_path / "pipe")
    other = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)
    try:
        with pytest.raises(OSError, match="is no regular file"):
            open_regular(tmp_path / "pipe", mode)  # type: ignore[call-overload]
    finally:
        os.close(other)


def test_text_has_its_line_ends_and_modes_do_what_they_say(tmp_path: Path) -> None:
    """As of ``open``."""
    path = tmp_path / "file"
    for mode, text in (("w", "a\r\nlonger"), ("w", "é\n"), ("a", "b\r\n")):
        with open_regular(path, mode) as file:  # type: ignore[call-overload]
            file.write(text)
    assert path.read_bytes() == "é\nb\r\n".encode()
    with open_regular(path) as file:
        assert file.read() == "é\nb\r\n"
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)


def test_a_file_too_large_for_text_is_refused(tmp_path: Path) -> None:
    """A sparse one takes no disk, and would take all memory."""
    with (tmp_path / "large").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(OSError, match=r"has 1,099,511,627,776 bytes, and at most 67,108,864"):
        read_text(tmp_path / "large")


def test_a_folder_of_regular_files_is_plain(tmp_path: Path) -> None:
    """A missing one too, and one whose own path is a link."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for folder in (tmp_path / "a", tmp_path / "link", tmp_path / "none"):
        require_plain_folder(folder)


@pytest.mark.parametrize("target", ["file", "folder", "nothing"])
def test_a_link_however_deep_is_found(tmp_path: Path, target: str) -> None:
    """To a file, to a folder, and to nothing."""
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    inner = tmp_path / "run" / "checkpoints"
    inner.mkdir(parents=True)
    (inner / "name").symlink_to(tmp_path / target)
    with pytest.raises(ConfigError, match=r"checkpoints/name' is a link, and runs are written"):
        require_plain_folder(tmp_path / "run")


def log(kind: type[CsvLogger] | type[JsonlLogger], folder: Path) -> None:
    """Write a row of each kind."""
    with closing(kind(folder)) as logger:
        logger.on_train_step(1, {"loss": 1.0})
        logger.on_eval(1, {"mean_return": 1.0})
        logger.on_table(1, "samples", {"text": ["a"]})


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (CsvLogger, "metrics.csv"),
        (CsvLogger, "evaluations.csv"),
        (JsonlLogger, "metrics.jsonl"),
        (JsonlLogger, "tables.jsonl"),
    ],
)
def test_a_logger_writes_through_no_link(
    tmp_path: Path, kind: type[CsvLogger] | type[JsonlLogger], name: str
) -> None:
    """What the link leads to stays."""
    (tmp_path / "kept").write_text("kept")
    (tmp_path / name).symlink_to(tmp_path / "kept")
    with pytest.raises(OSError, match="is a link"):
        log(kind, tmp_path)
    assert (tmp_path / "kept").read_text() == "kept"


@POSIX
def test_interrupted_opening_leaves_no_descriptor(tmp_path: Path) -> None:
    """What is refused is closed."""
    os.mkfifo(tmp_path / "pipe")
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
    for _ in range(50):
        with pytest.raises(OSError, match="is no regular file"):
            open_regular(tmp_path / "pipe")
    after = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
    assert after == before


def writing_calls(path: Path) -> Iterator[str]:
    """Yield the calls of a file that open files to write by other ways than rlox.files."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name in WRITERS:
            yield f"line {node.lineno}: {name}"
        if name == "open":
            values = [*node.args, *(word.value for word in node.keywords if word.arg == "mode")]
            modes = [v.value for v in values if isinstance(v, ast.Constant)]
            if any(isinstance(mode, str) and set(mode) & set("wax+") and len(mode) <= 3
                   for mode in modes):  # fmt: skip
                yield f"line {node.lineno}: open"


def test_what_is_written_is_opened_in_one_place() -> None:
    """No bare open, write_text or write_bytes, so that no new file format writes through links."""
    found = {}
    for package in PACKAGES:
        for path in package.rglob("*.py"):
            name = str(path.relative_to(package.parent))
            calls = [] if name in ALLOWED else list(writing_calls(path))
            if calls:
                found[name] = calls
    assert found == {}


@pytest.mark.skipif(sys.platform == "win32", reason="the system keeps a directory in use")
def test_a_deleted_working_directory_is_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not the end of the process by a library that looks for a file beside it."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ConfigError, match="the working directory is gone"):
        resolve("rlox_onpolicy.ppo:PPO")
    with pytest.raises(ConfigError, match="the working directory is gone"):
        importlib.reload(rlox.algorithms)
