"""Teams learn small games within seconds."""

from __future__ import annotations

import pytest
from games import PenaltyGame
from rlox_marl.mappo import MAPPO


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("share", ["group", "agent"])
def test_the_penalty_game_is_played_at_its_optimum(seed, share) -> None:
    """Without a penalty both agents agree on a corner, in every seed."""
    options = {
        "n_envs": 16, "n_steps": 8, "batch_size": 64, "n_epochs": 4, "learning_rate": 5e-3,
        "hidden": 8, "share_parameters": share,
    }  # fmt: skip
    with MAPPO(PenaltyGame, seed=seed, **options) as algorithm:
        algorithm.train(2_560)
        assert algorithm.evaluate(n_episodes=2).mean_return == 10.0
