"""Teams learn envs of PettingZoo's makers: walkers, a speaker, knights, and who spreads out."""

from functools import partial

import numpy as np
import pytest
import rlox
from rlox.envs import make_team_env

SPEAKER = "mpe2/simple_speaker_listener_v4"
WALKERS = "sisl/multiwalker-v9"
SPREAD = "mpe2/simple_spread_v3"
KNIGHTS = "butterfly/knights_archers_zombies-v11"
COMMON = {
    "n_envs": 16, "n_epochs": 8, "learning_rate": 1e-3, "adam_eps": 1e-5, "max_grad_norm": 10.0,
    "hidden": 64, "normalize_values": "value_norm", "huber_delta": 10.0,
}  # fmt: skip
SHORT = {"n_steps": 25, "batch_size": 200, "gamma": 0.95, "gae_lambda": 0.9, "ent_coef": 0.003}
LONG = {"n_steps": 64, "batch_size": 512, "ent_coef": 0.003}
POLICIES = {"mappo", "ippo"}


class RandomTeam:
    """Draws each action evenly from its space.

    Args:
        env_id: of the env.
    """

    def __init__(self, env_id):
        env = make_team_env(env_id)
        self._groups = env.groups
        env.close()
        for number, group in enumerate(self._groups):
            group.action_space.seed(number)

    def predict_team(self, obs, deterministic=True):
        """Return an action for each agent."""
        return {
            group.name: np.array(
                [[group.action_space.sample() for _ in row] for row in obs["active"][group.name]]
            )
            for group in self._groups
        }


def half_interval(std, episodes):
    """Return half of the 95 % interval of a mean."""
    return 1.96 * std / episodes**0.5


@pytest.mark.learn
@pytest.mark.parametrize(
    ("name", "env_id", "env_steps", "options", "episodes", "n_seeds"),
    [
        ("mappo", WALKERS, 40_000, LONG, 100, 5),
        ("mappo", KNIGHTS, 40_000, LONG, 100, 5),
        ("qmix", SPREAD, 40_000, {"n_envs": 16}, 300, 5),
        ("mappo", SPEAKER, 40_000, SHORT, 300, 5),
        ("ippo", SPEAKER, 40_000, SHORT, 300, 5),
    ],
)
def test_teams_beat_random_actions(
    name, env_id, env_steps, options, episodes, n_seeds, score_seeds
):
    """In every seed the 95 % intervals do not touch.

    Policies draw their actions; values are acted on greedily.
    """
    pytest.importorskip("pettingzoo")
    random = rlox.evaluate(RandomTeam(env_id), env_id, n_episodes=episodes)
    bound = random.mean_return + half_interval(random.std_return, episodes)
    lower = []

    common = COMMON if name in POLICIES else {}
    make = partial(rlox.make, name, env=env_id, **(common | options))

    def measure(algorithm):
        result = algorithm.evaluate(n_episodes=episodes, deterministic=name not in POLICIES)
        lower.append(result.mean_return - half_interval(result.std_return, episodes))
        return {
            "mean_return": result.mean_return,
            "std_return": result.std_return,
            "random_mean_return": random.mean_return,
            "random_std_return": random.std_return,
        }

    label = f"{name}-{env_id.partition('/')[2]}"
    score_seeds(make, label, env_steps, bound, n_seeds, measure=measure, episodes=episodes)
    assert min(lower) > bound
