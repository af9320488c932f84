"""Policies in the formats of others: ONNX and Stable-Baselines3."""
