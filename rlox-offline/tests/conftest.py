"""Lets the tests import the modules beside them."""

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

settings.register_profile(
    "any-speed",
    deadline=None,
    max_examples=int(os.environ.get("RLOX_EXAMPLES", "15")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any-speed")

sys.path.insert(0, str(Path(__file__).parent))
