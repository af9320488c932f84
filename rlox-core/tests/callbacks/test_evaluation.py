"""Tests of :mod:`rlox.callbacks.evaluation`."""

import numpy as np
import pytest
from rlox.callbacks import Callback, CallbackList, EvalCallback
from rlox.errors import EnvError
from rlox.logging import LoggerCallback


class Recorder(Callback):
    """Keeps the result of every evaluation."""

    def __init__(self):
        self.evaluations = []

    def on_eval(self, **kwargs):
        """Keep step and result."""
        self.evaluations.append((kwargs["step"], kwargs["result"]))


class RecordingLogger(LoggerCallback):
    """Keeps the rows of evaluations."""

    def __init__(self):
        self.rows = []

    def on_eval(self, step, metrics):
        """Keep a row."""
        self.rows.append((step, dict(metrics)))


def test_evaluation_reaches_logger_and_callbacks(counting):
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


def test_best_model_is_saved_when_it_improves(counting, tmp_path):
    """The file holds the first of equally good models, and the best return is kept."""
    path = tmp_path / "models" / "best.rlox"
    callback = EvalCallback(eval_freq=8, n_eval_episodes=2, best_model_path=path, verbose=False)
    algorithm = counting.CountingAlgorithm("CartPole-v1", callbacks=[callback])
    algorithm.train(24)
    assert callback.best_reward == callback.eval_results[0][1]
    assert counting.CountingAlgorithm.from_checkpoint(path).clock.env_steps == 8


def test_env_that_is_trained_on_is_refused_before_training(counting, scripted):
    """An env that cannot be made again is reported at once, not at the first evaluation."""
    callback = EvalCallback(eval_freq=8, verbose=False)
    env = scripted.ScriptedEnv(0, [(1.0, True, False)])
    algorithm = counting.CountingAlgorithm(env, callbacks=[callback])
    with pytest.raises(EnvError, match=r"^cannot evaluate on the ScriptedEnv that is trained on"):
        algorithm.train(8)
    assert algorithm.clock.env_steps == 0


class Rule:
    """No algorithm of rlox: acts, and saves by leaving a file."""

    env_id = "CartPole-v1"
    logger = "not rlox's"

    def predict(self, obs, deterministic=True):
        """Push to where the pole leans."""
        return (np.asarray(obs)[:, 2] > 0).astype(np.int64)

    def save(self, path):
        """Leave a file."""
        path.touch()


@pytest.mark.parametrize("numbered", [True, False], ids=["step given", "no step"])
def test_a_loop_of_ones_own_needs_something_that_predicts(tmp_path, capsys, numbered):
    """And passes it as algo; calls are counted if they report no step."""
    rule, path = Rule(), tmp_path / "best"
    callback = EvalCallback(eval_freq=4, n_eval_episodes=2, best_model_path=path)
    callback.on_training_start(algo=rule)
    for step in range(1, 10):
        assert callback.on_step(algo=rule, **({"step": step} if numbered else {}))
    assert [step for step, _ in callback.eval_results] == [4, 8]
    assert path.exists()
    assert capsys.readouterr().out.startswith("evaluation at 4 env steps: return ")


def test_resumed_training_knows_the_best_result(counting, tmp_path):
    """The results are part of checkpoints, so that a worse model does not become the best."""
    callback = EvalCallback(eval_freq=8, n_eval_episodes=1, verbose=False)
    algorithm = counting.CountingAlgorithm("CartPole-v1", callbacks=[callback])
    algorithm.train(16)
    algorithm.save(tmp_path / "c.safetensors")
    fresh = EvalCallback(eval_freq=8, n_eval_episodes=1, verbose=False)
    counting.CountingAlgorithm.from_checkpoint(tmp_path / "c.safetensors", callbacks=[fresh])
    assert fresh.eval_results == callback.eval_results
    assert fresh.best_reward == callback.best_reward


def test_another_algorithm_has_no_results_yet(counting, tmp_path):
    """Its best model is its own; training on with the same one adds to its results."""
    best = tmp_path / "best.safetensors"
    callback = EvalCallback(eval_freq=8, n_eval_episodes=1, best_model_path=best, verbose=False)
    for _ in range(2):
        best.unlink(missing_ok=True)
        algorithm = counting.CountingAlgorithm("CartPole-v1", callbacks=[callback])
        algorithm.train(16)
        assert best.is_file()
        assert [step for step, _ in callback.eval_results] == [8, 16]
    algorithm.train(8)
    assert [step for step, _ in callback.eval_results] == [8, 16, 24]
