"""``--seeds`` and ``--sweep``: many runs of one training setup, and a table of their results.

Each run has a folder of its own.

If a run spends nearly all its time in Rust, the runs are threads of this process, which starts
once; else each has a process.
"""

from __future__ import annotations

import csv
import math
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from signal import raise_signal
from typing import TextIO

from rlox import registry
from rlox.algorithm import make
from rlox.cli.flags import all_fields, given_options
from rlox.cli.output import print_pairs, print_progress, print_table, stdout_is_broken
from rlox.cli.places import Job, Place
from rlox.cli.runs.callbacks import HANG_UP, Interruption
from rlox.cli.runs.folder import LONGEST, RunFolder, resume_command_of
from rlox.cli.runs.options import RunOptions, code_parts, load_parts, require_unused
from rlox.cli.runs.run import resume_in_folder, train_in_folder
from rlox.config.files import to_yaml
from rlox.config.model import Config
from rlox.errors import ConfigError, RunError
from rlox.files import open_regular, write_atomically
from rlox.seeding import draw_seed, parse_seeds

from rlox_tools.analysis import Run, aggregate, bootstrap_iqm, default_metric, group_runs
from rlox_tools.sweeps.folder import Member, Sweep, parse_sets
from rlox_tools.sweeps.places import Processes, Threads, open_place, run_jobs

THREAD_SAFE_LOGGERS = {"jsonl", "csv"}
"""Loggers whose only state is a file of the run."""


def train_sweep(
    name: str,
    config: Config,
    options: RunOptions,
    *,
    seeds: str | None,
    sets: Sequence[str],
    jobs: int | None,
    on: str | None,
) -> int:
    """Train the algorithm ``name`` once per seed and set of options, and return the exit code.

    Args:
        name: registered name.
        config: the runs' common config.
        options: options of every run.
        seeds: as :func:`rlox.seeding.parse_seeds` takes them; ``None`` takes the config's seed.
        sets: as :func:`rlox_tools.sweeps.folder.parse_sets` takes them.
        jobs: runs at once; ``None`` takes one per core.
        on: where they run, see :func:`rlox_tools.sweeps.places.open_place`.

    Raises:
        RloxError: a name, the env, the seeds or the folder cannot be used; nothing was started.
    """
    if "seed" not in type(config).model_fields:
        raise ConfigError(f"the algorithm '{name}' has no option 'seed', which --seeds would set")
    if seeds is not None:
        of_runs = parse_seeds(seeds)
    else:
        own_seed: int | None = config.to_dict()["seed"]
        of_runs = (draw_seed() if own_seed is None else own_seed,)
    settings_of_sets = parse_sets(sets)
    registry.get_registry().get_all("rlox_loggers", options.loggers)
    path = options.run_dir or RunFolder.default_path(name, options.subject, "sweep")
    require_unused(path)
    configs = [_with_settings(config, settings) for settings in settings_of_sets]
    # a fault in the options, the env or a callback concerns all seeds
    reasons = [_reason_for_processes(name, each, options) for each in configs]
    sweep = Sweep(path, name, of_runs, settings_of_sets, options)
    for settings, config_of_set in zip(settings_of_sets, configs, strict=True):
        sweep.folder_of(settings).mkdir(parents=True, exist_ok=True)
        # each run has a seed of its own
        common = {k: v for k, v in config_of_set.to_dict().items() if k != "seed"}
        text = to_yaml(common)
        write_atomically(sweep.folder_of(settings) / "config.yaml", text.encode())
    sweep.start()
    reason = next(filter(None, reasons), None)
    return _run(sweep, reason, jobs, on, None, options.quiet)


