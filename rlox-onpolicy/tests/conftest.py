"""The command line in this process, and settings of property tests."""

from shared_fixtures import run  # noqa: F401
