"""Settings of tests that pass on a machine of any speed, with a GPU or without."""

import pytest
import shared_fixtures  # noqa: F401


@pytest.fixture(autouse=True)
def cpu_is_the_automatic_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare with numbers of the CPU wherever a test names no device."""
    monkeypatch.setattr("rlox_rl8.engine.automatic_device", lambda: "cpu")
