"""Settings of property tests: they pass on a machine of any speed."""

import shared_fixtures  # noqa: F401
