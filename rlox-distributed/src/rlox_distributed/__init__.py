"""Env workers on other machines for rlox."""

__version__ = "2.0.0.dev0"
