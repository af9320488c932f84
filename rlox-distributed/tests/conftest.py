"""Settings of Ray, read when a test module imports it, and of property tests."""

import os

from hypothesis import HealthCheck, settings

# the tests run under `uv run`; see rlox_distributed.ray_cluster.import_ray
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")

settings.register_profile(
    "any-speed",
    max_examples=int(os.environ.get("RLOX_EXAMPLES", "15")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("any-speed")
