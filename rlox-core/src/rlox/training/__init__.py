"""Training loop, hooks, progress and checkpoints."""

from rlox.training.hooks import Hooks, StopTraining
from rlox.training.loop import run, run_iteration
from rlox.training.progress import Progress
from rlox.training.segments import SavedBuffer
from rlox.training.trainable import Trainable

__all__ = [
    "Hooks",
    "Progress",
    "SavedBuffer",
    "StopTraining",
    "Trainable",
    "run",
    "run_iteration",
]
