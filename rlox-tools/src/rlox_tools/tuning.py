"""Search for good options: spaces, trials and results of ``rlox tune``."""

import multiprocessing
import os
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import rlox
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from rlox.callbacks import EvalCallback
from rlox.cli.flags import all_fields, given_options
from rlox.cli.output import print_pairs, print_progress, print_table
from rlox.cli.runs.callbacks import ending_signals
from rlox.cli.runs.options import RunOptions, load_parts
from rlox.config.files import to_yaml
from rlox.config.model import Config
from rlox.config.schedules import Linear
from rlox.errors import ConfigError, RunError
from rlox.files import write_atomically

from rlox_tools.sweeps.places import usable_cores


def values_of(trial: Any, space: Sequence[str], config: Config) -> dict[str, Any]:
    """Return the values that a trial of Optuna suggests in a space.

    Args:
        trial: the trial.
        space: texts of an option with a range ``LOW:HIGH``, or ``log:LOW:HIGH`` to search its
            logarithm, or with values ``A,B,C``, such as ``"learning_rate=log:1e-5:1e-2"``.
        config: the other options; the ends and values must be valid together with them.

    Raises:
        ConfigError: a text has another form, or names an invalid option or value.
    """
    found: dict[str, Any] = {}
    for text in space:
        name, _, values = text.partition("=")
        name, ends = name.strip().replace("-", "_"), values.removeprefix("log:").split(":")
        if name in ("seed", "preset", *found):
            raise ConfigError(f"--space cannot search the option '{name}', or names it twice")
        try:
            if len(ends) == 1:
                ends = [value.strip() for value in values.split(",")]
                if len(set(filter(None, ends))) < max(2, len(ends)):
                    raise ValueError("values must be several and differ")
                found[name] = trial.suggest_categorical(name, ends)
            elif name in (fields := all_fields(type(config))):
                is_float = "float" in str(fields[name][0].annotation)
                low, high = map(float if is_float else int, ends)
                ask = trial.suggest_float if is_float else trial.suggest_int
                found[name] = ask(name, low, high, log=values.startswith("log:"))
        except ValueError as error:
            raise ConfigError(
                "--space must look like learning_rate=log:1e-5:1e-2, gamma=0.9:0.999 or "
                f"hidden=64,128, got {text!r}: {error}"
            ) from None
        for end in ends:
            with_values(config, {name: end})
    return found


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """Return a config with the values of a trial; a linear schedule keeps its shape.

    Raises:
        ConfigError: they contradict each other or other options.
    """
    changes: dict[str, Any] = {}
    for name, value in values.items():
        present = getattr(config, name, None)
        if isinstance(value, str) and name in all_fields(type(config)):
            changes |= given_options(type(config), {name: value})
        elif isinstance(present, Linear) and present.start:
            end = present.end * value / present.start
            changes[name] = Linear(start=value, end=end, until=present.until)
        else:
            changes[name] = value
    return config.replace(**changes)


class Pruning(EvalCallback):
    """Reports its evaluations to a trial, which Optuna may end."""

    trial: optuna.Trial
    before: int  # steps of the earlier seeds

    def on_eval(self, **kwargs: Any) -> None:
        """Report a mean return."""
        self.trial.report(kwargs["result"].mean_return, self.before + kwargs["step"])
        if self.trial.should_prune():
            raise optuna.TrialPruned


@dataclass(frozen=True)
class Search:
    """A search: its space, its folder, and the evaluation of a set of options."""

    path: Path
    algorithm: str
    config: Config
    space: tuple[str, ...]
    seeds: tuple[int, ...]
    options: RunOptions

    def storage(self) -> JournalStorage:
        """Return where Optuna keeps the study, a file in the folder."""
        path = (self.path / "study.log").absolute()  # else its lock outlives a killed process
        return JournalStorage(JournalFileBackend(str(path)))

    def make(self, config: Config) -> Any:
        """Return the algorithm with a set of options."""
        parts = load_parts(self.options.parts)
        return rlox.make(self.algorithm, self.options.env, config=config, **parts)

    def run_trial(self, _number: int) -> None:
        """Make a trial, in a worker process."""
        study = optuna.load_study(study_name="tune", storage=self.storage())
        study.optimize(self.objective, n_trials=1, catch=Exception)

    def objective(self, trial: optuna.Trial) -> float:
        """Return the mean return over the seeds with a trial's options."""
        trial.study.sampler = optuna.samplers.TPESampler(seed=trial.number)
        try:
            config = with_values(self.config, values_of(trial, self.space, self.config))
        except ConfigError as error:
            raise optuna.TrialPruned(str(error)) from None
        options, returns = self.options, list[float]()
        for index, seed in enumerate(self.seeds):
            with self.make(config.replace(seed=seed)) as algorithm:
                if options.eval_freq:
                    pruning = Pruning(None, options.eval_freq, options.eval_episodes, verbose=False)
                    pruning.trial, pruning.before = trial, index * options.total_timesteps
                    algorithm.callbacks.callbacks.append(pruning)
                algorithm.train(options.total_timesteps)
                result = algorithm.run_episodes(n_episodes=options.eval_episodes)
            returns.append(result.mean_return)
        return sum(returns) / len(returns)


def tune(search: Search, trials: int, jobs: int | None) -> None:
    """Run the missing trials, print the best and write its options.

    Args:
        search: the search.
        trials: total number of trials.
        jobs: trials at once; ``None`` takes one per core.

    Raises:
        RloxError: the space or the env cannot be used, or no trial was completed.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # of this process, not of the workers
    values_of(optuna.create_study().ask(), search.space, search.config)  # raises
    with search.make(search.config):  # raises errors that concern all trials
        search.path.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        study_name="tune", storage=search.storage(), direction="maximize", load_if_exists=True
    )
    left = trials - sum(t.state.name in ("COMPLETE", "PRUNED") for t in study.trials)
    jobs = max(1, min(jobs or usable_cores(), left))
    os.environ.setdefault("RLOX_NUM_THREADS", str(max(1, usable_cores() // jobs)))
    print_progress(f"to go on after an interruption: the same command, --run-dir {search.path}")
    spawn = multiprocessing.get_context("spawn")
    for number in ending_signals():  # a terminal's Ctrl-C comes to the workers too: they ignore it
        signal.signal(number, signal.default_int_handler)
    with ProcessPoolExecutor(jobs, spawn, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        try:
            list(pool.map(search.run_trial, range(left)))
        except BrokenProcessPool:
            raise RunError("a process was lost; the same command goes on") from None
        finally:
            for child in multiprocessing.active_children():
                child.terminate()
    done = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    if not done:
        raise RunError("no trial came to its end; the lines above say why")
    done.sort(key=lambda trial: trial.values, reverse=True)
    rows = [(str(t.number), f"{t.value:.1f}", *map(str, t.params.values())) for t in done]
    print_table(("trial", "return", *done[0].params), rows[:10], whole=("trial", "return"))
    best = with_values(search.config, done[0].params).to_dict()
    text = to_yaml({name: value for name, value in best.items() if name != "seed"})
    write_atomically(search.path / "best.yaml", text.encode())
    print_pairs({"best options": f"--config {search.path / 'best.yaml'}"})
