"""Which versions a run or checkpoint was made with."""

from __future__ import annotations

import platform
from importlib import metadata

__all__ = ["installed_versions"]


def installed_versions() -> dict[str, str]:
    """Return the versions of Python, of every rlox distribution, and of what results hang on."""
    found = {"python": platform.python_version()}
    for distribution in metadata.distributions():
        name = distribution.name or ""
        if name.startswith("rlox") or name in ("torch", "numpy", "gymnasium"):
            found[name] = distribution.version
    return dict(sorted(found.items()))
