"""Offline algorithms for rlox, and the datasets that they learn from."""

__version__ = "2.0.0.dev0"
