"""The losses of preference pairs against formulas in NumPy, and against TRL's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from rlox_llm.losses import DPO_LOSSES, dpo_loss

BETA, EPS, TAU = 0.1, 0.1, 0.05
CHOSEN_LEN, REJECTED_LEN = np.array([5, 3, 7, 2, 4]), np.array([4, 6, 1, 7, 3])


def tokens() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log-probabilities (10, 7) of policy and reference, chosen first, and their mask."""
    rng = np.random.default_rng(1)
    policy, reference = rng.uniform(-4, 0, (2, 10, 7))
    mask = np.arange(7) < np.concatenate([CHOSEN_LEN, REJECTED_LEN])[:, None]
    return policy, reference, mask


def sums(grad: bool = False) -> dict[str, Any]:
    """Return the arguments of ``dpo_loss``; the policy's as leaves if ``grad``."""
    policy, reference, mask = tokens()
    p, r = ((x * mask).sum(1) for x in (policy, reference))
    return {
        "policy_chosen": torch.tensor(p[:5], requires_grad=grad),
        "policy_rejected": torch.tensor(p[5:], requires_grad=grad),
        "ref_chosen": torch.tensor(r[:5]),
        "ref_rejected": torch.tensor(r[5:]),
        "chosen_len": torch.tensor(CHOSEN_LEN),
        "rejected_len": torch.tensor(REJECTED_LEN),
    }


def s(x: Any) -> Any:
    """Return σ(x)."""
    return 1 / (1 + np.exp(-x))


def aot(c: Any, r: Any) -> Any:
    """Return cdpo of the sorted differences."""
    a = {name: value.detach().numpy() for name, value in sums().items()}
    d = np.sort(a["policy_chosen"] - a["policy_rejected"]) - np.sort(
        a["ref_chosen"] - a["ref_rejected"]
    )
    return -(1 - EPS) * np.log(s(BETA * d)) - EPS * np.log(s(-BETA * d))


def normalized(c: Any, r: Any) -> Any:
    """Return the difference of the log-ratios per token."""
    return c / CHOSEN_LEN - r / REJECTED_LEN


FORMULAS: dict[str, Callable[[Any, Any], Any]] = {
    "sigmoid": lambda c, r: np.log1p(np.exp(-BETA * (c - r))),
    "hinge": lambda c, r: np.maximum(0, 1 - BETA * (c - r)),
    "ipo": lambda c, r: (normalized(c, r) - 5.0) ** 2,
    "robust": lambda c, r: (
        (-(1 - EPS) * np.log(s(BETA * (c - r))) + EPS * np.log(s(-BETA * (c - r)))) / (1 - 2 * EPS)
    ),
    "cdpo": lambda c, r: -(1 - EPS) * np.log(s(BETA * (c - r))) - EPS * np.log(s(-BETA * (c - r))),
    "sppo_hard": lambda c, r: (c - 5) ** 2 + (r + 5) ** 2,
    "nca_pair": lambda c, r: (
        -np.log(s(BETA * c)) - np.log(s(-BETA * c)) / 2 - np.log(s(-BETA * r)) / 2
    ),
    "bco_pair": lambda c, r: -np.log(s(BETA * c)) - np.log(s(-BETA * r)),
    "apo_zero": lambda c, r: 1 - s(BETA * c) + s(BETA * r),
    "apo_down": lambda c, r: s(BETA * c) + 1 - s(BETA * (c - r)),
    "exo_pair": lambda c, r: (
        s(BETA * (c - r)) * np.log(s(BETA * (c - r)) / (1 - EPS))
        + s(-BETA * (c - r)) * np.log(s(-BETA * (c - r)) / EPS)
    ),
    "aot": aot,
    "discopop": lambda c, r: (
        -np.log(s(BETA * (c - r))) * (1 - s(BETA * (c - r) / TAU))
        + np.exp(-BETA * (c - r)) * s(BETA * (c - r) / TAU)
    ),
    "sigmoid_norm": lambda c, r: -np.log(s(BETA * normalized(c, r))),
}


def test_every_loss_has_a_formula() -> None:
    """A new one needs its own."""
    assert set(FORMULAS) == set(DPO_LOSSES)


@pytest.mark.parametrize("loss_type", DPO_LOSSES)
def test_loss_is_the_formula(loss_type: str) -> None:
    """In double precision."""
    batch = sums()
    c = (batch["policy_chosen"] - batch["ref_chosen"]).numpy()
    r = (batch["policy_rejected"] - batch["ref_rejected"]).numpy()
    found, terms = dpo_loss(**batch, loss_type=loss_type, beta=BETA, label_smoothing=EPS)
    assert float(found) == pytest.approx(float(FORMULAS[loss_type](c, r).mean()), abs=1e-9)
    assert float(terms.chosen_reward) == pytest.approx(BETA * c.mean(), abs=1e-12)
    assert float(terms.rejected_reward) == pytest.approx(BETA * r.mean(), abs=1e-12)
    assert float(terms.accuracy) == (c > r).mean()
    assert float(terms.margin) == pytest.approx(BETA * (c - r).mean(), abs=1e-12)


