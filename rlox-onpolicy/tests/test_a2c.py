"""A2C: its update, its options, and its kinship with PPO."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from rlox.errors import ConfigError
from rlox.nn import FlatOptimizer
from rlox.testing import check_algorithm
from rlox_onpolicy.a2c import A2C
from rlox_onpolicy.ppo import PPO

SMALL: dict[str, Any] = {"n_envs": 2, "n_steps": 8, "env_backend": "gymnasium"}


def test_passes_the_conformance_suite() -> None:
    """A2C keeps every promise that rlox.testing checks, with continuous actions."""
    check_algorithm("a2c", env="Pendulum-v1", **SMALL)


@pytest.mark.parametrize(
    ("env", "normalize_advantages"), [("CartPole-v1", False), ("Pendulum-v1", True)]
)
def test_equals_ppo_with_one_epoch_of_one_minibatch(env: str, normalize_advantages: bool) -> None:
    """With the same optimiser, both have the same parameters after several iterations."""
    shared = {
        **SMALL,
        "seed": 3,
        "gamma": 0.97,
        "gae_lambda": 0.9,
        "vf_coef": 0.3,
        "ent_coef": 0.02,
        "learning_rate": "linear(1e-2, 0)",
        "normalize_advantages": normalize_advantages,
    }
    a2c = A2C(env, backend="torch", **shared)
    ppo = PPO(env, n_epochs=1, batch_size=16, backend="torch", **shared)
    rmsprop = partial(torch.optim.RMSprop, alpha=0.99, eps=1e-5)
    optimizer = FlatOptimizer(ppo.policy, rmsprop, max_grad_norm=0.5)
    ppo.optimizers = {"policy": optimizer}
    learner: Any = ppo.learner.learner
    learner._task = replace(learner._task, optimizer=optimizer)
    for algorithm in (a2c, ppo):
        algorithm.train(4 * 16)
    # the minibatch is shuffled, so its sums are added in another order
    torch.testing.assert_close(a2c.optimizer.parameters, optimizer.parameters, rtol=1e-4, atol=1e-5)


def test_one_row_cannot_be_standardised() -> None:
    """A rollout of one row with normalised advantages is refused with a remedy."""
    with pytest.raises(ConfigError, match="lengthen it or turn normalize_advantages off"):
        A2C("CartPole-v1", n_envs=1, n_steps=1, normalize_advantages=True)
