"""Early stopping when the mean return stops improving."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, Literal, get_args

from rlox.callbacks.base import Callback, require_at_least
from rlox.config.model import require_integer

Monitor = Literal["train", "eval"]
"""Whose mean return is watched: that of the training's last 100 finished episodes, reported once an
iteration, or that of evaluations."""

NOTHING_WATCHED = {
    "train": "return in this training; watch evaluations instead, with monitor='eval' and an "
    "EvalCallback",
    "eval": "evaluation in this training; add an EvalCallback with a smaller eval_freq",
}


class EarlyStoppingCallback(Callback):
    """Stop when the mean return of finished episodes has not improved for a while.

    The training stops between iterations, so that nothing collected is lost. An iteration in which
    no episode ended says nothing about the policy and does not count.

    Args:
        patience: number of iterations, or of evaluations, without an improvement.
        min_delta: a return above the best one by no more than this is no improvement.
        monitor: ``"train"``, or ``"eval"`` together with an :class:`EvalCallback`.
        verbose: print why the training stops.

    Raises:
        ValueError: an option is out of range.
    """

    def __init__(
        self,
        patience: int = 10,
        min_delta: float = 0.0,
        *,
        monitor: Monitor = "train",
        verbose: bool = True,
    ) -> None:
        require_integer("patience", patience, at_least=1)
        require_at_least(0, min_delta=min_delta)
        if monitor not in get_args(Monitor):
            raise ValueError(f"monitor must be 'train' or 'eval', got '{monitor}'")
        self.patience = patience
        self.min_delta = min_delta
        self.monitor = monitor
        self.verbose = verbose
        self.best = -math.inf
        """Best mean return so far."""
        self.waited = 0
        """Number of iterations or evaluations since it improved."""
        self._episodes = 0.0
        self._watched = False

    def on_training_start(self, **kwargs: Any) -> None:
        """Have patience again if it ran out before; forget what another algorithm reached."""
        self._watched = False
        if self.waited >= self.patience:
            self.waited = 0
        if kwargs.get("step", 0) == 0:
            self.best, self.waited, self._episodes = -math.inf, 0, 0.0

    def on_eval(self, **kwargs: Any) -> None:
        """Compare an evaluation's mean return."""
        if self.monitor == "eval":
            self._compare(kwargs["result"].mean_return)

    def on_iteration_end(self, **kwargs: Any) -> bool:
        """Compare the training's mean return, and stop when patience has run out."""
        metrics = kwargs["metrics"]
        if self.monitor == "train":
            # an algorithm that does not count episodes is taken to have finished one
            episodes = metrics.get("episodes", self._episodes + 1)
            mean_return = metrics.get("mean_reward", math.nan)
            if episodes != self._episodes and not math.isnan(mean_return):
                self._episodes = episodes
                self._compare(mean_return)
        if self.waited < self.patience:
            return True
        if self.verbose:
            unit = "evaluations" if self.monitor == "eval" else "iterations with finished episodes"
            steps = f"{kwargs['step']} {kwargs['algo'].clock.unit_text}"
            print(
                f"stopped at {steps}: the return has not risen above "
                f"{self.best + self.min_delta:.1f} for {self.waited} {unit}"
            )
        return False

    def on_training_end(self, **kwargs: Any) -> None:
        """Warn if there was nothing to watch."""
        if not self._watched:
            warnings.warn(
                f"EarlyStoppingCallback(monitor='{self.monitor}') saw no "
                f"{NOTHING_WATCHED[self.monitor]}",
                stacklevel=2,
            )

    def _compare(self, mean_return: float) -> None:
        self._watched = True
        if mean_return > self.best + self.min_delta:
            self.best, self.waited = mean_return, 0
        else:
            self.waited += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the best return and how long ago it was."""
        best = self.best if math.isfinite(self.best) else None  # JSON has no infinity
        return {"best": best, "waited": self.waited, "episodes": self._episodes}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the best return and how long ago it was."""
        self.best = -math.inf if state["best"] is None else float(state["best"])
        self.waited = int(state["waited"])
        self._episodes = float(state["episodes"])
