"""Offline algorithms for rlox, and the datasets that they learn from."""

__version__ = "0.1.0"
