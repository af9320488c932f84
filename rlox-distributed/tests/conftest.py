"""Settings of Ray, read when a test module imports it, and of property tests."""

import os

import shared_fixtures  # noqa: F401

# the tests run under `uv run`; see rlox_distributed.ray_cluster.import_ray
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
