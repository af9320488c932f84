"""Tests of :mod:`rlox.callbacks.evaluation`."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rlox.callbacks import Callback, CallbackList, EvalCallback
from rlox.evaluation import EvaluationResult
from rlox.logging import LoggerCallback


class Recorder(Callback):
    """Keeps the result of every evaluation."""

    def __init__(self) -> None:
        self.evaluations: list[tuple[int, EvaluationResult]] = []

    def on_eval(self, **kwargs: Any) -> None:
        """Keep step and result."""
        self.evaluations.append((kwargs["step"], kwargs["result"]))


class RecordingLogger(LoggerCallback):
    """Keeps the rows of evaluations."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []

    def on_eval(self, step: int, metrics: Any) -> None:
        """Keep a row."""
        self.rows.append((step, dict(metrics)))


def test_evaluation_reaches_logger_and_callbacks(counting: ModuleType) -> None:
    """Every callback hears of the result, and the logger gets a row."""
    recorder, logger = Recorder(), RecordingLogger()
    callback = EvalCallback(eval_freq=8, n_eval_episodes=3, verbose=False)
    algorithm = counting.CountingAlgorithm(
        "CartPole-v1", callbacks=[CallbackList([callback]), recorder], logger=logger
    )
    algorithm.train(16)
    assert [step for step, _ in recorder.evaluations] == [8, 16]
    for (step, result), (row_step, row) in zip(recorder.evaluations, logger.rows, strict=True):
        assert step == row_step
        assert len(result.returns) == 3
        assert row == {
            "mean_reward": result.mean_return,
            "std_reward": result.std_return,
            "mean_episode_length": float(result.lengths.mean()),
        }


def test_evaluations_see_the_same_starts(counting: ModuleType) -> None:
    """An unchanged policy gets the same result each time."""
    callback = EvalCallback(eval_freq=8, n_eval_episodes=2, verbose=False)
    counting.CountingAlgorithm("CartPole-v1", callbacks=[callback]).train(24)
    assert len({mean for _, mean in callback.eval_results}) == 1


def test_best_model_is_saved_when_it_improves(counting: ModuleType, tmp_path: Path) -> None:
    """The file holds the first of equally good models, and the best return is kept."""
    path = tmp_path / "models" / "best.rlox"
    callback = EvalCallback(eval_freq=8, n_eval_episodes=2, best_model_path=path, verbose=False)
    algorithm = counting.CountingAlgorithm("CartPole-v1", callbacks=[callback])
    algorithm.train(24)
    assert callback.best_reward == callback.eval_results[0][1]
    assert counting.CountingAlgorithm.from_checkpoint(path).clock.env_steps == 8


def test_evaluation_takes_its_own_env(counting: ModuleType) -> None:
    """The env to evaluate on may be another than the one trained on."""
    callback = EvalCallback("Acrobot-v1", eval_freq=8, n_eval_episodes=1, verbose=False)
    counting.CountingAlgorithm("CartPole-v1", callbacks=[callback]).train(8)
    assert callback.eval_results[0][1] < 0


def test_evaluation_prints_a_line_when_verbose(
    counting: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line has the env step, the mean and the number of episodes."""
    callback = EvalCallback(eval_freq=8, n_eval_episodes=1)
    counting.CountingAlgorithm("CartPole-v1", callbacks=[callback]).train(8)
    mean = callback.eval_results[0][1]
    assert capsys.readouterr().out == (
        f"evaluation at 8 env steps: return {mean:.1f} ± 0.0 over 1 episodes\n"
    )


@pytest.mark.parametrize("option", ["eval_freq", "n_eval_episodes"])
def test_counts_must_be_positive(option: str) -> None:
    """A frequency or a number of nothing is refused."""
    with pytest.raises(ValueError, match=rf"^{option} must be at least 1, got 0$"):
        EvalCallback(**{option: 0})


def test_resumed_training_knows_the_best_result(counting: ModuleType, tmp_path: Path) -> None:
    """The results are part of checkpoints, so that a worse model does not become the best."""
    callback = EvalCallback(eval_freq=8, n_eval_episodes=1, verbose=False)
    algorithm = counting.CountingAlgorithm("CartPole-v1", callbacks=[callback])
    algorithm.train(16)
    algorithm.save(tmp_path / "c.safetensors")
    fresh = EvalCallback(eval_freq=8, n_eval_episodes=1, verbose=False)
    counting.CountingAlgorithm.from_checkpoint(tmp_path / "c.safetensors", callbacks=[fresh])
    assert fresh.eval_results == callback.eval_results
    assert fresh.best_reward == callback.best_reward
