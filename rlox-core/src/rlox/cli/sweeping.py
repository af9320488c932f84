"""``--seeds``: several runs of one training, each in a process and a folder of its own."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlox import registry
from rlox.cli.output import print_pairs, print_table
from rlox.cli.processes import Job, run_jobs, usable_cores
from rlox.cli.run_folder import RunFolder, checkpoints_in, require_unused
from rlox.cli.run_options import RunOptions
from rlox.errors import ConfigError
from rlox.seeding import parse_seeds
from rlox.statistics import bootstrap_iqm

if TYPE_CHECKING:
    from rlox.config import Config

__all__ = ["is_sweep", "resume_sweep", "runs_of_sweep", "train_sweep"]


@dataclass(frozen=True)
class Sweep:
    """A folder with ``sweep.json``, ``config.yaml`` and a run folder for each seed."""

    path: Path
    algorithm: str
    seeds: tuple[int, ...]
    options: RunOptions

    def run(self, seed: int) -> RunFolder:
        """Return the run folder of a seed."""
        return RunFolder(self.path / f"seed-{seed}")

    def start(self) -> None:
        """Write ``sweep.json``."""
        record = {
            "algorithm": self.algorithm,
            "env": self.options.env,
            "seeds": self.seeds,
            "command": shlex.join(["rlox", *sys.argv[1:]]),
            "options": self.options.to_dict(),
        }
        text = json.dumps(record, indent=2) + "\n"
        (self.path / "sweep.json").write_text(text, encoding="utf-8")

    @staticmethod
    def read(path: Path) -> Sweep:
        """Return the sweep in a folder.

        Raises:
            ConfigError: it is damaged.
        """
        try:
            record = json.loads((path / "sweep.json").read_text(encoding="utf-8"))
            seeds = tuple(int(seed) for seed in record["seeds"])
            options = RunOptions.from_dict(record["options"])
            return Sweep(path, str(record["algorithm"]), seeds, options)
        except (ValueError, LookupError, TypeError) as error:
            raise ConfigError(f"'{path / 'sweep.json'}' is damaged: {error}") from None

    def job(self, seed: int, extra: Sequence[str] = ()) -> Job | None:
        """Return what is left to do for a seed; none: it is finished.

        Args:
            seed: of the run.
            extra: further flags for a run that is resumed.
        """
        folder = self.run(seed)
        output = self.path / f"seed-{seed}.log"
        name = f"seed {seed}"
        if (folder.path / "run.json").is_file():
            if folder.read()["status"] == "finished":
                return None
            if any(saved.path.stem != "best" for saved in checkpoints_in(folder.path)[0]):
                return Job(name, ("resume", str(folder.path), *extra), output)
        if folder.path.exists():  # it ended before anything was saved
            folder.path.rename(f"{folder.path}.superseded")
        config = str(self.path / "config.yaml")
        arguments = ["train", self.algorithm, *self.options.to_flags(), "--config", config]
        arguments += ["--seed", str(seed), "--run-dir", str(folder.path)]
        return Job(name, tuple(arguments), output)


def train_sweep(name: str, config: Config, options: RunOptions) -> int:
    """Train the algorithm ``name`` once per seed and return the exit code.

    Raises:
        RloxError: a name, the env, the seeds or the folder cannot be used; nothing was started.
    """
    seeds = parse_seeds(str(options.seeds))
    if "seed" not in type(config).model_fields:
        raise ConfigError(f"the algorithm '{name}' has no option 'seed', which --seeds would set")
    for each in options.loggers:
        registry.get_registry().get("rlox_loggers", each)
    path = options.run_dir or RunFolder.default_path(name, options.env, "sweep")
    require_unused(path)
    # what is wrong with the options, the env or a callback is so for all seeds
    registry.make(name, options.env, config=config, callbacks=options.callbacks).close()
    path.mkdir(parents=True, exist_ok=True)
    config.dump(path / "config.yaml")
    sweep = Sweep(path, name, seeds, options)
    sweep.start()
    return _run(sweep, [sweep.job(seed) for seed in seeds], options.jobs, quiet=options.quiet)


def resume_sweep(path: Path, *, jobs: int | None, env: str | None, quiet: bool) -> int:
    """Finish the runs of a sweep that are not finished, and return the exit code.

    Raises:
        ConfigError: the sweep's record is damaged, or all its runs are finished.
    """
    sweep = Sweep.read(path)
    extra = [] if env is None else ["--env", env]
    todo = [sweep.job(seed, extra) for seed in sweep.seeds]
    if not any(todo):
        raise ConfigError(f"the sweep '{path}' is finished")
    return _run(sweep, todo, jobs, quiet=quiet)


def is_sweep(path: Path) -> bool:
    """Return whether a folder is a sweep's."""
    return (path / "sweep.json").is_file()


def runs_of_sweep(path: Path) -> list[Path]:
    """Return the run folders of a sweep that were begun, by seed."""
    sweep = Sweep.read(path)
    runs = [sweep.run(seed).path for seed in sweep.seeds]
    return [run for run in runs if (run / "run.json").is_file()]


def _run(sweep: Sweep, todo: Sequence[Job | None], at_once: int | None, *, quiet: bool) -> int:
    jobs = [job for job in todo if job is not None]
    at_once = at_once or usable_cores()
    tell = _silent if quiet else partial(print, flush=True)
    codes: list[int] = []

    def on_end(job: Job, code: int) -> None:
        codes.append(code)
        outcome = "finished" if code == 0 else f"ended with exit code {code}; see {job.output}"
        tell(f"{job.name}: {outcome} ({len(codes)}/{len(jobs)})")

    tell(f"{len(jobs)} runs in {sweep.path}, {min(at_once, len(jobs))} at once")
    signal = run_jobs(jobs, at_once, lambda job: tell(f"{job.name}: started"), on_end)
    _print_results(sweep)
    if signal is not None:
        command = f"rlox resume {shlex.quote(str(sweep.path))}"
        print(f"interrupted; to finish: {command}", file=sys.stderr)
        return 128 + signal
    return next((code if code > 0 else 128 - code for code in codes if code), 0)


def _silent(_text: str) -> None:
    """Print nothing."""


def _print_results(sweep: Sweep) -> None:
    rows, means = [], []
    for seed in sweep.seeds:
        record = _record(sweep.run(seed))
        result = record.get("evaluation") or {}
        mean, std = (float(result.get(key, math.nan)) for key in ("mean", "std"))
        seconds = record.get("training_seconds")
        if math.isfinite(mean):
            means.append(mean)
        rows.append(
            (
                str(seed),
                record.get("status", "not begun"),
                f"{mean:.1f} ± {std:.1f}" if math.isfinite(mean) else "-",
                f"{record.get('gradient_steps', record.get('env_steps', 0)):,}",
                "-" if seconds is None else f"{seconds:.1f} s",
            )
        )
    print_table(("seed", "status", "return", "steps", "wall time"), rows, whole=("seed",))
    pairs = {"sweep folder": str(sweep.path)}
    if means:
        found = bootstrap_iqm([means])
        pairs = {
            "interquartile mean": f"{found.value:.1f} [{found.low:.1f}, {found.high:.1f}] over "
            f"{len(means)} seeds (95 % bootstrap interval)",
            **pairs,
        }
    print_pairs(pairs)


def _record(folder: RunFolder) -> dict[str, Any]:
    """Return what is known of a run, which may not have been begun."""
    return folder.read() if (folder.path / "run.json").is_file() else {}
