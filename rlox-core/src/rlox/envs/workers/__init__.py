"""Supervised worker processes: their start, calls with deadlines, restarts, shared arrays."""
