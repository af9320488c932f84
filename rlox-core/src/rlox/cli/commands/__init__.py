"""The commands of ``rlox``, one module each."""
