"""Sphinx settings; tables and API pages are written by ``_ext/rlox_reference.py``."""

import sys
from pathlib import Path

import rlox

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "rlox"
author = "The rlox authors"
project_copyright = "the rlox authors"
release = version = rlox.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "rlox_reference",
    "search_words",
    "sidebar",
]
exclude_patterns = ["_build", "reference/generated/fragments"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_default_options = {
    "members": True,
    "undoc-members": True,
    "exclude-members": "model_config",
    "show-inheritance": True,
}
add_module_names = False
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Source"]

html_theme = "furo"
html_title = "rlox"
html_show_sphinx = False
html_search_scorer = str(Path(__file__).parent / "_ext" / "search_order.js")