@pytest.mark.parametrize("loss_type", DPO_LOSSES)
def test_loss_in_single_precision(loss_type: str) -> None:
    """To 1e-5."""
    options = {"loss_type": loss_type, "beta": BETA, "label_smoothing": EPS}
    expected, _ = dpo_loss(**sums(), **options)
    single = {k: v.float() if v.is_floating_point() else v for k, v in sums().items()}
    found, _ = dpo_loss(**single, **options)
    assert float(found) == pytest.approx(float(expected), abs=1e-5, rel=1e-5)


def trl_loss(loss_type: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of TRL's trainer and its gradient by each completion's log-probability."""
    pytest.importorskip("trl", reason="trl is not installed")
    from types import SimpleNamespace
    from unittest.mock import MagicMock

    from trl import DPOTrainer

    class Trainer:
        def __getattr__(self, name: str) -> Any:
            return None

    policy, reference, mask = tokens()
    leaf = torch.tensor(policy * mask, requires_grad=True)
    logits = torch.zeros(10, 8, 3, dtype=torch.float64)

    def model(log_probs: torch.Tensor) -> Any:
        output = MagicMock(log_probs=log_probs, logits=logits, entropy=torch.zeros(10, 7),
                           mean_logits=torch.zeros(10, 7),
                           is_top1=torch.zeros(10, 7).bool())  # fmt: skip
        return lambda **_: output

    trainer = Trainer()
    accelerator = MagicMock(device="cpu")
    accelerator.gather_for_metrics = lambda x: x
    accelerator.gather = lambda x: x
    trainer.__dict__.update(
        loss_types=[loss_type], loss_weights=[1.0], beta=BETA, label_smoothing=EPS,
        f_divergence_type="reverse_kl", model=MagicMock(training=True), accelerator=accelerator,
        ref_model=model(torch.tensor(reference * mask)), _metrics=MagicMock(), _tp_size=1,
        _total_train_tokens=0,
        args=SimpleNamespace(gradient_checkpointing_kwargs=None, discopop_tau=TAU),
    )  # fmt: skip
    completion_mask = torch.cat([torch.zeros(10, 1), torch.tensor(mask)], 1).long()
    inputs = {
        "input_ids": torch.zeros(10, 8, dtype=torch.long),
        "attention_mask": torch.ones(10, 8, dtype=torch.long),
        "completion_mask": completion_mask,
    }
    loss = DPOTrainer._compute_loss(trainer, model(leaf), inputs, False)
    loss.backward()
    return loss, leaf.grad[:, 0]  # every completion has a first token


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("loss_type", [name for name in DPO_LOSSES if name != "cdpo"])
def test_loss_and_gradient_are_trls(loss_type: str) -> None:
    """On the same tensors; exo_pair holds float32 constants there."""
    expected, gradient = trl_loss(loss_type)
    batch = sums(grad=True)
    found, _ = dpo_loss(**batch, loss_type=loss_type, beta=BETA, label_smoothing=EPS)
    found.backward()
    ours = torch.cat([batch["policy_chosen"].grad, batch["policy_rejected"].grad])
    bound = 1e-6 if loss_type == "exo_pair" else 1e-9
    assert float(found) == pytest.approx(float(expected), abs=bound)
    torch.testing.assert_close(ours, gradient, rtol=0, atol=bound)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss_type": "sigmod"}, "unknown preference loss 'sigmod'; did you mean 'sigmoid'"),
        ({"beta": 0.0}, "beta must be positive, got 0.0"),
        ({"label_smoothing": 0.5}, r"label_smoothing must lie in \[0, 0.5\), got 0.5"),
        ({"loss_type": "exo_pair"}, "needs label_smoothing above 0"),
        ({"loss_type": "ipo", "chosen_len": None}, "needs chosen_len and rejected_len"),
        ({"ref_chosen": torch.zeros(5, 1)}, r"ref_chosen must have shape \(5,\), got \(5, 1\)"),
        ({"policy_chosen": torch.zeros(5, 1)}, r"policy_chosen must have shape \(B,\)"),
    ],
)
def test_wrong_calls_are_refused(change: dict[str, Any], message: str) -> None:
    """Before anything is broadcast."""
    with pytest.raises(ValueError, match=message):
        dpo_loss(**{**sums(), **change})
