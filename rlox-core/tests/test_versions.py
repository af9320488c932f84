"""Tests of :mod:`rlox.training.versions`."""

from __future__ import annotations

from importlib import metadata
from typing import NoReturn

import pytest
from rlox.training.versions import installed_versions


def test_distributions_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints need not wait for the metadata of every distribution each time."""
    first = installed_versions()
    assert first["rlox-core"] == metadata.version("rlox-core")
    first["rlox-core"] = "changed by the caller"

    def unreachable() -> NoReturn:
        raise AssertionError

    monkeypatch.setattr(metadata, "distributions", unreachable)
    assert installed_versions()["rlox-core"] == metadata.version("rlox-core")
