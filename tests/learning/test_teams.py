"""Teams reach published scores: five seeds, 100 deterministic evaluation episodes each."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import rlox

ROOT = Path(__file__).parents[2]
TWO_CARTPOLES = {
    "n_envs": 8, "n_steps": 128, "batch_size": 256, "learning_rate": "linear(1e-3, 0)",
}  # fmt: skip
GAMES = {
    "n_envs": 16, "train_freq": 16, "gradient_steps": 8, "batch_size": 64, "learning_starts": 320,
    "learning_rate": 5e-3, "hidden": 16, "buffer_size": 4_000, "target_update_interval": 25,
    "steps_per_iteration": 640,
}  # fmt: skip
MATCHES = 200


@pytest.mark.learn
@pytest.mark.parametrize("name", ["ippo", "mappo"])
def test_two_agents_balance_their_poles(name, score_seeds):
    """The worst of five seeds keeps both poles up for 400 steps after 300,000."""
    pytest.importorskip("pettingzoo")
    from two_cartpoles import TwoCartPoles

    make = partial(rlox.make, name, env=TwoCartPoles, **TWO_CARTPOLES)
    assert min(score_seeds(make, f"{name}-two_cartpoles", 300_000, 400.0)) >= 400.0


@pytest.mark.learn
@pytest.mark.parametrize(("name", "best"), [("qmix", 8.0), ("vdn", 7.0)])
def test_the_two_step_game_is_valued_as_in_the_paper(name, best, score_seeds):
    """Under uniform exploration QMIX finds the game that pays 8 in every seed, VDN the other."""
    pytest.importorskip("pettingzoo")
    from team_games import two_step_game

    make = partial(rlox.make, name, env=two_step_game, gamma=1.0, epsilon=1.0, **GAMES)
    found = score_seeds(make, f"{name}-two_step_game", 4_000, best)
    assert found == [best] * 5


@pytest.mark.learn
@pytest.mark.parametrize("name", ["qmix", "vdn", "independent_q"])
def test_values_find_the_best_corner(name, score_seeds):
    """Both agents agree on a corner that pays 10, in every seed."""
    pytest.importorskip("pettingzoo")
    from team_games import penalty_game

    epsilon = "linear(1, 0.05, 600)"
    make = partial(rlox.make, name, env=penalty_game, epsilon=epsilon, **GAMES)
    assert score_seeds(make, f"{name}-penalty_game", 2_000, 10.0) == [10.0] * 5


@pytest.mark.learn
@pytest.mark.parametrize("name", ["ippo", "mappo"])
def test_policies_find_the_best_corner(name, score_seeds):
    """Both agents agree on a corner that pays 10, in every seed."""
    pytest.importorskip("pettingzoo")
    from team_games import penalty_game

    options = {"n_envs": 16, "n_steps": 8, "batch_size": 64, "learning_rate": 5e-3, "hidden": 8}

    make = partial(rlox.make, name, env=penalty_game, **options)
    assert score_seeds(make, f"{name}-penalty_game", 2_560, 10.0) == [10.0] * 5


class RandomPlayer:
    """Plays any legal action of a game with action masks.

    Args:
        seed: of the actions.
    """

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)

    def predict_team(self, obs, deterministic=True):
        """Return an action for each agent, drawn evenly."""
        return {
            name: np.where(masks, self._rng.random(masks.shape), -1.0).argmax(-1)
            for name, masks in obs["masks"].items()
        }


@pytest.mark.learn
def test_self_play_hardly_loses_to_a_random_player(score_seeds):
    """At most 2 of 200 games of tic-tac-toe are lost, in every seed, and the rating has risen."""
    pytest.importorskip("pettingzoo")
    from rlox_marl.matches import play_match

    game = "classic/tictactoe-v3"
    played = []

    make = partial(rlox.make, "ippo", env=game, config=ROOT / "examples/ippo-tic-tac-toe.yaml")

    def measure(algorithm):
        result = play_match(algorithm, RandomPlayer(0), game, n_games=MATCHES)
        found = {
            "mean_return": (result.wins - result.losses) / MATCHES,
            "wins": result.wins,
            "draws": result.draws,
            "losses": result.losses,
            "elo": algorithm.collector.pool.rating,
        }
        played.append(found)
        return found

    label = "ippo-tic_tac_toe"
    score_seeds(make, label, 300_000, 0.9, measure=measure, episodes=MATCHES)
    assert max(one["losses"] for one in played) <= 2
    assert min(one["elo"] for one in played) > 1_000.0
