"""Tests of :mod:`rlox.training.loop` and of what every algorithm inherits."""

import copy
import math
import pickle

import pytest
from rlox.callbacks import Callback, CheckpointCallback
from rlox.logging import JsonlLogger
from rlox.training import Hooks
from rlox.training.checkpoint import steps_of
from rlox.training.hooks import Progress
from rlox_testing.probes import RowRecorder


class Trace(Callback):
    """Keeps every event with its env step."""

    def __init__(self, stop_at=math.inf):
        self.events = []
        self.details = []
        self.stop_at = stop_at

    def _keep(self, event, kwargs):
        self.events.append((event, kwargs["step"]))
        self.details.append(kwargs)

    def on_training_start(self, **kwargs):
        self._keep("start", kwargs)

    def on_step(self, **kwargs):
        self._keep("step", kwargs)
        return bool(kwargs["step"] < self.stop_at)

    def on_rollout_end(self, **kwargs):
        self._keep("rollout", kwargs)

    def on_train_batch(self, **kwargs):
        self._keep("batch", kwargs)

    def on_iteration_end(self, **kwargs):
        self._keep("iteration", kwargs)

    def on_training_end(self, **kwargs):
        self._keep("end", kwargs)

    def steps(self, event):
        """Return the env steps of one kind of event."""
        return [step for name, step in self.events if name == event]


def test_events_come_in_the_order_of_the_documentation(counting):
    """Start, vector steps, rollout, updates, iteration, end; each with its env step."""
    trace = Trace()
    algorithm = counting.CountingAlgorithm(
        "CartPole-v1", n_envs=3, n_steps=2, n_updates=2, callbacks=[trace]
    )
    algorithm.train(7)
    one = [("step", 3), ("step", 6), ("rollout", 6), ("batch", 6), ("batch", 6), ("iteration", 6)]
    two = [(event, step + 6) for event, step in one]
    assert trace.events == [("start", 0), *one, *two, ("end", 12)]
    assert all(details["algo"] is algorithm for details in trace.details)


def test_callback_stops_within_the_iteration(counting):
    """Returning False ends the training at that vector step."""
    trace, logger = Trace(stop_at=12), RowRecorder()
    algorithm = counting.CountingAlgorithm("CartPole-v1", callbacks=[trace], logger=logger)
    metrics = algorithm.train(1000)
    assert algorithm.clock.env_steps == 12
    assert algorithm.clock.iterations == 1
    assert trace.events[-2:] == [("step", 12), ("end", 12)]
    assert metrics == logger.rows[-1][1]


def test_callback_stops_between_iterations(counting):
    """Returning False at an iteration's end loses nothing of it, and starts no other."""

    class StopAfterTwo(Callback):
        def on_iteration_end(self, **kwargs):
            return bool(kwargs["algo"].clock.iterations < 2)

    trace, logger = Trace(), RowRecorder()
    algorithm = counting.CountingAlgorithm(
        "CartPole-v1", callbacks=[StopAfterTwo(), trace], logger=logger
    )
    metrics = algorithm.train(1000)
    assert trace.events[-2:] == [("iteration", 16), ("end", 16)]
    assert metrics == logger.rows[-1][1]
    assert metrics["mean_reward"] == 2.0


def test_stop_before_the_first_iteration_ends_has_no_metrics(counting):
    """There is no mean return yet."""
    algorithm = counting.CountingAlgorithm("CartPole-v1", callbacks=[Trace(stop_at=2)])
    metrics = algorithm.train(100)
    assert list(metrics) == ["mean_reward"]
    assert math.isnan(metrics["mean_reward"])


def test_training_end_is_reported_after_an_error(counting):
    """The error passes through, and callbacks can clean up before."""
    trace = Trace()
    algorithm = counting.CountingAlgorithm("CartPole-v1", callbacks=[trace])
    algorithm.fail_at = 1
    with pytest.raises(ArithmeticError, match="asked to fail"):
        algorithm.train(100)
    assert trace.events[-1] == ("end", 8)
    assert trace.steps("end") == [8]
    assert trace.details[-1]["metrics"]["mean_reward"] == 1.0


def test_metrics_that_are_no_dataclass_are_reported(counting):
    """A dict is what many would return first."""
    algorithm = counting.CountingAlgorithm("CartPole-v1")
    algorithm.iterate = lambda hooks: {"loss": 0.5}
    with pytest.raises(TypeError, match=r"'counting' must return a frozen dataclass .*, got dict"):
        algorithm.train(8)


def test_what_is_closed_trains_no_more(counting, tmp_path):
    """Its logger's files are closed; it can still be saved."""
    algorithm = counting.CountingAlgorithm("CartPole-v1", logger=JsonlLogger(tmp_path))
    algorithm.train(8)
    algorithm.close()
    with pytest.raises(RuntimeError, match="this 'counting' was closed, and its envs and logger"):
        algorithm.train(8)
    algorithm.save(tmp_path / "c.safetensors")


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.deepcopy, copy.copy])
def test_copying_points_to_checkpoints(counting, duplicate):
    """An algorithm holds envs, threads and files, of which there is one each."""
    with pytest.raises(TypeError) as caught:
        duplicate(counting.CountingAlgorithm("CartPole-v1"))
    assert str(caught.value) == (
        "this CountingAlgorithm cannot be copied or pickled; save(path) writes all of it, and "
        "CountingAlgorithm.from_checkpoint(path) makes another one"
    )


