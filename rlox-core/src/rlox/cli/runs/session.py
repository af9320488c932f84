"""The session of a training run: train, save, evaluate, record."""

from __future__ import annotations

import dataclasses
import errno
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from rlox import registry
from rlox.api import make_callbacks
from rlox.callbacks import Callback, CheckpointCallback, EvalCallback, ProgressCallback
from rlox.cli.output import duration_text, print_pairs, print_progress
from rlox.cli.runs.callbacks import (
    Interruption,
    LatestCheckpoint,
    ProgressLines,
    await_record,
    measured_phases,
    remove_latest,
)
from rlox.cli.runs.folder import RunFolder, resume_command_of
from rlox.cli.runs.options import RunOptions
from rlox.errors import RunError

if TYPE_CHECKING:
    from rlox.algorithm import Algorithm

__all__ = ["Session"]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of writing where there is no room, or no more is allowed."""


@dataclasses.dataclass(frozen=True)
class Session:
    """A training in its run folder, from its first step to its record."""

    folder: RunFolder
    options: RunOptions
    interruption: Interruption
    log: TextIO | None
    """Where to print; ``None`` prints on stdout and stderr."""

    def callbacks(self) -> list[Callback]:
        """Return the callbacks that the options ask for, the interruption last."""
        folder, options = self.folder, self.options
        callbacks = make_callbacks(options.callbacks, folder.path)
        if options.eval_freq:
            callbacks.append(
                EvalCallback(
                    eval_freq=options.eval_freq,
                    n_eval_episodes=options.eval_episodes,
                    best_model_path=folder.checkpoint("best"),
                    verbose=not options.quiet and self.log is None,
                )
            )
        if options.checkpoint_steps:
            callbacks.append(
                CheckpointCallback(options.checkpoint_steps, folder.checkpoints, verbose=False)
            )
        if options.checkpoint_seconds:
            latest = folder.checkpoint("latest")
            callbacks.append(LatestCheckpoint(latest, options.checkpoint_seconds))
        # two bars cannot share a terminal
        if not options.quiet and "progress" not in options.callbacks:
            bar = self.log is None and sys.stdout.isatty()
            callbacks.append(ProgressCallback() if bar else ProgressLines(self.log))
        return [*callbacks, self.interruption]

    def run(self, algorithm: Algorithm, learn: Callable[[], Any]) -> int:
        """Call ``learn``, save, evaluate and record, and return the exit code."""
        with self.interruption:
            try:
                return self._train(algorithm, learn)
            except KeyboardInterrupt:
                self.folder.end("interrupted", **algorithm.clock.progress())
                self._complain(f"interrupted; what was saved is in {self.folder.path}")
                return self.interruption.exit_code
            except BaseException as error:
                with suppress(OSError):  # the record of a full disk stays as it was
                    self.folder.end("failed", **algorithm.clock.progress())
                if isinstance(error, OSError) and error.errno in FULL:
                    path, parts = self.folder.path, self.options.parts
                    raise RunError(
                        f"the disk of '{path}' is full ({error.strerror}); free some space, then: "
                        f"{resume_command_of(path, algorithm.env_source, parts)}"
                    ) from error
                raise

    def _train(self, algorithm: Algorithm, learn: Callable[[], Any]) -> int:
        folder, options, clock = self.folder, self.options, algorithm.clock
        learner = None if algorithm.learner is None else str(algorithm.learner)
        folder.record(learner=learner)
        if learner is not None and not options.quiet:
            print_progress(f"learner: {learner}", self.log)
        started, steps_before = time.perf_counter(), clock.steps
        try:
            learn()
        finally:  # of an interrupted or failed part too
            seconds = time.perf_counter() - started
            folder.add_training_seconds(seconds)
            folder.record(**measured_phases(algorithm))
        self.interruption.agree()
        if self.interruption.signal is not None:
            path = folder.checkpoint("interrupted")
            algorithm.save(path)
            remove_latest(folder.checkpoint("latest"), algorithm)
            folder.end("interrupted", **clock.progress())
            self._complain(
                f"interrupted at {clock.steps:,} {clock.unit_text}; saved {path}; "
                f"to finish: {resume_command_of(folder.path, algorithm.env_source, options.parts)}"
            )
            await_record()
            return self.interruption.exit_code
        # before the evaluation, which may fail or be interrupted
        algorithm.save(folder.checkpoint("final"))
        remove_latest(folder.checkpoint("latest"), algorithm)
        self.interruption.learnt = True
        evaluated = self._evaluate(algorithm)
        folder.end("finished", **clock.progress(), **evaluated)
        print_pairs(
            {
                **_evaluation_line(**evaluated),
                clock.unit_text: f"{clock.steps:,}",
                **({} if learner is None else {"learner": learner}),
                "wall time": duration_text(seconds),
                f"{clock.unit_text}/s": f"{(clock.steps - steps_before) / seconds:,.0f}",
                "run folder": str(folder.path),
            },
            self.log,
        )
        return 0

    def _evaluate(self, algorithm: Algorithm) -> dict[str, Any]:
        """Evaluate, log the result and return it for the record; nothing if there is no env."""
        if algorithm.env_source is None and registry.spec(algorithm.name).env:
            return {}
        episodes = self.options.eval_episodes
        result = algorithm.run_episodes(n_episodes=episodes)
        mean, std, length = result.mean_return, result.std_return, float(result.lengths.mean())
        if algorithm.logger is not None:
            algorithm.logger.on_eval(
                algorithm.clock.steps,
                {"mean_reward": mean, "std_reward": std, "mean_episode_length": length},
            )
        return {"evaluation": {"mean": mean, "std": std, "n_episodes": episodes}}

    def _complain(self, message: str) -> None:
        with suppress(OSError):  # the terminal may be closed
            print(message, file=self.log or sys.stderr)


def _evaluation_line(evaluation: dict[str, Any] | None = None) -> dict[str, str]:
    if evaluation is None:
        return {}
    mean, std, episodes = evaluation.values()
    return {"evaluation return": f"{mean:.1f} ± {std:.1f} over {episodes} episodes"}
