"""Lets the tests import the modules beside them, wherever they are run from."""

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

settings.register_profile("any-speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-speed")

sys.path.insert(0, str(Path(__file__).parent))
