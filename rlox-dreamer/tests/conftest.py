"""Settings of property tests: they pass on a machine of any speed."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "any-speed",
    deadline=None,
    max_examples=int(os.environ.get("RLOX_EXAMPLES", "15")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any-speed")
