"""Settings of property tests: they pass on a machine of any speed."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "any-speed",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=int(os.environ.get("RLOX_EXAMPLES", "15")),
)
settings.load_profile("any-speed")
