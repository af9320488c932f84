"""Tests of :mod:`rlox.files.memory`: what is too large is refused before it is reserved."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from rlox.errors import MemoryLimitError, RloxError
from rlox.files import memory
from rlox.files.memory import require_memory_for, text_of_bytes
from rlox.preprocessing import Preprocessor
from rlox.replay.buffers import BufferOptions, make_buffer

GIB = 1 << 30

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits are read of /proc")


def test_an_error_names_the_value_its_bytes_and_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And is both one of rlox's and a MemoryError."""
    monkeypatch.setattr(memory, "available_bytes", lambda: GIB)
    require_memory_for("rows", 7, GIB, "take fewer")
    with pytest.raises(MemoryLimitError) as caught:
        require_memory_for("rows", 7, 3 * GIB, "take fewer")
    assert str(caught.value) == (
        "not enough memory for rows = 7: it would take at least 3.0 GiB, and 1.0 GiB are "
        "available; take fewer"
    )
    assert isinstance(caught.value, RloxError)
    assert isinstance(caught.value, MemoryError)


def test_a_system_that_does_not_say_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to compare with."""
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    require_memory_for("rows", 7, 1 << 70, "take fewer")


def test_bytes_are_written_as_people_read_them() -> None:
    """Small numbers as they are."""
    assert text_of_bytes(12_345) == "12,345 bytes"
    assert [text_of_bytes(3 << shift) for shift in (19, 30, 52)] == [
        "1.5 MiB", "3.0 GiB", "12,288.0 TiB",
    ]  # fmt: skip


@linux
def test_a_limit_of_the_address_space_counts() -> None:
    """As ``ulimit -v`` sets it."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))\n"
        "from rlox.files.memory import available_bytes\n"
        "assert 0 < available_bytes() < 2**33, available_bytes()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_container_counts_with_those_around_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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
    read = memory._text
    monkeypatch.setattr(
        memory,
        "_text",
        lambda path: "0::/user/job\n" if str(path) == "/proc/self/cgroup" else read(path),
    )
    monkeypatch.setattr(memory, "CGROUPS", tmp_path)
    assert sorted(memory._of_containers()) == [2500, 8000]


def test_stacked_frames_are_refused_by_their_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the time that a comparison takes, as no bound of the space is made."""
    monkeypatch.setattr(memory, "available_bytes", lambda: GIB)
    space = gymnasium.spaces.Box(0, 1, (84, 84), np.float32)
    with pytest.raises(MemoryLimitError, match=r"frame_stack = 2147483647: .* TiB"):
        Preprocessor(space, normalize=False, frame_stack=2147483647)


@pytest.mark.parametrize(
    ("shape", "dtype", "most"), [((3,), "float32", 30_000_000), ((84, 84, 4), "uint8", 30_000)]
)
def test_a_buffer_is_refused_by_its_rows(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], dtype: str, most: int
) -> None:
    """Whatever keeps them; a buffer that fits is made."""
    monkeypatch.setattr(memory, "available_bytes", lambda: GIB)

    def asked(capacity: int) -> BufferOptions:
        return BufferOptions(capacity, shape, dtype, (1,), "float32", 1, 1, 0.99, 0)

    with pytest.raises(MemoryLimitError, match=f"buffer_size = {4 * most}: .* keep fewer"):
        make_buffer("uniform", asked(4 * most))
    assert make_buffer("uniform", asked(100)) is not None
