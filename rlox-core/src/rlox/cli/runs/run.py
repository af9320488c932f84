"""Training runs in folders: new ones, and interrupted ones resumed."""

from __future__ import annotations

import dataclasses
import errno
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rlox import registry
from rlox.algorithm import make, make_callbacks, make_logger
from rlox.callbacks import Callback, CheckpointCallback, EvalCallback, ProgressCallback
from rlox.cli.output import duration_text, print_pairs, print_progress, print_warning
from rlox.cli.runs.callbacks import (
    Interruption,
    LatestCheckpoint,
    ProgressLines,
    await_record,
    measured_phases,
    train_beside,
)
from rlox.cli.runs.folder import (
    RunFolder,
    SavedState,
    checkpoints_in,
    resume_command_of,
)
from rlox.cli.runs.options import RunOptions, is_code, load_parts, require_unused
from rlox.errors import CheckpointError, ConfigError, RunError
from rlox.ranks import join_ranks
from rlox.training import checkpoint

if TYPE_CHECKING:
    from rlox.algorithm import Algorithm
    from rlox.config.model import Config

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Write errors for lack of space or because of a quota."""


@dataclasses.dataclass(frozen=True)
class Session:
    """A training in its run folder, from its first step to its record."""

    folder: RunFolder
    options: RunOptions
    interruption: Interruption
    log: TextIO | None
    """File to print to; ``None`` prints on stdout and stderr."""

    def callbacks(self) -> list[Callback]:
        """Return the callbacks chosen by the options, with the interruption last."""
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
                self._complain(f"interrupted; saved files are in {self.folder.path}")
                return self.interruption.exit_code
            except BaseException as error:
                with suppress(OSError):  # on a full disk the record stays as it was
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
        finally:  # also after an interruption or a failure
            seconds = time.perf_counter() - started
            folder.add_training_seconds(seconds)
            folder.record(**measured_phases(algorithm))
        self.interruption.agree()
        if self.interruption.signal is not None:
            path = folder.checkpoint("interrupted")
            algorithm.save(path)
            algorithm.remove_checkpoint(folder.checkpoint("latest"))
            folder.end("interrupted", **clock.progress())
            self._complain(
                f"interrupted at {clock.steps:,} {clock.unit_text}; saved {path}; "
                f"to finish: {resume_command_of(folder.path, algorithm.env_source, options.parts)}"
            )
            await_record()
            return self.interruption.exit_code
        # before the evaluation, which may fail or be interrupted
        algorithm.save(folder.checkpoint("final"))
        algorithm.remove_checkpoint(folder.checkpoint("latest"))
        self.interruption.learnt = True
        evaluated = self._evaluate(algorithm)
        folder.end("finished", **clock.progress(), **evaluated)
        print_pairs(
            {
                **_evaluation_line(algorithm.return_name, **evaluated),
                **getattr(algorithm, "findings", dict)(),
                clock.unit_text: f"{clock.steps:,}",
                **({} if learner is None else {"learner": learner}),
                "wall time": duration_text(seconds),
                f"{clock.unit_text}/s": f"{(clock.steps - steps_before) / seconds:,.0f}",
                "run folder": str(folder.path),
                **({"differs": folder.differs} if folder.differs else {}),
            },
            self.log,
        )
        return 0

    def _evaluate(self, algorithm: Algorithm) -> dict[str, Any]:
        """Evaluate, log the result and return it for the record; empty if there is no env."""
        if algorithm.env_source is None and registry.spec(algorithm.name).env:
            return {}
        episodes = self.options.eval_episodes
        result = algorithm.run_episodes(n_episodes=episodes)
        if algorithm.logger is not None:
            algorithm.logger.on_eval(algorithm.clock.steps, result.metrics())
        mean, std = result.mean_return, result.std_return
        return {"evaluation": {"mean": mean, "std": std, "n_episodes": episodes}}

    def _complain(self, message: str) -> None:
        with suppress(OSError):  # the terminal may be closed
            print(message, file=self.log or sys.stderr)


def _evaluation_line(name: str, evaluation: dict[str, Any] | None = None) -> dict[str, str]:
    if evaluation is None:
        return {}
    mean, std, episodes = evaluation.values()
    return {f"evaluation {name}": f"{mean:.1f} ± {std:.1f} over {episodes} episodes"}


NEW_BUFFER = (
    "the checkpoint holds no replay buffer (--save-replay-buffer saves it): a new one is filled "
    "before learning goes on, so that the result is not that of an uninterrupted run"
)
"""Text in the record of a run that was resumed without its replay buffer."""


def train_in_folder(
    name: str,
    config: Config,
    options: RunOptions,
    *,
    interruption: Interruption | None = None,
    log: TextIO | None = None,
) -> int:
    """Train the algorithm ``name``, announced by ``options.begin``; return the exit code.

    Args:
        name: registered name.
        config: its options.
        options: of the run.
        interruption: decides when to stop; ``None`` handles SIGINT, SIGTERM and SIGHUP.
        log: file to print to; ``None`` prints on stdout and stderr.

    Raises:
        RloxError: the env or the run folder cannot be used; no training was done.
    """
    registry.algorithm_class(name)  # imports torch, which is slow enough to be interrupted
    ranks = join_ranks()
    with make(name, options.env, config=config, **load_parts(options.parts)) as algorithm:
        if ranks is not None and ranks.rank:
            algorithm.callbacks.callbacks += [interruption := interruption or Interruption()]
            learn = partial(algorithm.train, options.total_timesteps)
            return train_beside(interruption, learn, algorithm)
        seed = algorithm.streams.seed
        path = options.run_dir or RunFolder.default_path(name, options.subject, what=seed)
        require_unused(path)
        folder = RunFolder(path)
        session = Session(folder, options, interruption or Interruption(), log)
        algorithm.callbacks.callbacks += session.callbacks()
        with folder.lock():
            algorithm.logger = make_logger(options.loggers, folder.path)
            folder.start(algorithm, options)
            return session.run(algorithm, partial(algorithm.train, options.total_timesteps))


def resume_in_folder(
    run: Path,
    *,
    env: str | None,
    quiet: bool,
    parts: Mapping[str, str] | None = None,
    interruption: Interruption | None = None,
    log: TextIO | None = None,
) -> int:
    """Finish an interrupted run and return the exit code.

    Args:
        run: a run folder, or one of its checkpoints to go back to.
        env: env to train on; ``None`` uses the checkpoint's.
        quiet: show no progress.
        parts: the algorithm's parts that are code, which are in no file.
        interruption: see :func:`train_in_folder`.
        log: see there.

    Raises:
        ConfigError: there is no run, or it is finished or under way.
        CheckpointError: the run has no checkpoint that can be read, or it does not fit.
    """
    run = run.parent if run.name == "run.json" else run
    folder = RunFolder(run.absolute().parent.parent if run.is_file() else run)
    record = folder.read()
    options = RunOptions.from_dict(record.get("options"))
    options = dataclasses.replace(options, quiet=quiet, parts={**options.parts, **(parts or {})})
    if record["status"] == "finished":
        raise ConfigError(
            f"the run '{folder.path}' is finished; to train its agent further, load its final "
            "checkpoint in Python: from_checkpoint(path).train(env_steps)"
        )
    if not quiet:
        print_progress(f"resuming {folder.path}", log)
    algorithm_class = registry.algorithm_class(str(record.get("algorithm")))
    interruption = interruption or Interruption()
    session = Session(folder, options, interruption, log)
    ranks = join_ranks()
    if ranks is not None and ranks.rank:
        saved = _checkpoint_to_resume(run, log)
        with algorithm_class.from_checkpoint(
            saved.path, env, callbacks=[interruption], **load_parts(options.parts)
        ) as algorithm:
            remaining = saved.path.stem != "final" and algorithm.clock.remaining
            learn_rest = algorithm.train if remaining else _nothing
            return train_beside(interruption, learn_rest, algorithm)
    with folder.lock():
        saved = _checkpoint_to_resume(run, log)
        with algorithm_class.from_checkpoint(
            saved.path,
            env,
            callbacks=session.callbacks(),
            **load_parts(options.parts),
            **folder.remote_options(algorithm_class),
        ) as algorithm:
            algorithm.logger = make_logger(options.loggers, folder.path)
            if algorithm.logger is not None:
                algorithm.logger.rewind(saved.steps)
            folder.go_back_to(saved)
            learned = saved.path.stem == "final" or not algorithm.clock.remaining
            if not learned:
                differs = [checkpoint.difference_in(saved.path, algorithm)]  # logged while loading
                if getattr(algorithm.config, "save_replay_buffer", True) is False:
                    differs.append(NEW_BUFFER)
                    print_warning(NEW_BUFFER, log)
                if any(differs):
                    folder.record(differs="; ".join(filter(None, differs)))
            return session.run(algorithm, _nothing if learned else algorithm.train)


def _nothing() -> None:
    """Learn nothing, because only the evaluation at the end was interrupted."""


def _checkpoint_to_resume(run: Path, log: TextIO | None) -> SavedState:
    """Return the checkpoint ``run``, or the latest undamaged one in the folder ``run``."""
    if run.is_file():
        return SavedState(checkpoint.steps_of(run), run)
    found, problems = checkpoints_in(run)
    # the best one may have been saved during a rollout
    for saved in (each for each in found if each.path.stem != "best"):
        try:
            checkpoint.read(saved.path)
        except CheckpointError as error:
            problems.append(str(error))
            continue
        for problem in problems:
            print_warning(f"{problem}; it is passed over", log)
        return saved
    raise CheckpointError(
        "; ".join(
            [
                f"run folder '{run}' holds no checkpoint to resume from, which --checkpoint-freq "
                "and Ctrl-C make",
                *problems,
            ]
        )
    )


def restore(path: Path, env: str | None, parts: Mapping[str, str]) -> Algorithm:
    """Return the algorithm in a checkpoint.

    Args:
        path: the checkpoint.
        env: id of the env; ``None`` takes the training's.
        parts: names of the parts to pass, which win over the parts in the checkpoint's run
            folder.

    Raises:
        CheckpointError: the file is damaged or does not fit.
    """
    manifest = checkpoint.read(path)
    algorithm_class: type[Algorithm] = registry.algorithm_class(str(manifest.get("name")))
    texts = {**parts_of_run(path), **parts}
    if registry.spec(algorithm_class.name).env:
        texts.pop("dataset", None)  # acting needs no dataset
    given = {**_in_place_of_own(manifest), **load_parts(texts)}
    return algorithm_class.from_checkpoint(path, env_id=env, **given)


def _in_place_of_own(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that replace a replay buffer and noise, which only training needs."""
    config, own = manifest.get("config"), manifest.get("own_parts")
    if not isinstance(config, dict) or not isinstance(own, dict):
        return {}
    names = {name: config[name] for name in ("buffer", "exploration") if name in own}
    return {**names, "save_replay_buffer": False} if "buffer" in names else names


def parts_of_run(checkpoint: Path) -> dict[str, str]:
    """Return the names of the parts of a checkpoint's algorithm, without code.

    They are in the record of the checkpoint's run folder; a checkpoint outside a run folder has
    none.
    """
    folder = RunFolder(checkpoint.absolute().parent.parent)
    try:
        record = folder.read()
    except ConfigError:
        return {}
    options = record.get("options")
    parts = options.get("parts") if isinstance(options, dict) else None
    known = parts.items() if isinstance(parts, dict) else ()
    return {str(k): str(v) for k, v in known if not is_code(str(k))}