def resume_sweep(
    path: Path,
    *,
    jobs: int | None,
    env: str | None,
    quiet: bool,
    parts: Mapping[str, str] | None = None,
    on: str | None = None,
) -> int:
    """Finish the unfinished runs of a sweep, and return the exit code.

    Args:
        path: the sweep's folder.
        jobs: runs at once; ``None`` takes one per core.
        env: env to train on; ``None`` takes the sweep's.
        quiet: show no progress.
        parts: the algorithm's parts that are code, which files never name.
        on: where they run, see :func:`rlox_tools.sweeps.places.open_place`.

    Raises:
        ConfigError: the sweep's record is damaged, or all its runs are finished.
    """
    sweep = Sweep.read(path)
    known = {**sweep.options.parts, **(parts or {})}
    sweep = replace(sweep, options=replace(sweep.options, parts=known))
    todo = [member for member in sweep.members() if not member.finished()]
    if not todo:
        raise ConfigError(f"the sweep '{path}' is finished")
    options = sweep.options if env is None else replace(sweep.options, env=env)
    config_class = registry.config_class(sweep.algorithm)
    reasons = [
        _reason_for_processes(sweep.algorithm, config_class.load(each), options)
        for each in dict.fromkeys(member.config for member in todo)
    ]
    return _run(sweep, next(filter(None, reasons), None), jobs, on, env, quiet)


def _with_settings(config: Config, settings: Mapping[str, str]) -> Config:
    """Return the config with a set's options.

    Raises:
        ConfigError: an option is unknown, is the seed, or refuses the value.
    """
    if "seed" in settings:
        raise ConfigError("--sweep cannot set the seed; --seeds does")
    known = {name: v for name, v in settings.items() if name in all_fields(type(config))}
    return config.replace(**{**settings, **given_options(type(config), known)})


def _reason_for_processes(name: str, config: Config, options: RunOptions) -> str | None:
    """Return why runs need a process each; ``None`` if threads of one process suffice.

    Raises:
        RloxError: the algorithm cannot be made.
    """
    with make(
        name, options.env, config=config, callbacks=options.callbacks, **load_parts(options.parts)
    ) as algorithm:
        if algorithm.learner is None or not algorithm.learner.releases_gil:
            return "the interpreter has a part in every step"
    if options.eval_freq:
        return "evaluations on the way are the interpreter's work"
    if options.callbacks:
        return "there are callbacks"
    if not THREAD_SAFE_LOGGERS.issuperset(options.loggers):
        return f"loggers other than {' and '.join(sorted(THREAD_SAFE_LOGGERS))}"
    return None


def _run(
    sweep: Sweep, reason: str | None, jobs: int | None, on: str | None, env: str | None, quiet: bool
) -> int:
    """Run the unfinished members, in processes if there is a reason, and return the exit code."""
    todo: dict[Job, Member] = {}
    for member in sweep.members():
        if not member.finished():
            again = partial(_arguments_of, sweep, member, env)
            todo[Job(member.name, again(), member.output, again)] = member
    codes: list[int] = []

    def report(text: str) -> None:
        """Print a line; a broken pipe is handled as SIGHUP."""
        if not quiet:
            print_progress(text)
            if stdout_is_broken():
                raise_signal(HANG_UP)

    def on_end(job: Job, code: int) -> None:
        codes.append(code)
        outcome = "finished" if code == 0 else f"ended with exit code {code}; see {job.output}"
        report(f"{job.name}: {outcome} ({len(codes)}/{len(todo)})")

    def train(job: Job, interruption: Interruption, log: TextIO) -> int:
        return _train_member(sweep, todo[job], env, interruption, log)

    here = Threads(train) if reason is None else Processes(reason)
    with open_place(on, here) as place, _torch_threads(place):
        at_once = min(jobs or place.slots, len(todo))
        report(f"{len(todo)} runs in {sweep.path}, {at_once} at once, {place.description}")
        signal = run_jobs(
            list(todo), place, at_once, lambda job: report(f"{job.name}: started"), on_end
        )
    if signal is None:
        print_results(sweep)
        return next((code if code > 0 else 128 - code for code in codes if code), 0)
    for member in todo.values():
        if member.begun() and member.folder.read()["status"] == "running":  # it was abandoned
            member.folder.end("interrupted")
    print_results(sweep)
    command = resume_command_of(sweep.path, env or sweep.options.env, sweep.options.parts)
    print(f"interrupted; to finish: {command}", file=sys.stderr, flush=True)
    if place is here and reason is None:
        sys.stdout.flush()
        os._exit(128 + signal)  # an ordinary exit waits for the threads
    return 128 + signal


def _torch_threads(place: Place) -> AbstractContextManager[None]:
    """Return a context in which torch uses one thread for each run."""
    if not isinstance(place, Threads):
        return nullcontext()
    from rlox.nn import torch_threads

    return torch_threads(1)  # the setting is process-wide


