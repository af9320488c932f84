"""``--seeds`` and ``--sweep``: many runs of one training setup.

Each run has a folder of its own.

If a run is Rust's work nearly all the time, they are threads of this process, which starts
once; else each has a process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from signal import raise_signal
from typing import TYPE_CHECKING, NoReturn, TextIO

from rlox import api, registry
from rlox.cli.flags import all_fields, given_options
from rlox.cli.output import print_progress
from rlox.cli.runs.callbacks import Interruption
from rlox.cli.runs.folder import RunFolder, require_unused, resume_command_of
from rlox.cli.runs.options import RunOptions
from rlox.cli.runs.parts import code_parts, load_parts
from rlox.cli.runs.run import resume_in_folder, train_in_folder
from rlox.cli.runs.signals import HANG_UP
from rlox.cli.stdout import stdout_is_broken
from rlox.cli.sweeps.folder import Member, Sweep, parse_sets
from rlox.cli.sweeps.places import Job, open_place
from rlox.cli.sweeps.processes import run_in_processes, usable_cores
from rlox.cli.sweeps.results import print_results
from rlox.cli.sweeps.threads import Training, run_in_threads
from rlox.config.files import to_yaml
from rlox.errors import ConfigError
from rlox.files import write_atomically
from rlox.seeding import draw_seed, parse_seeds

if TYPE_CHECKING:
    from rlox.algorithm import Algorithm
    from rlox.cli.sweeps.places import Place
    from rlox.config.model import Config

__all__ = [
    "arguments_of",
    "job_of",
    "reason_for_processes",
    "resume_sweep",
    "train_member",
    "train_sweep",
    "where_they_run",
]

THREAD_SAFE_LOGGERS = {"jsonl", "csv"}
"""Loggers whose only state is a file of the run."""


def train_sweep(name: str, config: Config, options: RunOptions) -> int:
    """Train the algorithm ``name`` once per seed and set of options, and return the exit code.

    Raises:
        RloxError: a name, the env, the seeds or the folder cannot be used; nothing was started.
    """
    if "seed" not in type(config).model_fields:
        raise ConfigError(f"the algorithm '{name}' has no option 'seed', which --seeds would set")
    if options.seeds is not None:
        seeds = parse_seeds(options.seeds)
    else:
        own_seed: int | None = config.to_dict()["seed"]
        seeds = (draw_seed() if own_seed is None else own_seed,)
    sets = parse_sets(options.sweep or [])
    registry.get_registry().get_all("rlox_loggers", options.loggers)
    path = options.run_dir or RunFolder.default_path(name, options.subject, "sweep")
    require_unused(path)
    configs = [_with_settings(config, settings) for settings in sets]
    # what is wrong with the options, the env or a callback is so for all seeds
    reasons = [reason_for_processes(name, each, options) for each in configs]
    sweep = Sweep(path, name, seeds, sets, options)
    for settings, config_of_set in zip(sets, configs, strict=True):
        sweep.folder_of(settings).mkdir(parents=True, exist_ok=True)
        # each run has a seed of its own
        common = {k: v for k, v in config_of_set.to_dict().items() if k != "seed"}
        text = to_yaml(common)
        write_atomically(sweep.folder_of(settings) / "config.yaml", text.encode())
    sweep.start()
    reason = next(filter(None, reasons), None)
    return _run(sweep, reason, options.jobs, options.on, quiet=options.quiet)


def resume_sweep(
    path: Path,
    *,
    jobs: int | None,
    env: str | None,
    quiet: bool,
    parts: Mapping[str, str] | None = None,
    on: str | None = None,
) -> int:
    """Finish the runs of a sweep that are not finished, and return the exit code.

    Args:
        path: the sweep's folder.
        jobs: runs at once; ``None`` takes one per core.
        env: env to train on; ``None`` takes the sweep's.
        quiet: show no progress.
        parts: the algorithm's parts that are code, which no file names.
        on: where they run, see :func:`rlox.cli.sweeps.places.open_place`.

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
        reason_for_processes(sweep.algorithm, config_class.load(each), options)
        for each in dict.fromkeys(member.config for member in todo)
    ]
    return _run(sweep, next(filter(None, reasons), None), jobs, on, env=env, quiet=quiet)


def _with_settings(config: Config, settings: Mapping[str, str]) -> Config:
    """Return the config with a set's options.

    Raises:
        ConfigError: an option is unknown, is the seed, or has no such value.
    """
    if "seed" in settings:
        raise ConfigError("--sweep cannot set the seed; --seeds does")
    known = {name: v for name, v in settings.items() if name in all_fields(type(config))}
    return config.replace(**{**settings, **given_options(type(config), known)})


def reason_for_processes(name: str, config: Config, options: RunOptions) -> str | None:
    """Return why runs need a process each; ``None`` if threads of one process suffice.

    Raises:
        RloxError: the algorithm cannot be made.
    """
    with api.make(
        name,
        options.env,
        config=config,
        callbacks=options.callbacks,
        **load_parts(options.parts),
    ) as algorithm:
        if not _is_in_rust(algorithm):
            return "the interpreter has a part in every step"
    if options.eval_freq:
        return "evaluations on the way are the interpreter's work"
    if options.callbacks:
        return "there are callbacks"
    if not THREAD_SAFE_LOGGERS.issuperset(options.loggers):
        return f"loggers other than {' and '.join(sorted(THREAD_SAFE_LOGGERS))}"
    return None


