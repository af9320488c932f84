"""Lets tests import the modules next to them."""

import sys
from pathlib import Path

from shared_fixtures import run  # noqa: F401

sys.path.insert(0, str(Path(__file__).parent))
