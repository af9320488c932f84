"""Teams reach published scores: five seeds, 100 deterministic evaluation episodes each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import rlox

TWO_CARTPOLES = {"n_envs": 8, "n_steps": 128, "batch_size": 256, "learning_rate": 1e-3}


@pytest.mark.learn
@pytest.mark.parametrize("name", ["ippo", "mappo"])
def test_two_agents_balance_their_poles(name: str, score_seeds: Callable[..., list[float]]) -> None:
    """The worst of five seeds keeps both poles up for 400 steps after 300,000."""
    pytest.importorskip("pettingzoo")
    from two_cartpoles import TwoCartPoles

    def make(seed: int) -> rlox.Algorithm:
        return rlox.make(name, env=TwoCartPoles, seed=seed, **TWO_CARTPOLES)

    assert min(score_seeds(make, f"{name}-two_cartpoles", 300_000, 400.0)) >= 400.0
