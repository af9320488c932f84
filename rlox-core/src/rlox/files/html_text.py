"""HTML text of results, for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def pairs_as_html(title: str, pairs: Mapping[str, str]) -> str:
    """Return a table of names and values with a caption; whatever the texts hold is escaped."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in pairs.items()
    )
    caption = f'<caption style="text-align:left">{escape(title)}</caption>'
    return f"<table>{caption}<tbody>{rows}</tbody></table>"
