"""Settings of the property tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "untimed", settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
)
settings.load_profile("untimed")  # a busy machine is no failure
