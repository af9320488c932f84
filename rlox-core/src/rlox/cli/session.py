"""One training run from the command line: build, train, save, evaluate, record."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, cast

from rlox import registry
from rlox.callbacks import Callback, CheckpointCallback, EvalCallback, ProgressCallback
from rlox.cli.callbacks import Interruption, ProgressLines
from rlox.cli.output import print_pairs
from rlox.cli.run_folder import RunFolder, require_unused
from rlox.logging import LoggerCallback, LoggerList
from rlox.specs import LoggerSpec, resolve

if TYPE_CHECKING:
    from rlox.algorithm import Algorithm
    from rlox.cli.training import RunOptions
    from rlox.config import Config

__all__ = ["train_in_folder"]


def train_in_folder(name: str, config: Config, options: RunOptions) -> int:
    """Train the algorithm ``name`` and return the exit code.

    Raises:
        RloxError: a name, the env or the run folder cannot be used; no training was done.
    """
    found, loggers = registry.get_registry(), options.logger or ["jsonl"]
    logger_specs = [cast("LoggerSpec", found.get("rlox_loggers", each).spec) for each in loggers]
    for each in options.callback or ():
        found.get("rlox_callbacks", each)
    if options.run_dir is not None:
        require_unused(options.run_dir)
    registry.algorithm_class(name)  # imports torch, which takes long enough to be interrupted
    algorithm = registry.make(name, options.env, config=config, callbacks=options.callback)
    folder = RunFolder(options.run_dir or RunFolder.default_path(algorithm, options.env))
    require_unused(folder.path)
    logger = LoggerList(*(resolve(spec.factory)(folder.path) for spec in logger_specs))
    algorithm.logger = logger
    folder.start(algorithm, options.env, options.total_timesteps)
    with Interruption() as interruption:
        algorithm.callbacks.callbacks += [*_callbacks(folder, options), interruption]
        try:
            return _train(algorithm, folder, options, logger, interruption)
        except KeyboardInterrupt:
            folder.end("interrupted", env_steps=algorithm.clock.env_steps)
            print(f"interrupted; what was saved is in {folder.path}", file=sys.stderr)
            return interruption.exit_code
        except BaseException:
            folder.end("failed", env_steps=algorithm.clock.env_steps)
            raise
        finally:
            algorithm.close()


def _callbacks(folder: RunFolder, options: RunOptions) -> list[Callback]:
    callbacks: list[Callback] = []
    if options.eval_freq:
        callbacks.append(
            EvalCallback(
                eval_freq=options.eval_freq,
                n_eval_episodes=options.eval_episodes,
                best_model_path=folder.checkpoint("best"),
                verbose=not options.quiet,
            )
        )
    if options.checkpoint_freq:
        callbacks.append(
            CheckpointCallback(options.checkpoint_freq, folder.checkpoints, verbose=False)
        )
    # two bars cannot share a terminal
    if not options.quiet and "progress" not in (options.callback or ()):
        callbacks.append(ProgressCallback() if sys.stdout.isatty() else ProgressLines())
    return callbacks


def _train(
    algorithm: Algorithm,
    folder: RunFolder,
    options: RunOptions,
    logger: LoggerCallback,
    interruption: Interruption,
) -> int:
    started = time.perf_counter()
    algorithm.train(options.total_timesteps)
    seconds = time.perf_counter() - started
    env_steps = algorithm.clock.env_steps
    if interruption.signal is not None:
        path = folder.checkpoint("interrupted")
        algorithm.save(path)
        folder.end("interrupted", env_steps=env_steps)
        print(f"interrupted at {env_steps:,} env steps; saved {path}", file=sys.stderr)
        return interruption.exit_code
    # before the evaluation, which may fail or be interrupted
    algorithm.save(folder.checkpoint("final"))
    result = algorithm.evaluate(n_episodes=options.eval_episodes)
    mean, std, length = result.mean_return, result.std_return, float(result.lengths.mean())
    logger.on_eval(
        env_steps, {"mean_reward": mean, "std_reward": std, "mean_episode_length": length}
    )
    folder.end(
        "finished",
        env_steps=env_steps,
        training_seconds=round(seconds, 3),
        evaluation={"mean": mean, "std": std, "n_episodes": options.eval_episodes},
    )
    print_pairs(
        {
            "evaluation return": f"{mean:.1f} ± {std:.1f} over {options.eval_episodes} episodes",
            "env steps": f"{env_steps:,}",
            "wall time": _duration(seconds),
            "env steps/s": f"{env_steps / seconds:,.0f}",
            "run folder": str(folder.path),
        }
    )
    return 0


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
