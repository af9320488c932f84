"""Training: the loop, its hooks, progress and checkpoints."""

from rlox.training.hooks import Hooks, StopTraining
from rlox.training.loop import run
from rlox.training.progress import Clock, StepUnit

__all__ = ["Clock", "Hooks", "StepUnit", "StopTraining", "run"]
