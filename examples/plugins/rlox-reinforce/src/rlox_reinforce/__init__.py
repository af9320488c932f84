"""An example plugin for rlox: REINFORCE, a corridor env and a Markdown logger."""

__version__ = "0.1.0"
