"""World models: policies that were learnt in imagination score in the env."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import rlox

ENV_STEPS = 6_000


@pytest.mark.learn
def test_dreamer_balances_with_its_default_options(
    score_seeds: Callable[..., list[float]],
) -> None:
    """Every seed reaches 450 on CartPole-v1."""

    def make(seed: int) -> rlox.Algorithm:
        return rlox.make("dreamer_v3", env="CartPole-v1", seed=seed)

    scores = score_seeds(make, "dreamer_v3-CartPole-v1", ENV_STEPS, 450.0, n_seeds=3)
    assert min(scores) >= 450
