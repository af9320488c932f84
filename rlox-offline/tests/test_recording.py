"""What is recorded is what happened."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import rlox
from rlox.errors import DatasetError, SpaceError
from rlox_offline.datasets import KINDS, RecordingVecEnv, record, record_sets

pytest.importorskip("rlox_onpolicy")


class Walk(gymnasium.Env):
    """Counts its steps, ends after four of them, and rewards the action; resets to 100."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,))

    def __init__(self, truncates: bool = False) -> None:
        self.truncates = truncates

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.array([100.0], np.float32), {}

    def step(self, action):
        self.steps += 1
        end = self.steps == 4
        obs = np.array([100.0 + self.steps], np.float32)
        return obs, float(action[0]), end and not self.truncates, end and self.truncates, {}


@pytest.mark.parametrize("truncates", [False, True])
def test_true_final_observations_are_kept(truncates: bool) -> None:
    """Not those after the reset; the episodes of an env lie in a row, the last one cut."""
    dataset = record(None, lambda: Walk(truncates), 20, n_envs=2, normalize=False)
    columns = dataset.columns
    assert columns["obs"][:, 0].tolist() == ([100, 101, 102, 103] * 2 + [100, 101]) * 2
    assert columns["next_obs"][:, 0].tolist() == ([101, 102, 103, 104] * 2 + [101, 102]) * 2
    assert dataset.episode_lengths.tolist() == [4, 4, 2] * 2
    assert columns["terminated"].sum() == (0 if truncates else 4)
    np.testing.assert_allclose(columns["rewards"], columns["actions"][:, 0])
    assert (dataset.act_low.tolist(), dataset.act_high.tolist()) == ([-2.0], [2.0])


def test_same_seed_records_the_same() -> None:
    """And another seed another."""
    first, again, other = (record(None, "Pendulum-v1", 50, seed=s).columns for s in (1, 1, 2))
    for name, column in first.items():
        np.testing.assert_array_equal(column, again[name])
    assert (first["obs"] != other["obs"]).any()
    assert (first["actions"] != other["actions"]).any()


def test_recorded_actions_of_a_policy_are_those_of_the_env() -> None:
    """Within bounds, whatever the policy says; integers stay integers."""

    class Wild:
        def predict(self, obs, deterministic=True):
            return np.full((len(obs), 1), 7.0, np.float32)

    assert record(Wild(), "Pendulum-v1", 5).columns["actions"].tolist() == [[2.0]] * 5
    dataset = record(None, "CartPole-v1", 200)
    assert dataset.columns["actions"].dtype == np.int64
    assert (dataset.n_actions, dataset.env_id) == (2, "CartPole-v1")


def test_an_algorithm_trains_on_a_recording_env() -> None:
    """Every transition of the training is kept, in the order of each env."""
    env = RecordingVecEnv("CartPole-v1", 4)
    ppo = rlox.make("ppo", env=env, n_envs=4, n_steps=32, batch_size=64, n_epochs=1, seed=0)
    ppo.train(256)
    dataset = env.dataset()
    assert len(dataset) == env.n_transitions == ppo.clock.env_steps == 256
    finished = dataset.columns["terminated"].sum()
    assert finished == ppo.collector.statistics.finished
    assert len(env.dataset(100)) == 100


def test_nothing_recorded_and_unrecordable_spaces_are_refused() -> None:
    """The errors name what was expected."""
    with pytest.raises(DatasetError, match="nothing was recorded"):
        RecordingVecEnv("CartPole-v1").dataset()
    with pytest.raises(ValueError, match="n_transitions must be at least 1, got 0"):
        record(None, "CartPole-v1", 0)

    class Many(Walk):
        action_space = gymnasium.spaces.MultiDiscrete([2, 2])

    with pytest.raises(SpaceError, match="actions must be of a one-dimensional Box"):
        record(None, Many, 5)


def test_sets_go_from_random_to_expert() -> None:
    """Medium is a third of the way, replay what training saw until then."""
    options = {"n_envs": 4, "n_steps": 32, "batch_size": 64, "n_epochs": 4, "gamma": 0.98}
    sets = dict(
        record_sets(
            "ppo", "CartPole-v1", total_timesteps=12_800, n_transitions=1_000, n_episodes=5,
            options=options,
        )
    )  # fmt: skip
    assert tuple(sets) == KINDS
    random, expert = sets["random"].random_return, sets["random"].expert_return
    assert random < 40
    assert expert > 2 * random
    means = {kind: dataset.stats()["mean_return"] for kind, dataset in sets.items()}
    assert means["random"] < means["medium"]
    assert means["random"] < means["expert"]
    assert len(sets["replay"]) % (12_800 // 20) == 0
    assert all(len(sets[kind]) == 1_000 for kind in ("random", "medium", "expert"))
