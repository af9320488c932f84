"""Soft Q-learning for rlox."""
