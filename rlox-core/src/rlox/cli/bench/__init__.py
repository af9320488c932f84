"""Contenders of ``rlox bench``."""
