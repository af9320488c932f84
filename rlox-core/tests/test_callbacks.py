"""Tests of :mod:`rlox.callbacks`."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rlox.callbacks import Callback, CallbackList, EvalCallback, ProgressCallback
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


class Stopper(Callback):
    """Returns a fixed answer from the events that can stop, and counts the calls."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.calls = answer, 0

    def on_step(self, **kwargs: Any) -> Any:
        """Answer."""
        self.calls += 1
        return self.answer

    def on_iteration_end(self, **kwargs: Any) -> Any:
        """Answer."""
        return self.on_step()


@pytest.mark.parametrize("event", ["on_step", "on_iteration_end"])
@pytest.mark.parametrize(
    ("answers", "goes_on"),
    [([True, True], True), ([True, False], False), ([None, True], True), ([], True)],
)
def test_list_goes_on_unless_one_returns_false(
    event: str, answers: list[Any], goes_on: bool
) -> None:
    """Forgetting to return anything does not stop the training."""
    assert getattr(CallbackList(map(Stopper, answers)), event)(step=0) is goes_on


@pytest.mark.parametrize("event", ["on_step", "on_iteration_end"])
def test_list_calls_every_callback_even_when_one_stops(event: str) -> None:
    """A stop does not keep the others from seeing the step."""
    last = Stopper(True)
    getattr(CallbackList([Stopper(False), last]), event)(step=0)
    assert last.calls == 1


def test_list_listens_to_what_its_callbacks_handle() -> None:
    """Events that nobody overrides are not heard, also through nested lists."""
    assert not CallbackList([Callback(), Recorder()]).listens("on_step")
    assert CallbackList([Callback(), Stopper(True)]).listens("on_step")
    assert CallbackList([CallbackList([Stopper(True)])]).listens("on_step")
    assert not CallbackList([CallbackList([Callback()])]).listens("on_step")


def test_list_refuses_what_is_no_callback() -> None:
    """A function is a common mistake."""
    with pytest.raises(TypeError, match=r"must be rlox\.callbacks\.Callback objects, got function"):
        CallbackList([lambda **kwargs: True])  # type: ignore[list-item]


@pytest.mark.parametrize("n_envs", [1, 2, 3, 7, 10, 64])
def test_evaluation_at_every_multiple_of_eval_freq(counting: ModuleType, n_envs: int) -> None:
    """Each multiple is evaluated at the first vector step that reaches it, whatever N."""
    callback = EvalCallback(eval_freq=10, n_eval_episodes=1, verbose=False)
    algorithm = counting.CountingAlgorithm(
        "CartPole-v1", n_envs=n_envs, n_steps=5, callbacks=[callback]
    )
    algorithm.train(100)
    end = algorithm.clock.env_steps
    expected = sorted({-(-multiple // n_envs) * n_envs for multiple in range(10, end + 1, 10)})
    assert [step for step, _ in callback.eval_results] == [s for s in expected if s <= end]


def test_evaluation_goes_on_from_the_present_step(counting: ModuleType) -> None:
    """A second training does not repeat the multiples that are past."""
    callback = EvalCallback(eval_freq=10, n_eval_episodes=1, verbose=False)
    algorithm = counting.CountingAlgorithm("CartPole-v1", n_envs=1, n_steps=5, callbacks=[callback])
    algorithm.train(25)
    algorithm.train(15)
    assert [step for step, _ in callback.eval_results] == [10, 20, 30, 40]


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


def test_eval_freq_must_be_positive() -> None:
    """A frequency of nothing is refused."""
    with pytest.raises(ValueError, match=r"^eval_freq must be at least 1, got 0$"):
        EvalCallback(eval_freq=0)


def test_progress_bar_opens_and_closes(
    counting: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bar shows the env steps done and leaves the terminal as it was."""
    counting.CountingAlgorithm("CartPole-v1", callbacks=[ProgressCallback()]).train(16)
    assert "counting" in capsys.readouterr().out


def test_progress_bar_closes_after_an_error(counting: ModuleType) -> None:
    """A failing training leaves no live display behind."""
    callback = ProgressCallback()
    algorithm = counting.CountingAlgorithm("CartPole-v1", callbacks=[callback])
    algorithm.fail_at = 1
    with pytest.raises(ArithmeticError):
        algorithm.train(16)
    algorithm.fail_at = None
    algorithm.train(16)
