"""Recordings match the episodes."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import rlox
from rlox.envs.make import make_vec_env
from rlox.errors import ConfigError, DatasetError, SpaceError
from rlox.testing import HintedEnv, MaskedEnv, RewritingVecEnv
from rlox_offline.datasets import KINDS, RecordingVecEnv, record, record_sets, recording

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


class Flat(Walk):
    """Rewards every action alike."""

    def step(self, action):
        obs, _, *rest = super().step(action)
        return obs, 1.0, *rest


@pytest.mark.parametrize("truncates", [False, True])
def test_true_final_observations_are_kept(truncates: bool) -> None:
    """Not the ones after the reset; an env's episodes are consecutive, the last one cut."""
    dataset = record(None, lambda: Walk(truncates), 20, n_envs=2, normalize=False)
    columns = dataset.columns
    assert columns["obs"][:, 0].tolist() == ([100, 101, 102, 103] * 2 + [100, 101]) * 2
    assert columns["next_obs"][:, 0].tolist() == ([101, 102, 103, 104] * 2 + [101, 102]) * 2
    assert dataset.episode_lengths.tolist() == [4, 4, 2] * 2
    assert columns["terminated"].sum() == (0 if truncates else 4)
    np.testing.assert_allclose(columns["rewards"], columns["actions"][:, 0])
    assert (dataset.act_low.tolist(), dataset.act_high.tolist()) == ([-2.0], [2.0])


def test_same_seed_records_the_same() -> None:
    """Different seeds differ."""
    first, again, other = (record(None, "Pendulum-v1", 50, seed=s).columns for s in (1, 1, 2))
    for name, column in first.items():
        np.testing.assert_array_equal(column, again[name])
    assert (first["obs"] != other["obs"]).any()
    assert (first["actions"] != other["actions"]).any()


def test_recorded_actions_of_a_policy_are_those_of_the_env() -> None:
    """They stay within bounds, whatever the policy returns; integers stay integers."""

    class Wild:
        def predict(self, obs, deterministic=True):
            return np.full((len(obs), 1), 7.0, np.float32)

    assert record(Wild(), "Pendulum-v1", 5).columns["actions"].tolist() == [[2.0]] * 5
    dataset = record(None, "CartPole-v1", 200)
    assert dataset.columns["actions"].dtype == np.int64
    assert (dataset.n_actions, dataset.env_id) == (2, "CartPole-v1")


class Remembers:
    """Repeats the episode's first bit."""

    def predict(self, obs, deterministic=True, *, state=None, episode_start=None):
        bits = np.array(obs)[:, 0] > 0
        bits = bits if state is None else np.where(episode_start, bits, state)
        return bits.astype(np.int64), bits


def test_memory_and_masks_go_along() -> None:
    """As in evaluations; the second env fails at a forbidden action."""
    assert rlox.evaluate(Remembers(), HintedEnv).mean_return == 4
    assert record(Remembers(), HintedEnv, 40, n_envs=2).columns["rewards"].tolist() == [1.0] * 40
    record(None, MaskedEnv, 20, n_envs=2)
    env = RecordingVecEnv(MaskedEnv, 2)
    with rlox.make("ppo", env=env, n_envs=2, n_steps=16, batch_size=16) as ppo:
        ppo.train(32)
        record(ppo, MaskedEnv, 20)
    with pytest.raises(SpaceError, match="the env masks actions, but predict has no argument"):
        record(Remembers(), MaskedEnv, 20)


def test_recorded_actions_are_those_that_were_given() -> None:
    """Even if the env later writes into them and its returned arrays."""
    sums = []
    for rewrites in (False, True):
        made = make_vec_env("CartPole-v1", n_envs=2)
        env = RewritingVecEnv(made, rewrites=rewrites)
        columns = record(None, env, 100).columns
        sums.append({name: column.sum() for name, column in columns.items()})
        made.close()
    assert sums[0] == sums[1]


def test_an_algorithm_trains_on_a_recording_env() -> None:
    """Every transition of the training is kept, in order per env."""
    env = RecordingVecEnv("CartPole-v1", 4)
    ppo = rlox.make("ppo", env=env, n_envs=4, n_steps=32, batch_size=64, n_epochs=1, seed=0)
    ppo.train(256)
    dataset = env.dataset()
    assert len(dataset) == env.n_transitions == ppo.clock.env_steps == 256
    finished = dataset.columns["terminated"].sum()
    assert finished == ppo.collector.statistics.finished
    assert len(env.dataset(100)) == 100


def test_blocks_of_steps_come_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """For any block size, and any reset within episodes."""
    recorded = []
    for size in (2**24, 150):  # 44 bytes are a step
        monkeypatch.setattr(recording, "BLOCK_BYTES", size)
        env = RecordingVecEnv(Walk, 2)
        for _ in range(2):
            env.reset_all(0)
            for i in range(6):
                env.step_all(np.full((2, 1), i / 6))
        recorded += [env.dataset(), env.dataset(12)]
    assert recorded[0].episode_lengths.tolist() == [4, 2, 4, 2] * 2
    assert recorded[1].episode_lengths.tolist() == [4, 2] * 2
    for whole, parts in zip(recorded[:2], recorded[2:], strict=True):
        for name, column in whole.columns.items():
            np.testing.assert_array_equal(column, parts.columns[name])


def test_nothing_recorded_and_unrecordable_spaces_are_refused() -> None:
    """The errors state the expected spaces."""
    with pytest.raises(DatasetError, match="nothing was recorded"):
        RecordingVecEnv("CartPole-v1").dataset()
    with pytest.raises(ValueError, match="n_transitions must be at least 1, got 0"):
        record(None, "CartPole-v1", 0)

    class Many(Walk):
        action_space = gymnasium.spaces.MultiDiscrete([2, 2])

    with pytest.raises(SpaceError, match="actions must be of a one-dimensional Box"):
        record(None, Many, 5)

    class Unbounded(Walk):
        action_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))

    with pytest.raises(SpaceError, match="random actions are drawn from a bounded space"):
        record(None, Unbounded, 5)


def test_sets_go_from_random_to_expert() -> None:
    """Medium is a third of the way, replay the training up to it."""
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


def test_a_training_that_learns_nothing_leaves_what_was_recorded() -> None:
    """Random actions and the whole training, with the options' seed."""
    options = {"n_envs": 2, "n_steps": 16, "batch_size": 16, "n_epochs": 1, "seed": 3}
    gymnasium.register("rlox/Flat-v0", Flat)
    sets = record_sets(
        "ppo", "rlox/Flat-v0", total_timesteps=64, n_transitions=20, n_episodes=2, options=options
    )
    found = [next(sets), next(sets)]
    with pytest.raises(DatasetError, match=r"no policy of the training is better than random"):
        next(sets)
    assert [(kind, len(dataset)) for kind, dataset in found] == [("random", 20), ("replay", 64)]
    again = record(None, "rlox/Flat-v0", 20, seed=3)
    np.testing.assert_array_equal(found[0][1].columns["actions"], again.columns["actions"])


def test_sets_need_an_algorithm_that_learns_in_an_env() -> None:
    """Other algorithms have nothing to record."""
    with pytest.raises(ConfigError, match="learn in an env, not 'iql'"):
        next(record_sets("iql", "Pendulum-v1", total_timesteps=100))
