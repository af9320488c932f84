"""Learning rates that depend on the number of gradient steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from models import make_grpo, tiny_lm, weights
from rlox.algorithms import DPO, GRPO, SFT
from rlox.callbacks import Callback
from rlox.errors import ConfigError
from rlox_llm.language import LanguageAlgorithm

PROMPTS = torch.arange(12).reshape(4, 3)
ROWS = [{"prompt": [1, 2], "completion": [3 + i]} for i in range(4)]
PAIRS = [{"prompt": [1, 2], "chosen": [7], "rejected": [8 + i]} for i in range(4)]


def sft(**options: Any) -> SFT:
    """Return one gradient step an epoch."""
    return SFT(tiny_lm(), dataset=ROWS, **options)


def dpo(**options: Any) -> DPO:
    """Return one gradient step an epoch."""
    return DPO(tiny_lm(), tiny_lm(), dataset=PAIRS, **options)


def grpo(**options: Any) -> GRPO:
    """Return two gradient steps an epoch."""
    return make_grpo(dataset=PROMPTS, num_iterations=2, **options)


MAKERS: list[Callable[..., LanguageAlgorithm]] = [dpo, grpo]


class Rates(Callback):
    """Keeps the learning rate of every iteration, and stops after some."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.rates: list[float] = []
        self._stop_after = stop_after

    def on_iteration_end(self, **context: Any) -> bool:
        """Keep one."""
        self.rates.append(context["metrics"]["learning_rate"])
        return self._stop_after is None or len(self.rates) < self._stop_after


@pytest.mark.parametrize("make", MAKERS)
def test_a_line_ends_with_the_training(make: Callable[..., LanguageAlgorithm]) -> None:
    """Each gradient step has its own rate, which metrics report."""
    kept = Rates()
    algorithm = make(learning_rate="linear(0.01, 0)", callbacks=kept)
    algorithm.train(4)
    expected = [0.01, 0.0075, 0.005, 0.0025]
    if algorithm.steps_per_iteration == 2:
        expected = [0.00875, 0.00375]  # means over the gradient steps of an iteration
    assert kept.rates == pytest.approx(expected)


def test_a_schedule_is_that_of_adam() -> None:
    """Rates of 0.01 and 0.002 are what two trainings with these numbers do, one after the other."""
    scheduled = sft(schedules={"learning_rate": lambda step: 0.002 if step else 0.01})
    scheduled.train(2)
    numbers = sft(learning_rate=0.01)
    numbers.train(1)
    numbers.config = numbers.config.replace(learning_rate=0.002)
    numbers.schedules = type(numbers.schedules)(numbers.config)
    numbers.train(1)
    assert torch.equal(weights(scheduled), weights(numbers))


def test_an_interrupted_line_goes_on(tmp_path: Path) -> None:
    """To the end that it had, bit for bit."""
    whole, first = Rates(), Rates(stop_after=2)
    uninterrupted = sft(learning_rate="linear(0.01, 0)", batch_size=2, seed=3, callbacks=whole)
    uninterrupted.train(ROWS, n_epochs=2)
    stopped = sft(learning_rate="linear(0.01, 0)", batch_size=2, seed=3, callbacks=first)
    stopped.train(ROWS, n_epochs=2)
    stopped.save(tmp_path / "sft.rlox")
    second = Rates()
    resumed = SFT.from_checkpoint(
        tmp_path / "sft.rlox", model=tiny_lm(), dataset=ROWS, callbacks=second
    )
    resumed.train()
    assert first.rates + second.rates == whole.rates == pytest.approx([0.01, 0.0075, 0.005, 0.0025])
    assert torch.equal(weights(resumed), weights(uninterrupted))


@pytest.mark.parametrize("make", MAKERS)
def test_steps_of_ones_own_need_an_end(make: Callable[..., LanguageAlgorithm]) -> None:
    """Without one nothing is sampled or learnt, before a training and after it."""
    algorithm = make(learning_rate="linear(0.01, 0)")
    rows, before = algorithm.evaluated_rows(None, None), weights(algorithm)
    match = r"^learning_rate=linear\(0.01, 0.0\) goes on to the end of a training, and none runs; "
    with pytest.raises(ConfigError, match=match):
        algorithm.step_on(rows)
    assert torch.equal(weights(algorithm), before)
    assert algorithm.clock.gradient_steps == 0
    algorithm.train(2)
    with pytest.raises(ConfigError, match=match):
        algorithm.step_on(rows)
    ending = make(learning_rate="linear(0.01, 0, 4)")
    first = ending.step_on(rows)["learning_rate"]
    assert first == pytest.approx(0.01 if ending.steps_per_iteration == 1 else 0.00875)


def test_wrong_rates_are_refused() -> None:
    """By bounds, and by kind."""
    with pytest.raises(ConfigError, match=r"learning_rate: expected values in \[0.0, 1.0\]"):
        sft(learning_rate="linear(2, 0)")
    with pytest.raises(ConfigError, match="no schedule is named 'beta'"):
        dpo(schedules={"beta": lambda step: 0.1})
    with pytest.raises(ConfigError, match="must return values in"):
        sft(schedules={"learning_rate": lambda step: -1.0}).train(1)
