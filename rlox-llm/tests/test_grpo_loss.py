"""The losses of sampled completions against formulas in NumPy."""

import math

import numpy as np
import pytest
import torch
from rlox_llm.losses import grpo_loss, kl_per_token
from rlox_llm.plugin import rlox_policy_losses

NAMES = [spec.name for spec in rlox_policy_losses() if spec.name != "cispo"]
LENGTHS = [7, 4, 1, 5, 3, 6]
CASES = [
    *({"loss_type": name} for name in NAMES),
    {"loss_type": "cispo", "epsilon_high": 1.3},
    {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.03},
    {"loss_type": "luspo", "importance_sampling_level": "sequence"},
    {"loss_type": "dapo", "epsilon_high": 0.28},
    {"loss_type": "dapo", "delta": 1.5},
    {"loss_type": "dapo", "delta": 1.5, "beta": 0.04},
    *({"loss_type": name, "beta": 0.04} for name in NAMES),
    {"loss_type": "dapo", "beta": 0.04, "use_bias_correction_kl": False},
]


def tensors():
    """Return an off-policy batch of six completions."""
    rng = np.random.default_rng(0)
    old = rng.uniform(-3, -0.1, (6, 7))
    mask = np.arange(7) < np.array(LENGTHS)[:, None]
    return {
        "logps": torch.tensor(old + 0.3 * rng.normal(size=old.shape)),
        "old_logps": torch.tensor(old),
        "ref_logps": torch.tensor(old + 0.3 * rng.normal(size=old.shape)),
        "advantages": torch.tensor(rng.normal(size=6)),
        "mask": torch.tensor(mask),
    }


def clipped(ratio, adv, low, high, delta):
    """Return -min(ρ A, clip(ρ) A)."""
    bounded = ratio if delta is None else min(ratio, delta)
    return -min(bounded * adv, min(max(ratio, 1 - low), 1 + high) * adv)


def by_loops(
    batch,
    loss_type="dapo",
    importance_sampling_level="token",
    epsilon=0.2,
    epsilon_high=None,
    delta=None,
    beta=0.0,
    use_bias_correction_kl=True,
):
    """Return the loss, one token after the other."""
    high = epsilon if epsilon_high is None else epsilon_high
    rows = []
    for lp, old, ref, adv, n in zip(
        *(batch[k].tolist() for k in ("logps", "old_logps", "ref_logps", "advantages")),
        LENGTHS,
        strict=True,
    ):
        logs = [a - b for a, b in zip(lp[:n], old[:n], strict=True)]
        row = []
        for t in range(n):
            log = sum(logs) / n if importance_sampling_level == "sequence" else logs[t]
            ratio = math.exp(log)
            if loss_type == "cispo":
                loss = -min(ratio, high) * adv * lp[t]
            elif loss_type == "sapo":
                tau = 1.0 if adv > 0 else 1.05
                loss = -4 / tau / (1 + math.exp(-tau * (ratio - 1))) * adv
            elif loss_type == "vespo":
                k, rate = (2.0, 3.0) if adv >= 0 else (3.0, 2.0)
                w = math.exp(sum(logs))
                loss = -(w**k) * math.exp(rate * (1 - w)) * adv * lp[t]
            else:
                loss = clipped(ratio, adv, epsilon, high, delta)
            r = ref[t] - lp[t]
            kl = math.exp(r) - r - 1
            row.append(loss + beta * kl * (ratio if use_bias_correction_kl else 1))
        rows.append(row)
    total = sum(sum(row) for row in rows)
    if loss_type in ("grpo", "sapo"):
        return sum(sum(row) / len(row) for row in rows) / len(rows)
    if loss_type == "dr_grpo":
        return total / (len(rows) * 8)
    if loss_type == "luspo":
        return total / len(rows)
    return total / sum(LENGTHS)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_loss_is_the_formula(case):
    """In double precision, with any values outside the mask."""
    batch = tensors()
    expected = by_loops(batch, **case)
    found, _ = grpo_loss(**batch, max_completion_length=8, **case)
    assert float(found) == pytest.approx(expected, abs=1e-9)
    spoilt = {
        name: value if value.dim() < 2 or value.dtype == torch.bool
        else value.masked_fill(~batch["mask"], -9.0)
        for name, value in batch.items()
    }  # fmt: skip
    assert float(grpo_loss(**spoilt, max_completion_length=8, **case)[0]) == pytest.approx(
        expected, abs=1e-9
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parts_of_a_batch_add_up(case):
    """With the counts of the whole batch, for every loss."""
    batch = tensors()
    whole, _ = grpo_loss(**batch, max_completion_length=8, **case)
    counts = {"num_tokens": sum(LENGTHS), "num_completions": 6, "max_completion_length": 8}
    parts = [
        grpo_loss(**{name: value[rows] for name, value in batch.items()}, **counts, **case)[0]
        for rows in (slice(0, 2), slice(2, 6))
    ]
    assert float(sum(parts)) == pytest.approx(float(whole), abs=1e-12)


def test_on_policy_ratio_is_one_and_the_gradient_the_policy_gradient():
    """Without old log-probabilities the gradient is -A / n per token."""
    batch = tensors()
    logps = batch["logps"].requires_grad_(True)
    loss, terms = grpo_loss(logps, None, None, batch["advantages"], batch["mask"])
    loss.backward()
    expected = -batch["advantages"][:, None] * batch["mask"] / sum(LENGTHS)
    torch.testing.assert_close(logps.grad, expected)
    assert float(terms.mean_ratio) == 1.0
    assert float(terms.clip_fraction) == 0.0


@pytest.mark.parametrize(
    ("estimator", "expected"), [("k1", 0.5), ("k2", 0.125), ("k3", math.exp(-0.5) + 0.5 - 1)]
)
def test_estimators_of_the_divergence(estimator, expected):
    """At log p - log q = 0.5."""
    found = kl_per_token(torch.tensor([[-1.0]]), torch.tensor([[-1.5]]), estimator)
    assert float(found) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss_type": "grop"}, "unknown policy loss 'grop'; did you mean 'grpo'"),
        ({"importance_sampling_level": "word"}, "must be one of token, sequence, got 'word'"),
        ({"beta": 0.1, "ref_logps": None}, "beta is 0.1, which needs ref_logps"),
        ({"beta": 0.1, "kl_estimator": "k4"}, "kl_estimator must be one of k1, k2, k3"),
        ({"beta": 0.1, "kl_estimator": "k1", "use_bias_correction_kl": False}, "0 in expectation"),
        ({"advantages": torch.zeros(6, 1)}, r"advantages must have shape \(6,\), got \(6, 1\)"),
        ({"mask": torch.ones(6, 1)}, r"mask must have shape \(6, 7\), got \(6, 1\)"),
        ({"logps": torch.zeros(6)}, r"logps must have shape \(B, T\)"),
    ],
)
def test_wrong_calls_are_refused(change, message):
    """The error comes before any broadcast."""
    with pytest.raises(ValueError, match=message):
        grpo_loss(**{**tensors(), **change})
