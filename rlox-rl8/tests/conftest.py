"""Settings of property tests: they pass on a machine of any speed."""

from hypothesis import HealthCheck, settings

settings.register_profile("any-speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-speed")
