"""Tests of :mod:`rlox.files`: regular files, folders without links, memory."""

import ast
import importlib
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import rlox.algorithms
from rlox import files
from rlox.envs.preprocessing import Preprocessor
from rlox.errors import ConfigError, MemoryLimitError, RloxError
from rlox.files import (
    lock_file,
    open_regular,
    read_text,
    require_memory_for,
    require_plain_folder,
    write_atomically,
)
from rlox.registry import resolve
from rlox.replay.buffers import BufferOptions, make_buffer

PACKAGES = sorted(Path(__file__).parents[2].glob("rlox-*/src/*/"))
WRITERS = {"write_text", "write_bytes", "touch"}
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="named pipes")

ALLOWED = {
    "rlox/cli/__init__.py",  # the null device
    "rlox/envs/workers/arena.py",  # descriptors
    "rlox/files.py",
}


@pytest.mark.parametrize("mode", ["w", "wb", "a", "ab", "r+b"])
def test_a_link_is_not_written_through(tmp_path, mode):
    """Neither emptied nor changed; a hard one is another name of the file."""
    target, link, name = tmp_path / "target", tmp_path / "link", tmp_path / "name"
    target.write_text("kept")
    link.symlink_to(target)
    name.hardlink_to(target)
    with pytest.raises(OSError, match="is a link, which is not written through"):
        open_regular(link, mode)
    with pytest.raises(OSError, match="has another name"):
        open_regular(name, mode)
    assert target.read_text() == "kept"


def test_a_link_is_read(tmp_path):
    """Its path is what its user gave."""
    (tmp_path / "target").write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert read_text(tmp_path / "link") == "text"


@POSIX
@pytest.mark.parametrize("mode", ["r", "rb", "a", "w", "r+b"])
def test_a_named_pipe_is_refused_without_waiting(tmp_path, mode):
    """With a reader on the other side too, without which opening it to write fails of itself."""
    os.mkfifo(tmp_path / "pipe")
    other = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)
    try:
        with pytest.raises(OSError, match="is not a regular file"):
            open_regular(tmp_path / "pipe", mode)
    finally:
        os.close(other)


def test_text_has_its_line_ends_and_modes_do_what_they_say(tmp_path):
    """As of ``open``."""
    path = tmp_path / "file"
    for mode, text in (("w", "a\r\nlonger"), ("w", "é\n"), ("a", "b\r\n")):
        with open_regular(path, mode) as file:
            file.write(text)
    assert path.read_bytes() == "é\nb\r\n".encode()
    with open_regular(path) as file:
        assert file.read() == "é\nb\r\n"
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)


def test_a_file_too_large_for_text_is_refused(tmp_path):
    """A sparse one takes no disk, and would take all memory."""
    with (tmp_path / "large").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(OSError, match=r"has 1,099,511,627,776 bytes, and at most 67,108,864"):
        read_text(tmp_path / "large")


def test_a_folder_of_regular_files_is_plain(tmp_path):
    """A missing one too, and one whose own path is a link."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for folder in (tmp_path / "a", tmp_path / "link", tmp_path / "none"):
        require_plain_folder(folder)


@pytest.mark.parametrize("target", ["file", "folder", "nothing"])
def test_a_link_however_deep_is_found(tmp_path, target):
    """To a file, to a folder, and to nothing."""
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    inner = tmp_path / "run" / "checkpoints"
    inner.mkdir(parents=True)
    (inner / "name").symlink_to(tmp_path / target)
    with pytest.raises(ConfigError, match=r"checkpoints/name' is a link, and runs are written"):
        require_plain_folder(tmp_path / "run")


def writing_calls(path):
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


def test_what_is_written_is_opened_in_one_place():
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
def test_a_deleted_working_directory_is_a_message(tmp_path, monkeypatch):
    """And not the end of the process by a library that looks for a file beside it."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ConfigError, match="the working directory is gone"):
        resolve("rlox_onpolicy.ppo:PPO")
    with pytest.raises(ConfigError, match="the working directory is gone"):
        importlib.reload(rlox.algorithms)


