"""Installed versions, as runs and checkpoints record them."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata


def installed_versions() -> dict[str, str]:
    """Return the versions of Python, of every rlox distribution, and of what results depend on."""
    return dict(_read())


@cache  # the metadata of hundreds of distributions takes a tenth of a second to read
def _read() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for distribution in metadata.distributions():
        name = distribution.name or ""
        if name.startswith("rlox") or name in ("torch", "numpy", "gymnasium"):
            found[name] = distribution.version
    return dict(sorted(found.items()))
