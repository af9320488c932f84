"""Periodic evaluation during training, and early stopping when returns no longer rise."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from rlox.callbacks.base import Callback, CallbackList, Multiples, require_at_least
from rlox.config.model import require_integer
from rlox.envs.evaluation import (
    MAX_STEPS,
    EvaluationResult,
    RunsEpisodes,
    evaluate,
    require_other_env,
)
from rlox.errors import EnvError
from rlox.logging.base import LoggerCallback


class EvalCallback(Callback):
    """Evaluate periodically and keep the best model.

    In a loop of your own, call ``on_step(step=…, algo=…)`` with anything that
    :func:`rlox.evaluate` takes; without ``step``, each call counts as one. Its ``logger``
    (:class:`rlox.logging.LoggerCallback`) and ``callbacks`` (:class:`CallbackList`), if any,
    receive the results.

    Args:
        eval_env: env to evaluate on; ``None`` makes another one like the training's, or in a loop
            of your own, one of ``algo.env_id``.
        eval_freq: env steps between evaluations.
        n_eval_episodes: episodes per evaluation.
        best_model_path: path for ``algo.save`` of the best model so far; ``None`` saves none.
        verbose: print each result.
        deterministic: act with the mode of the policy rather than a sample.
        seed: seed of every evaluation, so that all see the same starts.
        max_steps: env steps after which an episode counts as endless, which is an error.

    Raises:
        ValueError: ``eval_freq``, ``n_eval_episodes`` or ``max_steps`` is not positive.
    """

    def __init__(
        self,
        eval_env: Any = None,
        eval_freq: int = 10_000,
        n_eval_episodes: int = 5,
        best_model_path: str | Path | None = None,
        verbose: bool = True,
        *,
        deterministic: bool = True,
        seed: int = 0,
        max_steps: int = MAX_STEPS,
    ) -> None:
        require_integer("n_eval_episodes", n_eval_episodes, at_least=1)
        require_integer("max_steps", max_steps, at_least=1)
        self.eval_env = eval_env
        self.eval_freq = eval_freq
        self.n_eval_episodes = n_eval_episodes
        self.best_model_path = best_model_path
        self.verbose = verbose
        self.deterministic = deterministic
        self.seed = seed
        self.max_steps = max_steps
        self.best_reward = float("-inf")
        self.eval_results: list[tuple[int, float]] = []
        """(env steps, mean return) of each evaluation."""
        self._due = Multiples("eval_freq", eval_freq)

    def on_training_start(self, **kwargs: Any) -> None:
        """Count from the algorithm's present env step; a new algorithm has no results yet.

        Raises:
            EnvError: the env is the training's own and cannot be made again.
        """
        step = kwargs.get("step", 0)
        self._due.count_from(step)
        if step == 0:  # the results are another algorithm's
            self.eval_results, self.best_reward = [], float("-inf")
        algo = kwargs.get("algo")
        trained_on = getattr(algo, "env_source", None)
        require_other_env(algo, trained_on if self.eval_env is None else self.eval_env)

    def on_step(self, **kwargs: Any) -> bool:
        """Evaluate when the next multiple of ``eval_freq`` has been reached or passed.

        Raises:
            EnvError: there is no env to evaluate on, or an episode does not end.
        """
        step, algo = self._due.step_of(kwargs), kwargs["algo"]
        if not self._due.reached(step):
            return True
        result = self._evaluate(algo)
        self.eval_results.append((step, result.mean_return))
        if self.verbose:
            unit = getattr(getattr(algo, "clock", None), "unit_text", "env steps")
            name = getattr(algo, "return_name", "return")
            print(
                f"evaluation at {step} {unit}: {name} {result.mean_return:.1f} ± "
                f"{result.std_return:.1f} over {self.n_eval_episodes} episodes"
            )
        logger, callbacks = getattr(algo, "logger", None), getattr(algo, "callbacks", None)
        if isinstance(logger, LoggerCallback):
            logger.on_eval(step, result.metrics())
        if result.mean_return > self.best_reward:
            self.best_reward = result.mean_return
            if self.best_model_path is not None:
                algo.save(self.best_model_path)
        if isinstance(callbacks, CallbackList):
            callbacks.on_eval(step=step, algo=algo, result=result)
        return True

    def _evaluate(self, algo: Any) -> EvaluationResult:
        options: dict[str, Any] = {
            "n_episodes": self.n_eval_episodes,
            "deterministic": self.deterministic,
            "seed": self.seed,
            "max_steps": self.max_steps,
        }
        if isinstance(algo, RunsEpisodes):
            return algo.run_episodes(self.eval_env, **options)
        env = getattr(algo, "env_id", None) if self.eval_env is None else self.eval_env
        if env is None:
            raise EnvError(
                f"EvalCallback needs an env, and {type(algo).__name__} has no env_id; "
                "pass eval_env="
            )
        return evaluate(algo, env, **options)

    def state_dict(self) -> dict[str, Any]:
        """Return the results so far; later models are compared with the best of them."""
        return {"eval_results": [list(result) for result in self.eval_results]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the results."""
        self.eval_results = [(int(step), float(mean)) for step, mean in state["eval_results"]]
        self.best_reward = max((mean for _, mean in self.eval_results), default=float("-inf"))


Monitor = Literal["train", "eval"]
"""Source of the mean return: the training's last 100 finished episodes, reported once an
iteration, or evaluations."""

NOTHING_WATCHED = {
    "train": "return in this training; watch evaluations instead, with monitor='eval' and an "
    "EvalCallback",
    "eval": "evaluation in this training; add an EvalCallback with a smaller eval_freq",
}


class EarlyStoppingCallback(Callback):
    """Stop when the mean return of finished episodes has not improved for a while.

    The training stops between iterations, so that no collected data is lost. An iteration in which
    no episode ended does not count, since its mean return is not new.

    Args:
        patience: number of iterations, or of evaluations, without an improvement.
        min_delta: the return has to exceed the best one by more than this to count as improved.
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
        """Restore patience that has run out; forget the returns of another algorithm."""
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
            # an algorithm that does not count episodes is assumed to have finished one
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
        """Return the best return and the time since."""
        best = self.best if math.isfinite(self.best) else None  # JSON has no infinity
        return {"best": best, "waited": self.waited, "episodes": self._episodes}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the best return and the time since."""
        self.best = -math.inf if state["best"] is None else float(state["best"])
        self.waited = int(state["waited"])
        self._episodes = float(state["episodes"])
