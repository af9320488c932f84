"""Learning from a dataset instead of an env; the algorithms are in ``rlox-offline``."""
