"""Trials of ``rlox tune``: Optuna's values, run as sweeps over seeds."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from rlox.cli.output import print_progress
from rlox.cli.runs.folder import resume_command_of
from rlox.cli.sweeps.folder import Member
from rlox.cli.sweeps.places import Job, open_place
from rlox.cli.sweeps.processes import run_in_processes, usable_cores
from rlox.cli.sweeps.sweeping import (
    job_of,
    reason_for_processes,
    train_member,
    where_they_run,
)
from rlox.cli.sweeps.threads import Training, run_in_threads
from rlox.cli.tuning.folder import TuningFolder
from rlox.cli.tuning.results import print_tuning
from rlox.cli.tuning.space import with_values
from rlox.errors import ConfigError, import_extra
from rlox.files import read_text

__all__ = ["open_study", "resume_tuning", "tune"]

HOPELESS = 5
"""Trials one after the other whose runs failed, after which no other is begun."""

UNPRUNED = 4
"""Trials at the beginning that nothing is compared with."""


@dataclass(eq=False)
class Trial:
    """One set of options under way."""

    number: int
    asked: Any
    """Optuna's."""
    members: list[Member]
    begun: set[Member] = field(default_factory=set)
    codes: dict[Member, int] = field(default_factory=dict)
    """Exit codes of the runs that have ended."""
    reported: int = 0
    """Evaluations that Optuna knows."""
    pruned: bool = False

    def report(self) -> None:
        """Report the evaluations that all runs under way have made, and ask whether to go on."""
        found = [evaluations(member.folder.path) for member in self.begun]
        while found and not self.pruned and self.reported < min(map(len, found)):
            step = found[0][self.reported][0]
            values = [rows[self.reported][1] for rows in found]
            self.asked.report(sum(values) / len(values), step)
            self.reported += 1
            self.pruned = bool(self.asked.should_prune())


def evaluations(run: Path) -> list[tuple[int, float]]:
    """Return step and mean return of the evaluations that a run has logged so far.

    The one at the end, at the step of the last on the way, is left out.
    """
    try:
        lines = read_text(run / "metrics.jsonl").split("\n")[:-1]  # the last may be half a line
    except FileNotFoundError:
        return []
    rows = [json.loads(line) for line in lines if line]
    found: dict[int, float] = {}
    for row in rows:
        if row["kind"] == "eval":
            found.setdefault(int(row["step"]), float(row["mean_reward"]))
    return list(found.items())


def tune(folder: TuningFolder, *, jobs: int | None, quiet: bool, on: str | None = None) -> int:
    """Make the trials that are missing, and return the exit code.

    Args:
        folder: where they are kept.
        jobs: runs at once; ``None`` takes one per core.
        quiet: show no progress.
        on: where they run, see :func:`rlox.cli.sweeps.places.open_place`.

    Raises:
        MissingDependencyError: Optuna is not installed.
        RloxError: the algorithm cannot be made.
    """
    runner = Runner(folder, open_study(folder), quiet)
    reason = reason_for_processes(folder.algorithm, folder.config, folder.options)
    with open_place(on) as place:
        slots = usable_cores() if place is None else place.slots
        at_once = min(jobs or slots, folder.plan.trials * len(folder.plan.seeds))
        trials, where = folder.plan.trials, where_they_run(place, reason)
        runner.say(f"{trials} trials in {folder.path}, {at_once} runs at once, {where}")
        if place is None and reason is None:
            signal = runner.run_in_threads(at_once)
        else:
            signal = run_in_processes(
                runner.jobs(), at_once, runner.on_start, runner.on_end, runner.unwanted, place
            )
    if signal is not None:
        return runner.interrupted(signal)
    print_tuning(folder, runner.study)
    return 0


def resume_tuning(path: Path, *, jobs: int | None, quiet: bool, on: str | None = None) -> int:
    """Finish the trials of an interrupted search, and return the exit code.

    Raises:
        ConfigError: the record is damaged.
        MissingDependencyError: Optuna is not installed.
    """
    return tune(TuningFolder.read(path), jobs=jobs, quiet=quiet, on=on)


def open_study(folder: TuningFolder) -> Any:
    """Return Optuna's study in a folder; one that was begun goes on."""
    optuna = import_extra("optuna", "rlox tune", "tune")
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        study_name="tune",
        storage=JournalStorage(JournalFileBackend(str(folder.study))),
        direction="maximize",
        load_if_exists=True,
        pruner=optuna.pruners.MedianPruner(n_startup_trials=UNPRUNED),
    )
    # a study that goes on must not draw the same values again
    study.sampler = optuna.samplers.TPESampler(seed=len(study.trials))
    return study


