"""Off-policy algorithms for rlox."""

__version__ = "0.1.0"