def _is_in_rust(algorithm: Algorithm) -> bool:
    return algorithm.learner is not None and algorithm.learner.releases_gil


def _run(
    sweep: Sweep,
    reason_for_processes: str | None,
    jobs: int | None,
    on: str | None,
    *,
    env: str | None = None,
    quiet: bool,
) -> int:
    todo = [member for member in sweep.members() if not member.finished()]
    report = _silent if quiet else _report
    codes: list[int] = []

    def on_start(job: Job | Training) -> None:
        report(f"{job.name}: started")

    def on_end(job: Job | Training, code: int) -> None:
        codes.append(code)
        outcome = "finished" if code == 0 else f"ended with exit code {code}; see {job.output}"
        report(f"{job.name}: {outcome} ({len(codes)}/{len(todo)})")

    with open_place(on) as place:
        slots = usable_cores() if place is None else place.slots
        at_once = min(jobs or slots, len(todo))
        where = where_they_run(place, reason_for_processes)
        report(f"{len(todo)} runs in {sweep.path}, {at_once} at once, {where}")
        if place is None and reason_for_processes is None:
            signal = _run_in_threads(sweep, todo, at_once, env, on_start, on_end)
        else:
            asked = [job_of(m.name, sweep, m, env) for m in todo]
            signal = run_in_processes(asked, at_once, on_start, on_end, place=place)
    if signal is not None:
        return _report_interrupted(sweep, env, signal)
    print_results(sweep)
    return next((code if code > 0 else 128 - code for code in codes if code), 0)


def where_they_run(place: Place | None, reason_for_processes: str | None) -> str:
    """Return where runs are executed, and why, in words."""
    if place is not None:
        return place.description
    return "in threads" if reason_for_processes is None else f"in processes: {reason_for_processes}"


def _report_interrupted(sweep: Sweep, env: str | None, signal: int) -> int:
    """Print what there is and how to finish it, and return the exit code."""
    print_results(sweep)
    command = resume_command_of(sweep.path, env or sweep.options.env, sweep.options.parts)
    print(f"interrupted; to finish: {command}", file=sys.stderr, flush=True)
    return 128 + signal


def _report(text: str) -> None:
    """Print a line; a broken pipe is handled as SIGHUP."""
    print_progress(text)
    if stdout_is_broken():
        raise_signal(HANG_UP)


def _silent(_text: str) -> None:
    """Print nothing."""


def _run_in_threads(
    sweep: Sweep,
    todo: Sequence[Member],
    at_once: int,
    env: str | None,
    on_start: Callable[[Training], None],
    on_end: Callable[[Training, int], None],
) -> int | None:
    from rlox.nn import torch_threads

    trainings = {Training(m.name, partial(train_member, sweep, m, env), m.output): m for m in todo}

    def abandon(running: Sequence[Training], signal: int) -> NoReturn:
        for training in running:
            if trainings[training].begun():
                folder = trainings[training].folder
                folder.read()
                folder.end("interrupted")
            on_end(training, 128 + signal)
        code = _report_interrupted(sweep, env, signal)
        sys.stdout.flush()
        os._exit(code)  # an ordinary exit waits for the threads

    with torch_threads(1):  # the setting is the process's
        return run_in_threads(list(trainings), at_once, on_start, on_end, abandon)


def train_member(
    sweep: Sweep, member: Member, env: str | None, interruption: Interruption, log: TextIO
) -> int:
    """Train a member in this thread, from where it stopped."""
    folder, how = member.folder.path, {"interruption": interruption, "log": log}
    if member.resumable():
        parts = sweep.options.parts
        return resume_in_folder(folder, env=env, quiet=False, parts=parts, **how)  # type: ignore[arg-type]
    config = registry.config_class(sweep.algorithm).load(member.config).replace(seed=member.seed)
    options = replace(sweep.options, run_dir=folder, env=env or sweep.options.env)
    return train_in_folder(sweep.algorithm, config, options, **how)  # type: ignore[arg-type]


def job_of(name: str, sweep: Sweep, member: Member, env: str | None) -> Job:
    """Return the job that trains a member from where it stopped, and again where it is lost."""
    again = partial(arguments_of, sweep, member, env)
    return Job(name, again(), member.output, again)


def arguments_of(sweep: Sweep, member: Member, env: str | None) -> tuple[str, ...]:
    """Return the command line, without ``rlox``, that trains a member from where it stopped."""
    folder = str(member.folder.path)
    if member.resumable():
        code = code_parts(sweep.options.parts)
        return ("resume", folder, *(() if env is None else ("--env", env)), *code)
    options = sweep.options if env is None else replace(sweep.options, env=env)
    common = ("--config", str(member.config), "--seed", str(member.seed), "--run-dir", folder)
    return ("train", sweep.algorithm, *options.to_flags(), *common)
