"""Trainers that run an algorithm until conditions hold."""

from rlox_rl8.trainers.base import GenericTrainerBase, RecurrentTrainer, Trainer
from rlox_rl8.trainers.config import TrainConfig

__all__ = ["GenericTrainerBase", "RecurrentTrainer", "TrainConfig", "Trainer"]
