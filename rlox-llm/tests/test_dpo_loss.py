"""The losses of preference pairs against formulas in NumPy."""

import numpy as np
import pytest
import torch
from rlox_llm.losses import dpo_loss
from rlox_llm.plugin import rlox_preference_losses

BETA, EPS, TAU = 0.1, 0.1, 0.05
CHOSEN_LEN, REJECTED_LEN = np.array([5, 3, 7, 2, 4]), np.array([4, 6, 1, 7, 3])


def tokens():
    """Return log-probabilities (10, 7) of policy and reference, chosen first, and their mask."""
    rng = np.random.default_rng(1)
    policy, reference = rng.uniform(-4, 0, (2, 10, 7))
    mask = np.arange(7) < np.concatenate([CHOSEN_LEN, REJECTED_LEN])[:, None]
    return policy, reference, mask


def sums():
    """Return the arguments of ``dpo_loss``."""
    policy, reference, mask = tokens()
    p, r = ((x * mask).sum(1) for x in (policy, reference))
    return {
        "policy_chosen": torch.tensor(p[:5]),
        "policy_rejected": torch.tensor(p[5:]),
        "ref_chosen": torch.tensor(r[:5]),
        "ref_rejected": torch.tensor(r[5:]),
        "chosen_len": torch.tensor(CHOSEN_LEN),
        "rejected_len": torch.tensor(REJECTED_LEN),
    }


def s(x):
    """Return σ(x)."""
    return 1 / (1 + np.exp(-x))


def aot(c, r):
    """Return cdpo of the sorted differences."""
    a = {name: value.detach().numpy() for name, value in sums().items()}
    d = np.sort(a["policy_chosen"] - a["policy_rejected"]) - np.sort(
        a["ref_chosen"] - a["ref_rejected"]
    )
    return -(1 - EPS) * np.log(s(BETA * d)) - EPS * np.log(s(-BETA * d))


def normalized(c, r):
    """Return the difference of the log-ratios per token."""
    return c / CHOSEN_LEN - r / REJECTED_LEN


FORMULAS = {
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


def test_every_loss_has_a_formula():
    """A new loss needs its own formula here."""
    assert set(FORMULAS) == {spec.name for spec in rlox_preference_losses()}


@pytest.mark.parametrize("loss_type", FORMULAS)
def test_loss_is_the_formula(loss_type):
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
def test_wrong_calls_are_refused(change, message):
    """The error comes before any broadcast."""
    with pytest.raises(ValueError, match=message):
        dpo_loss(**{**sums(), **change})
