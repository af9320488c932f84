"""Learning, and best-of-N sampling, on tasks with known solutions."""

import math
import warnings

import numpy as np
import pytest
import torch
from models import Bandit, Replay, keep_gradients, tiny_lm
from rlox.algorithms import DPO, GRPO, BestOfN, OnlineDPO


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))]
)
def test_grpo_solves_a_two_token_bandit(seed):
    """The rewarded token has a probability of at least 0.99 within 200 updates."""
    model = Bandit()
    grpo = GRPO(
        model, None, lambda rows, prompts: [float(row[-1] == 1) for row in rows],
        group_size=8, kl_coef=0.0, max_new_tokens=1, learning_rate=0.05, seed=seed,
    )  # fmt: skip
    grpo.train([[0], [0]], n_epochs=200)
    assert grpo.clock.gradient_steps == 200
    assert float(model.logits.detach().softmax(0)[1]) >= 0.99


@pytest.mark.parametrize("n_right", [1, 4])
def test_the_gradient_on_the_bandit_is_exact(n_right):
    """-mean A_i (e_i - π) with e_i the sampled token, for every number of rewarded ones of 4."""
    model = Bandit()
    model.logits.data = torch.tensor([0.3, -0.4])
    tokens = [1] * n_right + [0] * (4 - n_right)
    grpo = GRPO(
        model, None, lambda rows, prompts: [float(row[-1]) for row in rows], group_size=4,
        kl_coef=0.0, max_new_tokens=1, max_grad_norm=None,
        generator=Replay(lambda prompts: [[token] for token in tokens]),
    )  # fmt: skip
    kept = keep_gradients(grpo)
    with warnings.catch_warnings():  # about groups of equal completions
        warnings.simplefilter("ignore")
        grpo.train_step([[0]])
    rewards = np.array(tokens, np.float64)
    advantages = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
    policy = np.exp([0.3, -0.4]) / np.exp([0.3, -0.4]).sum()
    expected = -(advantages[:, None] * (np.eye(2)[tokens] - policy)).mean(0)
    np.testing.assert_allclose(kept[0].numpy(), expected, atol=1e-7)


def test_dpo_ranks_the_pairs_it_learnt():
    """The accuracy rises from about half to all pairs."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 20, (3, 24, 4))
    pairs = [{"prompt": p, "chosen": c, "rejected": r} for p, c, r in zip(*rows, strict=True)]
    dpo = DPO(tiny_lm(), tiny_lm(), learning_rate=0.01, dataset=pairs, batch_size=8)
    dpo.train(150)
    assert dpo.evaluate() > 0.95


def test_online_dpo_is_preferred_to_its_reference():
    """The preference is for more sevens."""

    def better(pairs):
        return [int((b == 7).sum() > (a == 7).sum()) for a, b in pairs]

    online = OnlineDPO(tiny_lm(), tiny_lm(), better, learning_rate=0.02, sampler="rlox")
    prompts = torch.arange(32).reshape(16, 2) % 20
    online.train(prompts, n_epochs=40)
    assert online.evaluate(prompts) > 0.8


@pytest.mark.parametrize("n", [1, 4])
def test_best_of_n_has_the_expected_reward_and_divergence(n):
    """On a model whose samples can be enumerated: rewards 0..3 with known probabilities."""
    p = np.array([0.4, 0.3, 0.2, 0.1])
    model = Bandit(4)
    model.logits.data = torch.tensor(np.log(p), dtype=torch.float32)
    best = BestOfN(model, lambda rows, prompts: [float(row[-1]) for row in rows], n, 1)
    rows = best.generate(torch.zeros(4000, 1, dtype=torch.long))
    cumulative = np.append(0.0, p.cumsum()) ** n
    exact = np.diff(cumulative)
    expected = exact @ np.arange(4)
    deviation = math.sqrt(exact @ (np.arange(4) - expected) ** 2 / 4000)
    assert abs(float(rows[:, 1].double().mean()) - expected) < 4 * deviation
    found = np.bincount(rows[:, 1].numpy(), minlength=4) / 4000
    kl = sum(q * math.log(q / pi) for q, pi in zip(found, p, strict=True) if q)
    assert kl <= math.log(n) - (n - 1) / n + 0.01
