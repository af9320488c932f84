"""Lets the tests import the module beside them; property tests pass on a machine of any speed."""

import sys
from pathlib import Path

import shared_fixtures  # noqa: F401

sys.path.insert(0, str(Path(__file__).parent))
