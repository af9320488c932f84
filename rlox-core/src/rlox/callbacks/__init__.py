"""Hooks into training.

Every ``step`` and frequency counts env steps, summed over all envs; in a training without env
steps, such as one from a dataset, gradient steps.
"""

from typing import TYPE_CHECKING, Any

from rlox.callbacks.base import Callback, CallbackList, Phase
from rlox.callbacks.checkpoint import CheckpointCallback
from rlox.callbacks.evaluation import EarlyStoppingCallback, EvalCallback
from rlox.callbacks.progress import PhaseTime, ProgressCallback, TimingCallback
from rlox.errors import import_extra

if TYPE_CHECKING:
    from rlox_tools.video import VideoCallback as VideoCallback

__all__ = [
    "Callback",
    "CallbackList",
    "CheckpointCallback",
    "EarlyStoppingCallback",
    "EvalCallback",
    "Phase",
    "PhaseTime",
    "ProgressCallback",
    "TimingCallback",
]


def __getattr__(name: str) -> Any:
    if name != "VideoCallback":
        raise AttributeError(f"module 'rlox.callbacks' has no '{name}'")
    what = f"rlox.callbacks.{name}"
    return getattr(import_extra("rlox_tools.video", what, "tools"), name)
