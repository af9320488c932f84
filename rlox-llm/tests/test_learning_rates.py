"""Learning rates that depend on the number of gradient steps."""

import pytest
import torch
from models import make_grpo, tiny_lm, weights
from rlox.algorithms import DPO, SFT
from rlox.callbacks import Callback
from rlox.errors import ConfigError

PROMPTS = torch.arange(12).reshape(4, 3)
ROWS = [{"prompt": [1, 2], "completion": [3 + i]} for i in range(4)]
PAIRS = [{"prompt": [1, 2], "chosen": [7], "rejected": [8 + i]} for i in range(4)]


def sft(**options):
    """Return an SFT with one gradient step an epoch."""
    return SFT(tiny_lm(), dataset=ROWS, **options)


def dpo(**options):
    """Return a DPO with one gradient step an epoch."""
    return DPO(tiny_lm(), tiny_lm(), dataset=PAIRS, **options)


def grpo(**options):
    """Return a GRPO with two gradient steps an epoch."""
    return make_grpo(dataset=PROMPTS, num_iterations=2, **options)


MAKERS = [dpo, grpo]


class Rates(Callback):
    """Stores the learning rate of every iteration, and may stop after some."""

    def __init__(self, stop_after=None):
        self.rates = []
        self._stop_after = stop_after

    def on_iteration_end(self, **context):
        """Store one."""
        self.rates.append(context["metrics"]["learning_rate"])
        return self._stop_after is None or len(self.rates) < self._stop_after


@pytest.mark.parametrize("make", MAKERS)
def test_a_line_ends_with_the_training(make):
    """Each gradient step has its own rate, which metrics report."""
    kept = Rates()
    algorithm = make(learning_rate="linear(0.01, 0)", callbacks=kept)
    algorithm.train(4)
    expected = [0.01, 0.0075, 0.005, 0.0025]
    if algorithm.steps_per_iteration == 2:
        expected = [0.00875, 0.00375]  # means over the gradient steps of an iteration
    assert kept.rates == pytest.approx(expected)


def test_an_interrupted_line_goes_on(tmp_path):
    """It goes on to its original end, bit for bit."""
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
def test_steps_of_ones_own_need_an_end(make):
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