def test_threads_that_write_one_file_do_not_disturb_each_other(tmp_path, monkeypatch):
    """Both have written before either renames; the file is whole, and nothing else is there."""
    path, contents = tmp_path / "run.json", [b"short", b"something longer"]
    written, replace = threading.Barrier(2), Path.replace

    def replace_together(self, target):
        written.wait(120)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", replace_together)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda content: write_atomically(path, content), contents))
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]


def test_lock_file_that_its_owner_removed_is_locked_anew(tmp_path, monkeypatch):
    """Whoever opened it before that holds the file that is there, which shuts out a third."""
    path = tmp_path / ".lock"
    opened = []

    def open_slowly(*args):
        file = open_regular(*args)
        if not opened:  # its owner ends meanwhile
            path.unlink()
        opened.append(file)
        return file

    monkeypatch.setattr(files, "open_regular", open_slowly)
    code = (
        "import sys; from pathlib import Path; from rlox.files import lock_file\n"
        "with lock_file(Path(sys.argv[1])) as held: print(held)"
    )
    with lock_file(path) as held:
        assert held
        assert len(opened) == 2
        third = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
        )
        assert third.stdout == "False\n"
    assert not path.exists()


GIB = 1 << 30

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits are read of /proc")


def test_an_error_names_the_value_its_bytes_and_what_there_is(monkeypatch):
    """And is both one of rlox's and a MemoryError."""
    monkeypatch.setattr(files, "available_bytes", lambda: GIB)
    require_memory_for("rows", 7, GIB, "take fewer")
    with pytest.raises(MemoryLimitError) as caught:
        require_memory_for("rows", 7, 3 * GIB, "take fewer")
    assert str(caught.value) == (
        "not enough memory for rows = 7: it would take at least 3.0 GiB, and 1.0 GiB are "
        "available; take fewer"
    )
    assert isinstance(caught.value, RloxError)
    assert isinstance(caught.value, MemoryError)


@linux
def test_a_limit_of_the_address_space_counts():
    """As ``ulimit -v`` sets it."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))\n"
        "from rlox.files import available_bytes\n"
        "assert 0 < available_bytes() < 2**33, available_bytes()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_container_counts_with_those_around_it(monkeypatch, tmp_path):
    """What files are cached in is free again, whichever of the two versions reports it."""
    inner = tmp_path / "user" / "job"
    inner.mkdir(parents=True)
    texts = {
        tmp_path / "memory.max": "max",
        tmp_path / "user/memory.max": "5000",
        tmp_path / "user/memory.current": "3000",
        tmp_path / "user/memory.stat": "anon 1000\ninactive_file 500\n",
        inner / "memory.max": "9000",
        inner / "memory.current": "1000",
    }
    for path, text in texts.items():
        path.write_text(text)
    read = files._text
    monkeypatch.setattr(
        files,
        "_text",
        lambda path: "0::/user/job\n" if str(path) == "/proc/self/cgroup" else read(path),
    )
    monkeypatch.setattr(files, "CGROUPS", tmp_path)
    assert sorted(files._of_containers()) == [2500, 8000]


def test_stacked_frames_are_refused_by_their_space(monkeypatch):
    """Within the time that a comparison takes, as no bound of the space is made."""
    monkeypatch.setattr(files, "available_bytes", lambda: GIB)
    space = gymnasium.spaces.Box(0, 1, (84, 84), np.float32)
    with pytest.raises(MemoryLimitError, match=r"frame_stack = 2147483647: .* TiB"):
        Preprocessor(space, normalize=False, frame_stack=2147483647)


@pytest.mark.parametrize(
    ("shape", "dtype", "most"), [((3,), "float32", 30_000_000), ((84, 84, 4), "uint8", 30_000)]
)
def test_a_buffer_is_refused_by_its_rows(monkeypatch, shape, dtype, most):
    """Whatever keeps them; a buffer that fits is made."""
    monkeypatch.setattr(files, "available_bytes", lambda: GIB)

    def asked(capacity):
        return BufferOptions(capacity, shape, dtype, (1,), "float32", 1, 1, 0.99, 0)

    with pytest.raises(MemoryLimitError, match=f"buffer_size = {4 * most}: .* keep fewer"):
        make_buffer("uniform", asked(4 * most))
    assert make_buffer("uniform", asked(100)) is not None