def test_train_without_a_number_finishes_an_interrupted_training(counting):
    """After a stop, the target stays and can be reached."""
    trace = Trace(stop_at=12)
    algorithm = counting.CountingAlgorithm("CartPole-v1", callbacks=[trace])
    algorithm.train(40)
    trace.stop_at = math.inf
    algorithm.train()
    assert algorithm.clock.target_env_steps == 40
    assert 40 <= algorithm.clock.env_steps < 48


@pytest.mark.parametrize(
    ("total", "message"),
    [
        (0, "total_timesteps must be at least 1, got 0"),
        (-5, "total_timesteps must be at least 1, got -5"),
        (True, "total_timesteps must be an integer, got True"),
        (2.5, "total_timesteps must be an integer, got 2.5"),
        ("1e3", "total_timesteps must be an integer, got '1e3'; pass 1_000"),
        (None, "there is no interrupted training to finish; pass total_timesteps"),
    ],
)
def test_wrong_length_is_refused(counting, total, message):
    """A refused call starts nothing and calls no callback."""
    trace = Trace()
    algorithm = counting.CountingAlgorithm("CartPole-v1", callbacks=[trace])
    with pytest.raises((TypeError, ValueError), match=f"^{message}$"):
        algorithm.train(total)
    assert trace.events == []
    assert algorithm.clock.target_env_steps == 0


def test_evaluate_uses_the_training_env_by_default(counting):
    """Two evaluations of one algorithm see the same starts."""
    algorithm = counting.CountingAlgorithm("CartPole-v1")
    first, second = algorithm.evaluate(n_episodes=3), algorithm.evaluate(n_episodes=3)
    assert first.returns.tolist() == second.returns.tolist()
    assert algorithm.evaluate("Acrobot-v1", n_episodes=1).mean_return < 0


def test_constructor_that_fails_frees_what_it_made(counting):
    """Whatever the subclass had made by then; the error is the constructor's own."""
    freed = []

    class Failing(counting.CountingAlgorithm):
        def __init__(self, env_id):
            super().__init__(env_id)
            self.resources.callback(freed.append, "env")
            raise RuntimeError("no such network")

    with pytest.raises(RuntimeError, match=r"^no such network$"):
        Failing("CartPole-v1")
    assert freed == ["env"]


@pytest.mark.parametrize("unit", ["env_steps", "gradient_steps"])
def test_steps_target_and_remaining_are_in_the_unit(unit):
    """The other counter plays no part."""
    clock = Progress(unit, env_steps=30, gradient_steps=7)
    done = {"env_steps": 30, "gradient_steps": 7}[unit]
    clock.extend(5)
    assert (clock.steps, clock.target, clock.remaining) == (done, done + 5, 5)
    setattr(clock, unit, done + 8)
    assert clock.remaining == 0
    assert clock.unit_text == unit.replace("_", " ")


def test_counter_that_an_older_checkpoint_lacks_begins_at_0():
    """An algorithm may count more than it did when the checkpoint was written."""
    clock = Progress("env_steps", env_steps=8)
    newer = Progress("env_steps", counters={"games": 5})
    newer.load_state_dict(clock.state_dict())
    assert (newer.env_steps, newer.counters) == (8, {"games": 0})


@pytest.mark.parametrize(
    ("unit", "counters", "message"),
    [
        ("tokens", {}, "step_unit must be one of env_steps, gradient_steps, got 'tokens'; declare"),
        ("iterations", {}, "got 'iterations'"),
        ("env_steps", {"env_steps": 0}, "an identifier that Progress does not have, got 'env_st"),
        ("env_steps", {"target": 0}, "got 'target'; rename it"),
        ("env_steps", {"target_tokens": 0}, "got 'target_tokens'; rename it"),
        ("env_steps", {"two words": 0}, "got 'two words'; rename it"),
    ],
)
def test_bad_counters_are_refused(unit, counters, message):
    """A name that would hide another, or a unit that nothing counts."""
    with pytest.raises(ValueError, match=message):
        Progress(unit, counters=counters)


def test_training_in_a_unit_of_its_own(counting, tmp_path, capsys):
    """Loop, callbacks, log rows and checkpoints count what the algorithm declares."""

    class Reading(counting.CountingAlgorithm):
        step_unit = "tokens"
        counters = ("prompts", "tokens")

        def iterate(self, hooks):
            hooks.count("prompts", 2)
            hooks.count("tokens", 10)
            return super().iterate(hooks)

    callbacks = CheckpointCallback(20, tmp_path)
    algorithm = Reading("CartPole-v1", callbacks=callbacks, logger=RowRecorder())
    algorithm.train(40)
    assert [step for step, _ in algorithm.logger.rows] == [10, 20, 30, 40]
    last = algorithm.logger.rows[-1][1]
    assert (last["prompts"], last["tokens"]) == (8, 40)
    assert "tokens_per_second" in last
    assert callbacks.saved_steps == [20, 40]
    assert "saved " in capsys.readouterr().out
    assert steps_of(tmp_path / "step-20.safetensors") == 20
    restored = Reading.from_checkpoint(tmp_path / "step-20.safetensors", callbacks=callbacks)
    restored.train()
    assert restored.clock == algorithm.clock
    with pytest.raises(ValueError, match="pass total_timesteps"):
        restored.train()
    with pytest.raises(ValueError, match=r"counters of 'counting' are \['prompts', 'tokens'\]"):
        Hooks(restored).count("token", 1)
