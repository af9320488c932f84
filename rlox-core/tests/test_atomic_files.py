"""Tests of :mod:`rlox.files.atomic`."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from rlox.files import atomic, lock_file, open_regular, sync_folder, write_atomically


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


def test_folders_are_not_synced_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It opens no folder."""

    def refuse(path: Any, *_: Any) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(PermissionError):
            sync_folder(tmp_path)
        patch.setattr(os, "name", "nt")
        sync_folder(tmp_path)


def test_lock_file_that_its_owner_removed_is_locked_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opened it before that holds the file that is there, which shuts out a third."""
    path = tmp_path / ".lock"
    opened = []

    def open_slowly(*args: Any) -> Any:
        file = open_regular(*args)
        if not opened:  # its owner ends meanwhile
            path.unlink()
        opened.append(file)
        return file

    monkeypatch.setattr(atomic, "open_regular", open_slowly)
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
