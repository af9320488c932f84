"""A stranger's losses for GRPO and DPO: by name, with options, in files, flags and checkpoints."""

import importlib
import sys

import pytest
import rlox
import torch
from rlox.errors import ConfigError
from rlox_llm.configs import GRPOConfig
from rlox_llm.losses import dpo_loss, grpo_loss
from torch import nn

PLUGIN = """
import rlox

@rlox.hookimpl
def rlox_policy_losses():
    yield rlox.LossSpec(
        "reinforce", "The policy gradient.", "stranger_losses:reinforce", "stranger_losses:Options"
    )
    yield rlox.LossSpec("number", "Returns no losses.", "stranger_losses:number")
    yield rlox.LossSpec("short", "Returns too few.", "stranger_losses:short")

@rlox.hookimpl
def rlox_preference_losses():
    yield rlox.LossSpec("exponential", "exp(-β d).", "stranger_losses:exponential")
    yield rlox.LossSpec("ranked", "Of the batch.", "stranger_losses:exponential", adds_up=False)
    yield rlox.LossSpec("number", "Returns no losses.", "stranger_losses:number")
"""

LOSSES = """
from rlox.config import Config, positive
from rlox_llm.losses import TokenLosses

class Options(Config):
    reinforce_scale: float = positive(1.0, help="factor", source="a test")

def reinforce(batch, *, options):
    return TokenLosses(-options.reinforce_scale * batch.advantages * batch.logps, average="sums")

def number(batch):
    return 3.0

def short(batch):
    return TokenLosses(batch.logps[:1])

def exponential(batch):
    return (-batch.logits).exp()
"""


@pytest.fixture(autouse=True)
def fixture_losses(install, tmp_path, monkeypatch):
    """Install the stranger's distribution."""
    (tmp_path / "site-packages" / "stranger_losses.py").write_text(LOSSES, encoding="utf-8")
    install("stranger-losses", PLUGIN)
    monkeypatch.delitem(sys.modules, "stranger_losses", raising=False)
    importlib.import_module("stranger_losses")
    yield
    sys.modules.pop("stranger_losses", None)


def model(seed=0):
    """Return a small language model."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Embedding(12, 4), nn.Linear(4, 12))


def reward(rows, prompts):
    """Reward each 7."""
    return [float((row == 7).sum()) for row in rows]


PROMPTS = torch.arange(8).reshape(4, 2)
PAIRS = [{"prompt": [1, 2], "chosen": [3, 4], "rejected": [5]}] * 3


def grpo(**options):
    """Make a GRPO without a reference."""
    return rlox.make(
        "grpo", model=model(), reward_fn=reward, kl_coef=0.0, dataset=PROMPTS, **options
    )


def test_a_policy_loss_is_found_by_name_with_its_options(tmp_path):
    """As a function, in a training, in a file, and in a checkpoint."""
    logps = torch.tensor([[-1.0, -2.0], [-0.5, 0.0]])
    advantages, mask = torch.tensor([1.0, -2.0]), torch.tensor([[1, 1], [1, 0]])
    loss, terms = grpo_loss(logps, None, None, advantages, mask, loss_type="reinforce")
    assert float(loss) == pytest.approx((3.0 - 1.0) / 2)
    assert float(terms.clip_fraction) == 0
    plain, scaled = (
        grpo(loss_type="reinforce", max_grad_norm=None, reinforce_scale=scale) for scale in (1, 3)
    )
    losses = [algorithm.train(1)["loss"] for algorithm in (plain, scaled)]
    assert losses[1] == pytest.approx(3 * losses[0])
    assert losses[0] != 0
    scaled.save(tmp_path / "saved")
    restored = type(scaled).from_checkpoint(
        tmp_path / "saved", model=model(5), reward_fn=reward, dataset=PROMPTS
    )
    assert restored.config.reinforce_scale == 3
    assert restored.train(1)["loss"] == scaled.train(1)["loss"]
    scaled.config.dump(tmp_path / "config.yaml")
    assert GRPOConfig.load(tmp_path / "config.yaml") == scaled.config


def test_parts_of_a_strangers_loss_add_up():
    """The average is applied by rlox, over the whole rollout."""
    whole, parts = (
        grpo(loss_type="reinforce", max_grad_norm=None, micro_batch_size=size) for size in (None, 3)
    )
    a, b = (algorithm.train(1)["loss"] for algorithm in (whole, parts))
    assert a == pytest.approx(b, abs=1e-6)
    gradients = (algorithm.optimizers["model"].gradients for algorithm in (whole, parts))
    torch.testing.assert_close(*gradients)


def test_a_preference_loss_is_found_by_name():
    """As a function, and in a training that it drives."""
    c, r = torch.tensor([-1.0, -2.0]), torch.tensor([-3.0, -1.0])
    loss, _ = dpo_loss(c, r, c * 0, r * 0, loss_type="exponential", beta=0.5)
    assert float(loss) == pytest.approx(float((-0.5 * (c - r)).exp().mean()))
    dpo = rlox.make(
        "dpo", model=model(), ref_model=model(), dataset=PAIRS, loss_type="exponential",
        learning_rate=0.01,
    )  # fmt: skip
    assert dpo.train(1)["loss"] == pytest.approx(1.0)
    assert dpo.train(20)["loss"] < 1.0


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: grpo(loss_type="reinforcee"), ConfigError,
         "unknown policy loss 'reinforcee'; did you mean 'reinforce'"),
        (lambda: grpo(reinforce_scale=2.0), ConfigError,
         "reinforce_scale needs loss_type='reinforce', got loss_type='dapo'"),
        (lambda: grpo(loss_type="number").train(1), TypeError,
         "loss_type 'number' must return a TokenLosses, got float"),
        (lambda: grpo(loss_type="short").train(1), ValueError,
         r"loss_type 'short' must return values \(16, 8\), one for each token, got \(1, 8\)"),
        (lambda: dpo_loss(*torch.zeros(4, 2), loss_type="number"), ValueError,
         r"loss_type 'number' must return one number per pair, \(2,\), got float"),
        (lambda: rlox.make("dpo", model=model(), ref_model=model(), loss_type="ranked",
                           micro_batch_size=1), ConfigError, "leave out micro_batch_size"),
    ],
)  # fmt: skip
def test_mistakes_are_named(call, kind, message):
    """Of the user, and of the stranger."""
    with pytest.raises(kind, match=message):
        call()
