"""Words by which the search finds a page first: the ``keywords`` at its top."""

from __future__ import annotations

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx


def _index(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Make the keywords entries of the index, which the search values above a page's text."""
    for meta in list(doctree.findall(nodes.meta)):
        if meta.get("name") == "keywords":
            words = meta["content"].split(", ")
            doctree += addnodes.index(entries=[("single", w, "", "main", None) for w in words])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx, after its own index is made."""
    app.connect("doctree-resolved", _index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
