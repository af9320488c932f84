"""Training loop, hooks, progress and checkpoints."""

from rlox.training.hooks import Hooks, Progress, StopTraining, Trainable
from rlox.training.loop import run, run_iteration
from rlox.training.segments import SavedBuffer

__all__ = [
    "Hooks",
    "Progress",
    "SavedBuffer",
    "StopTraining",
    "Trainable",
    "run",
    "run_iteration",
]
