"""Test settings for machines of any speed, with or without a GPU."""

import sys
from pathlib import Path

import pytest
import shared_fixtures  # noqa: F401

sys.path.insert(0, str(Path(__file__).parent))  # for modules in the tests' folder


@pytest.fixture(autouse=True)
def cpu_is_the_automatic_device(monkeypatch):
    """Use the CPU, whose numbers tests compare with, wherever a test names no device."""
    monkeypatch.setattr("rlox_rl8.engine.automatic_device", lambda: "cpu")
