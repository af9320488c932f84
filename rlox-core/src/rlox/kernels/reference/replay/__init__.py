"""Replay buffers in NumPy."""
