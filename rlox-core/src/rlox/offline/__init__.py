"""Learning from datasets: the base of the algorithms in ``rlox-offline``."""
