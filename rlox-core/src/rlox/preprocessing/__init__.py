"""Preprocessing of observations and rewards between envs and networks.

It belongs to the model: its statistics are saved in checkpoints, change while rollouts are
collected and at no other time, and apply in the same way when the policy acts for a user.
"""

from rlox.preprocessing.observations import FrameStack, Moments, Preprocessor, RewardScaler

__all__ = ["FrameStack", "Moments", "Preprocessor", "RewardScaler"]
