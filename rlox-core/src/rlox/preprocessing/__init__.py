"""Preprocessing of observations and rewards between envs and networks.

It belongs to the model: its statistics are saved in checkpoints, change while rollouts are
collected and at no other time, and apply in the same way when the policy acts for a user.
"""

from rlox.preprocessing.frames import FrameStack
from rlox.preprocessing.moments import Moments
from rlox.preprocessing.observations import Preprocessor
from rlox.preprocessing.rewards import RewardScaler

__all__ = ["FrameStack", "Moments", "Preprocessor", "RewardScaler"]
