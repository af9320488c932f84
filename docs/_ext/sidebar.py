"""Sidebar that shows the branch of the page alone.

The theme writes links to all pages into each page, which was half of the time of a build and most
of its bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from sphinx.application import Sphinx


def _collapse(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Make the theme ask for a tree of contents without the branches of other pages."""
    if "toctree" in context:
        context["toctree"] = partial(_collapsed, context["toctree"])


def _collapsed(toctree: Callable[..., str], **options: Any) -> str:
    return toctree(**{**options, "collapse": True})


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx, before the theme's own listener."""
    app.connect("html-page-context", _collapse, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
