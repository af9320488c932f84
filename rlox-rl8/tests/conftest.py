"""Settings of tests that pass on a machine of any speed, with a GPU or without."""

import sys
from pathlib import Path

import pytest
import shared_fixtures  # noqa: F401

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside the tests


@pytest.fixture(autouse=True)
def cpu_is_the_automatic_device(monkeypatch):
    """Compare with numbers of the CPU wherever a test names no device."""
    monkeypatch.setattr("rlox_rl8.engine.automatic_device", lambda: "cpu")
