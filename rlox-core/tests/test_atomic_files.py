"""Tests of :mod:`rlox.files.atomic`."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from rlox.files.atomic import write_atomically


def test_threads_that_write_one_file_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have written before either renames; the file is whole, and nothing else is there."""
    path, contents = tmp_path / "run.json", [b"short", b"something longer"]
    written, replace = threading.Barrier(2), Path.replace

    def replace_together(self: Path, target: Any) -> Path:
        written.wait(120)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", replace_together)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda content: write_atomically(path, content), contents))
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]
