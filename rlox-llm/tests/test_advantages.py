"""Advantages within groups, with completions that may lack a reward."""

import numpy as np
import pytest
import torch
from models import Bandit, count_sevens, make_grpo
from rlox.algorithms import GRPO, BestOfN
from rlox_llm.grpo import flat_groups, group_advantages

NAN = float("nan")
REWARDS = np.array([0.9, NAN, 0.7, 0.1, 0.5, NAN, NAN, 0.5, NAN, NAN, 1.0, NAN])
"""Three groups of four: three rewards, two equal ones, a single one."""


@pytest.mark.parametrize("leave_one_out", [False, True])
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_what_got_no_reward_counts_in_no_mean(scale, leave_one_out):
    """Advantages equal NumPy's, group by group."""
    everything = REWARDS[~np.isnan(REWARDS)]
    expected = np.zeros(12)
    for start in (0, 4, 8):
        places = [i for i in range(start, start + 4) if not np.isnan(REWARDS[i])]
        kept = REWARDS[places]
        for i, reward in zip(places, kept, strict=True):
            if leave_one_out:
                expected[i] = reward - (kept.sum() - reward) / max(len(kept) - 1, 1)
                expected[i] *= len(kept) > 1
                continue
            std = {"group": kept.std(ddof=1) if len(kept) > 1 else 0.0,
                   "batch": everything.std(ddof=1), "none": 1 - 1e-4}[scale]  # fmt: skip
            expected[i] = (reward - kept.mean()) / (std + 1e-4)
    found = group_advantages(REWARDS, 4, scale, leave_one_out)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_groups_are_flat_by_the_rewards_that_are_there():
    """A group with one reward or none is flat."""
    assert flat_groups(REWARDS, 4) == pytest.approx(2 / 3)
    assert flat_groups(np.array([NAN, NAN, 1.0, 2.0]), 2) == 0.5
    assert flat_groups(np.array([0.0, 1.0, 1.0, 1.0]), 2) == 0.5


def test_algorithms_leave_out_what_got_no_reward():
    """In learning, in evaluations, and in best-of-N."""

    def reward_fn(completions, prompts):
        return [float(row[-1]) if row[-1] else None for row in completions]

    model = Bandit(3)
    grpo = GRPO(model, None, reward_fn, group_size=64, kl_coef=0.0, max_new_tokens=1)
    metrics = grpo.train_step([[1]])
    assert 1 < metrics["mean_reward"] < 2
    result = grpo.run_episodes([[1]] * 64, n_episodes=None, deterministic=False)
    assert len(result.returns) == len(result.lengths) < 64
    assert 1 < result.mean_return < 2
    best = BestOfN(model, reward_fn, n=64, max_new_tokens=1).generate(torch.ones(2, 1).long())
    assert best[:, 1].tolist() == [2, 2]
    assert grpo.evaluate([[1]] * 64) > 1
    with pytest.raises(ValueError, match="no completion got a reward"):
        make_grpo(model, [lambda c, p: [None] * len(c)]).train_step([[1]])
    assert make_grpo(model, [reward_fn, count_sevens]).train_step([[1]])
