"""Replay: buffers by name, collecting into them, sampling from them."""
