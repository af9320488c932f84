"""Hooks into training. Every ``step`` is in env steps, whatever the number of envs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Callback", "CallbackList", "EvalCallback", "ProgressCallback"]


class Callback:
    """Base class: override the events of interest, the others do nothing.

    Every event gets ``step`` (env steps done so far) and ``algo`` (the algorithm) as keywords, and
    those named below; accept ``**kwargs`` for what later versions add.
    """

    def on_training_start(self, **kwargs: Any) -> None:
        """Handle the start, once, before the first env step."""

    def on_step(self, **kwargs: Any) -> bool:
        """Handle one vector step, N env steps of N envs; return False to stop training."""
        return True

    def on_rollout_end(self, **kwargs: Any) -> None:
        """Handle the end of a rollout; also gets ``batch``."""

    def on_train_batch(self, **kwargs: Any) -> None:
        """Handle one optimiser step; also gets ``gradient_step`` and ``metrics``."""

    def on_iteration_end(self, **kwargs: Any) -> None:
        """Handle the end of a collect-and-learn round; also gets ``metrics``."""

    def on_eval(self, **kwargs: Any) -> None:
        """Handle an evaluation; also gets ``result`` (``rlox.evaluation.EvaluationResult``)."""

    def on_training_end(self, **kwargs: Any) -> None:
        """Handle the end, once, also after an error; also gets ``metrics``."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed training needs, as nested dicts of arrays and plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""


class CallbackList(Callback):
    """Several callbacks in sequence.

    Args:
        callbacks: called in this order.
    """

    def __init__(self, callbacks: Iterable[Callback] | None = None) -> None:
        self.callbacks = list(callbacks or ())
        for callback in self.callbacks:
            if not isinstance(callback, Callback):
                raise TypeError(
                    "callbacks must be rlox.callbacks.Callback objects, got "
                    f"{type(callback).__name__}"
                )

    def listens(self, event: str) -> bool:
        """Return whether any callback handles ``event``, so that unheard events cost nothing."""
        return any(
            callback.listens(event)
            if isinstance(callback, CallbackList)
            else getattr(type(callback), event) is not getattr(Callback, event)
            for callback in self.callbacks
        )

    def on_training_start(self, **kwargs: Any) -> None:
        """Call every callback."""
        for callback in self.callbacks:
            callback.on_training_start(**kwargs)

    def on_step(self, **kwargs: Any) -> bool:
        """Call every callback; False if any returned False."""
        # a list, not a generator: every callback is called even after one said stop
        answers = [callback.on_step(**kwargs) for callback in self.callbacks]
        return False not in answers

    def on_rollout_end(self, **kwargs: Any) -> None:
        """Call every callback."""
        for callback in self.callbacks:
            callback.on_rollout_end(**kwargs)

    def on_train_batch(self, **kwargs: Any) -> None:
        """Call every callback."""
        for callback in self.callbacks:
            callback.on_train_batch(**kwargs)

    def on_iteration_end(self, **kwargs: Any) -> None:
        """Call every callback."""
        for callback in self.callbacks:
            callback.on_iteration_end(**kwargs)

    def on_eval(self, **kwargs: Any) -> None:
        """Call every callback."""
        for callback in self.callbacks:
            callback.on_eval(**kwargs)

    def on_training_end(self, **kwargs: Any) -> None:
        """Call every callback."""
        for callback in self.callbacks:
            callback.on_training_end(**kwargs)

    def state_dict(self) -> dict[str, Any]:
        """Return every callback's state under its class name, numbered where it occurs again."""
        return {name: callback.state_dict() for name, callback in self._named()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the callbacks that are in both; others start anew."""
        for name, callback in self._named():
            if name in state:
                callback.load_state_dict(state[name])

    def _named(self) -> Iterator[tuple[str, Callback]]:
        seen: Counter[str] = Counter()
        for callback in self.callbacks:
            name = type(callback).__name__
            seen[name] += 1
            yield f"{name}-{seen[name]}", callback


class EvalCallback(Callback):
    """Evaluate periodically and keep the best model.

    Args:
        eval_env: env to evaluate on; none: the one that the algorithm trains on, made anew.
        eval_freq: env steps between evaluations.
        n_eval_episodes: episodes per evaluation.
        best_model_path: where to save the best model so far; none: nowhere.
        verbose: print each result.
        deterministic: act with the mode of the policy rather than a sample.
        seed: seed of every evaluation, so that all see the same starts.
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
    ) -> None:
        if eval_freq < 1:
            raise ValueError(f"eval_freq must be at least 1, got {eval_freq}")
        self.eval_env = eval_env
        self.eval_freq = eval_freq
        self.n_eval_episodes = n_eval_episodes
        self.best_model_path = best_model_path
        self.verbose = verbose
        self.deterministic = deterministic
        self.seed = seed
        self.best_reward = float("-inf")
        self.eval_results: list[tuple[int, float]] = []
        """(env steps, mean return) of each evaluation."""
        self._next_eval = eval_freq

    def on_training_start(self, **kwargs: Any) -> None:
        """Count from the algorithm's present env step."""
        self._next_eval = (kwargs["step"] // self.eval_freq + 1) * self.eval_freq

    def on_step(self, **kwargs: Any) -> bool:
        """Evaluate when the next multiple of ``eval_freq`` has been reached or passed."""
        step, algo = kwargs["step"], kwargs["algo"]
        if step < self._next_eval:
            return True
        self._next_eval = (step // self.eval_freq + 1) * self.eval_freq
        result = algo.evaluate(
            self.eval_env,
            n_episodes=self.n_eval_episodes,
            deterministic=self.deterministic,
            seed=self.seed,
        )
        self.eval_results.append((step, result.mean_return))
        if self.verbose:
            print(
                f"evaluation at {step} env steps: return {result.mean_return:.1f} ± "
                f"{result.std_return:.1f} over {self.n_eval_episodes} episodes"
            )
        if algo.logger is not None:
            algo.logger.on_eval(
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
        algo.callbacks.on_eval(step=step, algo=algo, result=result)
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return the results so far; the best of them decides what the next best model is."""
        return {"eval_results": [list(result) for result in self.eval_results]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the results."""
        self.eval_results = [(int(step), float(mean)) for step, mean in state["eval_results"]]
        self.best_reward = max((mean for _, mean in self.eval_results), default=float("-inf"))


class ProgressCallback(Callback):
    """A progress bar: env steps, env steps per second, mean return, time left."""

    def __init__(self) -> None:
        self._progress: Any = None

    def on_training_start(self, **kwargs: Any) -> None:
        """Open the bar."""
        from rich.progress import (
            BarColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} env steps"),
            TextColumn("{task.fields[speed]:,.0f}/s"),
            TextColumn("return {task.fields[mean_reward]}"),
            TextColumn("ETA"),
            TimeRemainingColumn(compact=True),
            expand=True,
        )
        clock = kwargs["algo"].clock
        self._task = self._progress.add_task(
            kwargs["algo"].name,
            total=clock.target_env_steps,
            completed=clock.env_steps,
            speed=0.0,
            mean_reward="-",
        )
        self._progress.start()

    def on_iteration_end(self, **kwargs: Any) -> None:
        """Move the bar."""
        metrics = kwargs["metrics"]
        mean_reward = metrics.get("mean_reward", math.nan)
        self._progress.update(
            self._task,
            completed=kwargs["step"],
            speed=metrics["env_steps_per_second"],
            mean_reward="-" if math.isnan(mean_reward) else f"{mean_reward:.1f}",
        )

    def on_training_end(self, **kwargs: Any) -> None:
        """Close the bar."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
