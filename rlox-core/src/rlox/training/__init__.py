"""Training: the loop, its hooks, progress, and what it needs of an algorithm."""

from rlox.training.hooks import Hooks, StopTraining
from rlox.training.loop import run, run_iteration
from rlox.training.progress import Clock, StepUnit
from rlox.training.trainable import Trainable

__all__ = ["Clock", "Hooks", "StepUnit", "StopTraining", "Trainable", "run", "run_iteration"]
