"""Progress counts in one unit, whichever the algorithm's is."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rlox.callbacks import CheckpointCallback
from rlox.logging import LoggerCallback
from rlox.training import Hooks
from rlox.training.checkpoint import steps_of
from rlox.training.progress import Progress, unit_of


@pytest.mark.parametrize("unit", ["env_steps", "gradient_steps"])
def test_steps_target_and_remaining_are_in_the_unit(unit: str) -> None:
    """The other counter plays no part."""
    clock = Progress(unit, env_steps=30, gradient_steps=7)
    done = {"env_steps": 30, "gradient_steps": 7}[unit]
    clock.extend(5)
    assert (clock.steps, clock.target, clock.remaining) == (done, done + 5, 5)
    setattr(clock, unit, done + 8)
    assert clock.remaining == 0
    assert clock.unit_text == unit.replace("_", " ")


@pytest.mark.parametrize("unit", ["env_steps", "gradient_steps"])
def test_state_is_the_counters_and_the_target(unit: str) -> None:
    """The unit is the class's to say, not the checkpoint's."""
    clock = Progress(unit, 1, 2, 3)
    clock.extend(4)
    restored = Progress(unit)
    restored.load_state_dict(clock.state_dict())
    assert restored == clock


def test_a_further_counter_can_be_the_unit() -> None:
    """Tokens, say: steps, target and text are of them, and all counters are saved."""
    clock = Progress("tokens", counters={"prompts": 0, "tokens": 0})
    clock.extend(100)
    clock.counters["tokens"] += 30
    clock.counters["prompts"] += 2
    assert (clock.steps, clock.target, clock.remaining) == (30, 100, 70)
    assert clock.progress() == {"tokens": 30}
    assert (clock.target_env_steps, clock.target_gradient_steps) == (0, 0)
    restored = Progress("tokens", counters={"prompts": 0, "tokens": 0})
    restored.load_state_dict(clock.state_dict())
    assert restored == clock
    assert unit_of(clock.state_dict()) == "tokens"


def test_counter_that_an_older_checkpoint_lacks_begins_at_0() -> None:
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
def test_bad_counters_are_refused(unit: str, counters: dict[str, int], message: str) -> None:
    """A name that would hide another, or a unit that nothing counts."""
    with pytest.raises(ValueError, match=message):
        Progress(unit, counters=counters)


def test_training_in_a_unit_of_its_own(
    counting: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Loop, callbacks, log rows and checkpoints count what the algorithm declares."""

    class Reading(counting.CountingAlgorithm):  # type: ignore[name-defined,misc]
        step_unit = "tokens"
        counters = ("prompts", "tokens")

        def iterate(self, hooks: Hooks) -> Any:
            hooks.count("prompts", 2)
            hooks.count("tokens", 10)
            return super().iterate(hooks)

    class Rows(LoggerCallback):
        def __init__(self) -> None:
            self.rows: list[tuple[int, dict[str, float]]] = []

        def on_train_step(self, step: int, metrics: Any) -> None:
            self.rows.append((step, dict(metrics)))

    callbacks = CheckpointCallback(20, tmp_path)
    algorithm = Reading("CartPole-v1", callbacks=callbacks, logger=Rows())
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
