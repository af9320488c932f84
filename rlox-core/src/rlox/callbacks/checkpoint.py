"""Periodic checkpoints during training."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from rlox.callbacks.base import Callback, Multiples
from rlox.config.model import require_integer


class CheckpointCallback(Callback):
    """Save ``step-<steps>.safetensors`` after every multiple of a number of steps.

    Steps are in the training's unit, :attr:`rlox.Algorithm.step_unit`. It saves at the
    end of the iteration that reaches or passes the multiple: no rollout is under way then, so that
    the resumed training equals the uninterrupted one. In a loop of your own, which reports no
    iterations, ``on_step(step=…, algo=…)`` saves by calling ``algo.save(path)``; without ``step``,
    each call counts as one step.

    Args:
        save_freq: steps between checkpoints.
        save_path: folder; made if missing.
        verbose: print each file's path.
        keep_last: number of checkpoints to keep; older ones of this training are deleted, with
            the segments of replay buffers that no other checkpoint needs. ``None`` keeps all.

    Raises:
        ValueError: ``save_freq`` or ``keep_last`` is not positive.
    """

    saves_training: ClassVar[bool] = True

    def __init__(
        self,
        save_freq: int = 10_000,
        save_path: str | Path = "checkpoints",
        verbose: bool = True,
        *,
        keep_last: int | None = None,
    ) -> None:
        if keep_last is not None:
            require_integer("keep_last", keep_last, at_least=1)
        self.save_freq = save_freq
        self.save_path = Path(save_path)
        self.verbose = verbose
        self.keep_last = keep_last
        self.saved_steps: list[int] = []
        """Steps of the checkpoints that still exist, in the order of saving."""
        self._due = Multiples("save_freq", save_freq)

    def path(self, step: int) -> Path:
        """Return the path of the checkpoint of a step."""
        return self.save_path / f"step-{step}.safetensors"

    def on_training_start(self, **kwargs: Any) -> None:
        """Count from the algorithm's present step; a new algorithm has saved nothing yet."""
        step = kwargs.get("step", 0)
        self._due.count_from(step)
        if step == 0:  # the saved steps are another algorithm's
            self.saved_steps = []

    def listens(self, event: str) -> bool:
        """Return whether it handles ``event`` of rlox's loop, where ``on_step`` does nothing."""
        ours = getattr(type(self), event) is CheckpointCallback.on_step
        return not ours and super().listens(event)

    def on_step(self, **kwargs: Any) -> bool:
        """Save like :meth:`on_iteration_end`, unless rlox's loop calls that anyway."""
        algo = kwargs["algo"]
        in_loop = hasattr(algo, "iterate") and self in algo.callbacks.callbacks
        if not in_loop:
            self._save(self._due.step_of(kwargs), algo)
        return True

    def on_iteration_end(self, **kwargs: Any) -> None:
        """Save when the next multiple of ``save_freq`` has been reached or passed."""
        self._save(kwargs["step"], kwargs["algo"])

    def _save(self, step: int, algo: Any) -> None:
        if not self._due.reached(step):
            return
        steps = [*(saved for saved in self.saved_steps if saved != step), step]
        kept = steps[-self.keep_last :] if self.keep_last else steps
        # before saving, since the file holds this callback's state too
        self.saved_steps = kept
        self.save_path.mkdir(parents=True, exist_ok=True)
        algo.save(str(self.path(step)))
        remove = getattr(algo, "remove_checkpoint", partial(Path.unlink, missing_ok=True))
        for old in set(steps) - set(kept):
            remove(self.path(old))
        if self.verbose:
            print(f"saved {self.path(step)}")

    def state_dict(self) -> dict[str, Any]:
        """Return the steps of the checkpoints, which determine the next deletions."""
        return {"saved_steps": list(self.saved_steps)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the steps of the checkpoints."""
        # numbers only: a foreign file must not name files to delete elsewhere
        self.saved_steps = [int(step) for step in state["saved_steps"]]


def checkpoint_callback(log_dir: str | Path) -> CheckpointCallback:
    """Return a callback that saves into the folder's ``checkpoints``."""
    return CheckpointCallback(save_path=Path(log_dir, "checkpoints"))
