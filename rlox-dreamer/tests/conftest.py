"""Let tests import modules of their folder, and property tests run on slow machines."""

import sys
from pathlib import Path

import shared_fixtures  # noqa: F401

sys.path.insert(0, str(Path(__file__).parent))
