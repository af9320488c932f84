"""Settings of property tests, independent of the machine's speed."""

import shared_fixtures  # noqa: F401
