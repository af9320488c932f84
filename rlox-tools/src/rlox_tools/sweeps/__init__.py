"""Sweeps: many runs of one training."""