def _train_member(
    sweep: Sweep, member: Member, env: str | None, interruption: Interruption, log: TextIO
) -> int:
    """Train a member in this thread, from where it stopped."""
    folder, how = member.folder.path, {"interruption": interruption, "log": log}
    if member.resumable():
        parts = sweep.options.parts
        return resume_in_folder(folder, env=env, quiet=False, parts=parts, **how)  # type: ignore[arg-type]
    config = registry.config_class(sweep.algorithm).load(member.config).replace(seed=member.seed)
    options = replace(sweep.options, run_dir=folder, env=env or sweep.options.env)
    options.begin(sweep.algorithm, log)
    return train_in_folder(sweep.algorithm, config, options, **how)  # type: ignore[arg-type]


def _arguments_of(sweep: Sweep, member: Member, env: str | None) -> tuple[str, ...]:
    """Return the command line, without ``rlox``, that trains a member from where it stopped."""
    folder = str(member.folder.path)
    if member.resumable():
        code = code_parts(sweep.options.parts)
        return ("resume", folder, *(() if env is None else ("--env", env)), *code)
    options = sweep.options if env is None else replace(sweep.options, env=env)
    common = ("--config", str(member.config), "--seed", str(member.seed), "--run-dir", folder)
    return ("train", sweep.algorithm, *options.to_flags(), *common)


def print_results(sweep: Sweep) -> None:
    """Print a table of all runs, and write ``curves.csv`` of the finished ones."""
    runs = {
        m: Run(m.folder.path, m.folder.read() if m.begun() else {}, {}) for m in sweep.members()
    }
    first = ("options", "seed") if any(sweep.sets) else ("seed",)
    rows = [((m.set_name, str(m.seed))[-len(first) :], _row(run)) for m, run in runs.items()]
    columns = (*first, "status", "return", "steps", "wall time")
    print_table(columns, [(*names, *row) for names, row in rows], whole=first)
    pairs = {}
    for name in dict.fromkeys(m.set_name for m in runs):
        found = [run.evaluation for m, run in runs.items() if m.set_name == name]
        means = [each[0] for each in found if each is not None and math.isfinite(each[0])]
        if means:
            iqm = bootstrap_iqm([means])
            pairs[f"interquartile mean {name}".rstrip()] = (
                f"{iqm.value:.1f} [{iqm.low:.1f}, {iqm.high:.1f}] over {len(means)} seeds "
                "(95 % bootstrap interval)"
            )
    curves = _write_curves(sweep, [m for m, run in runs.items() if run.status == "finished"])
    if curves is not None:
        pairs["learning curves"] = f"{curves}; to draw: rlox plot {shlex.quote(str(sweep.path))}"
    print_pairs({**pairs, "sweep folder": str(sweep.path)})


def _row(run: Run) -> tuple[str, str, str, str]:
    seconds = run.record.get("training_seconds")
    return (
        run.record.get("status", "not begun"),
        "-" if run.evaluation is None else "{:.1f} ± {:.1f}".format(*run.evaluation),
        f"{run.steps:,}",
        f"{seconds:.1f} s" if isinstance(seconds, (int, float)) and seconds < LONGEST else "-",
    )


def _write_curves(sweep: Sweep, finished: Sequence[Member]) -> Path | None:
    """Write the returns over the training, with their interval over seeds.

    Nothing is written if the runs do not log that metric.
    """
    try:
        metric = default_metric(m.folder.path for m in finished)
        groups = group_runs(((m.set_name or None, m.folder.path) for m in finished), metric)
        tables = [(group.label, *aggregate(group.curves)) for group in groups]
    except RunError:
        return None
    if not tables:
        return None
    path = sweep.path / "curves.csv"
    with open_regular(path, "w") as file:
        writer = csv.writer(file)
        # all runs of one algorithm have the same unit
        unit = groups[0].curves[0].unit
        writer.writerow(("label", unit, "interquartile_mean", "low", "high"))
        for label, steps, found in tables:
            columns = (steps, found.value, found.low, found.high)
            rows = zip(*(column.round(3).tolist() for column in columns), strict=True)
            writer.writerows((label, *row) for row in rows)
    return path
