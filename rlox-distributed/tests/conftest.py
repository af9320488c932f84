"""Settings of Ray, which it reads when a test module imports it, before ours do."""

import os

# the tests run under `uv run`; see rlox_distributed.ray_cluster.import_ray
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
