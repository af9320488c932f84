"""Lets the tests import the modules beside them, and use what all distributions share."""

import sys
from pathlib import Path

from shared_fixtures import fresh_registry, install, run  # noqa: F401

sys.path.insert(0, str(Path(__file__).parent))