class Runner:
    """What the pools of sweeps call while they run the trials of a study."""

    def __init__(self, folder: TuningFolder, study: Any, quiet: bool) -> None:
        self.folder = folder
        self.study = study
        self._quiet = quiet
        self._failures = 0
        """Trials whose runs failed since the last that did not."""
        self._of: dict[Job | Training, tuple[Trial, Member]] = {}

    def say(self, text: str) -> None:
        """Print a line."""
        if not self._quiet:
            print_progress(text)

    def trials(self) -> Iterator[Trial]:
        """Yield the trials to run: those that were interrupted, then new ones."""
        from optuna.trial import Trial as Asked
        from optuna.trial import TrialState

        for each in self.study.get_trials(states=[TrialState.RUNNING]):
            asked = Asked(self.study, each._trial_id)
            if set(each.params) != {d.name for d in self.folder.space}:
                self.study.tell(each.number, state=TrialState.FAIL)  # killed while it was asked
                continue
            sweep = self.folder.trial(each.number)
            if not (sweep.path / "sweep.json").is_file():
                self.folder.start_trial(each.number, with_values(self.folder.config, each.params))
            yield Trial(each.number, asked, sweep.members(), reported=len(each.intermediate_values))
        while len(self.study.trials) < self.folder.plan.trials and self._failures < HOPELESS:
            asked = self.study.ask()
            values = {each.name: each.suggest(asked) for each in self.folder.space}
            try:
                config = with_values(self.folder.config, values)
            except ConfigError as error:
                self.study.tell(asked, state=TrialState.FAIL)
                self.say(f"trial {asked.number}: {_text(values)}: left out: {error}")
                continue
            self.say(f"trial {asked.number}: {_text(values)}")
            members = self.folder.start_trial(asked.number, config).members()
            yield Trial(asked.number, asked, members)

    def _members(self) -> Iterator[tuple[Trial, Member]]:
        for trial in self.trials():
            for member in trial.members:
                if trial.pruned:
                    break
                if member.finished():  # before an interruption
                    trial.begun.add(member)
                    trial.codes[member] = 0
                    continue
                yield trial, member
            self._end(trial)

    def jobs(self) -> Iterator[Job]:
        """Yield the runs of all trials as processes."""
        for trial, member in self._members():
            name = f"trial {trial.number} {member.name}"
            sweep = self.folder.trial(trial.number)
            job = job_of(name, sweep, member, None)
            self._of[job] = trial, member
            yield job

    def run_in_threads(self, at_once: int) -> int | None:
        """Run the trials in threads of this process, and return the signal that came, if any."""
        from rlox.nn import torch_threads

        def trainings() -> Iterator[Training]:
            for trial, member in self._members():
                name = f"trial {trial.number} {member.name}"
                train = partial(train_member, self.folder.trial(trial.number), member, None)
                training = Training(name, train, member.output)
                self._of[training] = trial, member
                yield training

        with torch_threads(1):  # the setting is the process's
            return run_in_threads(trainings(), at_once, self.on_start, self.on_end, self._abandon)

    def _abandon(self, running: Sequence[Training], signal: int) -> NoReturn:
        for training in running:
            _, member = self._of[training]
            if member.begun():
                member.folder.read()
                member.folder.end("interrupted")
        code = self.interrupted(signal)
        sys.stdout.flush()
        os._exit(code)  # an ordinary exit waits for the threads

    def interrupted(self, signal: int) -> int:
        """Say how to go on, and return the exit code."""
        command = resume_command_of(self.folder.path, None)
        print(f"interrupted; to finish: {command}", file=sys.stderr, flush=True)
        return 128 + signal

    def on_start(self, job: Job | Training) -> None:
        """Count a run as under way."""
        trial, member = self._of[job]
        trial.begun.add(member)

    def on_end(self, job: Job | Training, code: int) -> None:
        """Report what a run has come to."""
        trial, member = self._of.pop(job)
        trial.codes[member] = code
        if self.folder.plan.prune:
            trial.report()
        self._end(trial)

    def unwanted(self, job: Job) -> bool:
        """Return whether the trial of a run is pruned, by what its runs have evaluated."""
        trial, _ = self._of[job]
        if self.folder.plan.prune and not trial.pruned:
            trial.report()
        return trial.pruned

    def _end(self, trial: Trial) -> None:
        """Report a trial to Optuna of which no run is under way or to come."""
        from optuna.trial import TrialState

        if len(trial.codes) < len(trial.begun if trial.pruned else trial.members):
            return
        records = [m.folder.read() if m.begun() else {} for m in trial.begun]
        returns = [(record.get("evaluation") or {}).get("mean") for record in records]
        if self.study.trials[trial.number].state.is_finished():
            return
        if trial.pruned:
            self.study.tell(trial.asked, state=TrialState.PRUNED)
            self.say(f"trial {trial.number}: pruned after {trial.reported} evaluations")
        elif None not in returns:
            mean = sum(float(value) for value in returns if value is not None) / len(returns)
            self.study.tell(trial.asked, mean)
            self._failures = 0
            self.say(f"trial {trial.number}: return {mean:.1f}")
        elif not any(record.get("status") == "interrupted" for record in records):
            self.study.tell(trial.asked, state=TrialState.FAIL)
            self._failures += 1
            logs = [str(m.output) for m, code in trial.codes.items() if code]
            self.say(f"trial {trial.number}: failed; see {', '.join(logs)}")


def _text(values: Any) -> str:
    shown = (f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in values.items())
    return ", ".join(shown)
