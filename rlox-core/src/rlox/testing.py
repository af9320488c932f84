"""The conformance suite for plugins, from ``rlox-testing``."""

from rlox.errors import missing_extra

try:
    from rlox_testing import *  # noqa: F403
except ModuleNotFoundError as error:
    raise missing_extra("rlox.testing", "testing") from error
