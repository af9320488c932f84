"""Tools around the trainings of rlox."""

__version__ = "2.0.0.dev0"
