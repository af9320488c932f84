"""Periodic evaluation during training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlox.callbacks.base import Callback, CallbackList, Multiples
from rlox.config.model import require_integer
from rlox.errors import EnvError
from rlox.evaluation import MAX_STEPS, EvaluationResult, RunsEpisodes, evaluate, require_other_env
from rlox.logging.base import LoggerCallback


class EvalCallback(Callback):
    """Evaluate periodically and keep the best model.

    In a loop of your own, call ``on_step(step=…, algo=…)`` with anything that
    :func:`rlox.evaluate` takes; without ``step``, each call counts as one. If it has a ``logger``
    (:class:`rlox.logging.LoggerCallback`) or ``callbacks`` (:class:`CallbackList`), they hear of
    the results.

    Args:
        eval_env: env to evaluate on; ``None`` uses the one that the algorithm trains on, made
            again, or in a loop of your own that of ``algo.env_id``.
        eval_freq: env steps between evaluations.
        n_eval_episodes: episodes per evaluation.
        best_model_path: where ``algo.save`` is to save the best model so far; ``None`` saves none.
        verbose: print each result.
        deterministic: act with the mode of the policy rather than a sample.
        seed: seed of every evaluation, so that all see the same starts.
        max_steps: env steps after which an episode is taken to have no end, which is an error.

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
        """Count from the algorithm's present env step; one that begins has no results yet.

        Raises:
            EnvError: the env is the one that is trained on and cannot be made again.
        """
        step = kwargs.get("step", 0)
        self._due.count_from(step)
        if step == 0:  # what is there is of another algorithm
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
            print(
                f"evaluation at {step} {unit}: return {result.mean_return:.1f} ± "
                f"{result.std_return:.1f} over {self.n_eval_episodes} episodes"
            )
        logger, callbacks = getattr(algo, "logger", None), getattr(algo, "callbacks", None)
        if isinstance(logger, LoggerCallback):
            logger.on_eval(
                step,
                {
                    "mean_reward": result.mean_return,
                    "std_reward": result.std_return,
                    "mean_episode_length": float(result.lengths.mean()),
                },
            )
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
        """Return the results so far; the best of them decides what the next best model is."""
        return {"eval_results": [list(result) for result in self.eval_results]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the results."""
        self.eval_results = [(int(step), float(mean)) for step, mean in state["eval_results"]]
        self.best_reward = max((mean for _, mean in self.eval_results), default=float("-inf"))
