"""Search for good options: spaces, trials and results of ``rlox tune``."""
