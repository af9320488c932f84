"""Settings of tests that pass on a machine of any speed, with a GPU or without."""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "any-speed",
    deadline=None,
    max_examples=int(os.environ.get("RLOX_EXAMPLES", "15")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any-speed")


@pytest.fixture(autouse=True)
def cpu_is_the_automatic_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare with numbers of the CPU wherever a test names no device."""
    monkeypatch.setattr("rlox_rl8.engine.automatic_device", lambda: "cpu")
