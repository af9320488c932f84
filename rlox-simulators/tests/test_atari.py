"""Atari games over ALE: gymnasium's frames, lives, and rewards that are clipped for learning."""

from __future__ import annotations

import sys

import gymnasium
import numpy as np
import pytest
import rlox
from rlox.envs.make import choose_backend, make_vec_env
from rlox.envs.running import EpisodeStatistics
from rlox.errors import EnvError, MissingDependencyError
from rlox.testing import check_env_backend
from rlox_simulators.atari import AtariOptions, AtariVecEnv

pytest.importorskip("ale_py")


def play(env: AtariVecEnv, n_steps: int, seed: int = 0):
    """Return the steps of random play."""
    rng = np.random.default_rng(seed)
    env.reset_all(seed)
    return [env.step_all(rng.integers(env.action_space.n, size=env.n_envs)) for _ in range(n_steps)]


def test_the_backend_keeps_the_contract() -> None:
    """Shapes, seeding, and resets in the step that ends a game."""
    check_env_backend("ale", "ALE/Pong-v5", n_steps=10)


def test_frames_rewards_and_ends_are_gymnasiums() -> None:
    """Every frame equals gymnasium's AtariPreprocessing, the last one of a game too."""
    pytest.importorskip("cv2")
    from gymnasium.wrappers import AtariPreprocessing

    game, same = "ALE/Breakout-v5", {"repeat_action_probability": 0.0}
    ours = AtariVecEnv(game, 1, noop_max=0, use_fire_reset=False, **same)
    theirs = AtariPreprocessing(gymnasium.make(game, frameskip=1, **same), noop_max=0)
    obs, (expected, _) = ours.reset_all(3), theirs.reset(seed=3)
    assert np.array_equal(obs[0, -1], expected)
    rng, games = np.random.default_rng(0), 0
    for _ in range(500):
        action = rng.integers(ours.action_space.n)
        step = ours.step_all(np.array([action]))
        expected, reward, terminated, truncated, _ = theirs.step(int(action))
        assert np.array_equal(step["final_obs"][0, -1], expected)
        got = [step[key][0] for key in ("rewards", "terminated", "truncated")]
        assert got == [reward, terminated, truncated]
        if terminated or truncated:
            games += 1
            expected, _ = theirs.reset()
            assert np.array_equal(step["obs"][0, -1], expected)
    assert games
    theirs.close()


def test_a_lost_life_is_an_end_for_learners_alone() -> None:
    """With ``episodic_life`` the game goes on, and its score is that of the whole game."""
    games = AtariVecEnv("ALE/Breakout-v5", 2)
    lives = AtariVecEnv("ALE/Breakout-v5", 2, options=AtariOptions(episodic_life=True))
    statistics, expected = EpisodeStatistics(2), EpisodeStatistics(2)
    lost = 0
    for whole, each in zip(play(games, 300), play(lives, 300), strict=True):
        assert np.array_equal(whole["obs"], each["obs"])
        assert np.array_equal(whole["rewards"], each["rewards"])
        life_lost = each.get("life_lost", np.zeros(2, np.bool_))
        assert np.array_equal(each["terminated"] & ~life_lost, whole["terminated"])
        assert np.array_equal(each["final_obs"], whole["final_obs"])
        lost += life_lost.sum()
        ended = [step["terminated"] | step["truncated"] for step in (whole, each)]
        expected.add(whole["rewards"][None], ended[0][None])
        statistics.add(each["rewards"][None], (ended[1] & ~life_lost)[None])
    assert lost >= 4 * expected.finished > 0
    assert statistics.metrics() == expected.metrics()


def test_the_number_of_threads_changes_no_bit() -> None:
    """Games depend on their seeds alone."""
    played = [
        play(AtariVecEnv("ALE/Pong-v5", 3, options=AtariOptions(emulator_threads=threads)), 15)
        for threads in (1, 3)
    ]
    for one, three in zip(*played, strict=True):
        for key, value in one.items():
            assert np.array_equal(value, three[key]), key


def test_seeds_of_any_size_are_taken() -> None:
    """Different seeds begin different games, and seeds beyond 32 bits are accepted."""
    first, second = (AtariVecEnv("ALE/Breakout-v5", 2) for _ in range(2))
    assert np.array_equal(first.reset_all([7, 2**63 - 1]), second.reset_all([7, 2**63 - 1]))
    assert not np.array_equal(*first.reset_all([0, 1]))


def test_arguments_reach_the_games() -> None:
    """Stack, size and colours are as requested; the rest has the defaults of gymnasium's ids."""
    kwargs = {"stack_num": 2, "img_height": 42, "img_width": 40, "grayscale": False}
    env = make_vec_env("ALE/Pong-v5", n_envs=2, env_kwargs=kwargs)
    assert env.reset_all(0).shape == (2, 2, 42, 40, 3)
    chosen, _ = choose_backend("ALE/Pong-v5")
    assert chosen.spec.name == "ale"
    chosen, reason = choose_backend("ALE/Pong-v5", env_kwargs={"obs_type": "ram"})
    assert chosen.spec.name == "gymnasium"
    assert "'ale' takes no env_kwargs ['obs_type']" in reason


@pytest.mark.parametrize(
    ("env_id", "kwargs", "message"),
    [
        ("ALE/Pongo-v5", {}, r"ALE has no 'ALE/Pongo-v5'; did you mean 'ALE/Pong-v5'"),
        ("ALE/Pong-v5", {"frame_skip": 3}, r"takes no argument 'frame_skip'.*'frameskip'"),
        ("ALE/Pong-v5", {"frameskip": 0}, "cannot be built with .*frameskip must be positive"),
    ],
)
def test_wrong_games_and_arguments_are_named(env_id, kwargs, message) -> None:
    """Errors name the value and the valid ones."""
    with pytest.raises(EnvError, match=message):
        make_vec_env(env_id, backend="ale", env_kwargs=kwargs)


def test_other_ids_are_not_of_the_backend() -> None:
    """The error names the prefix of the backend's ids."""
    with pytest.raises(EnvError, match="'ale' has no 'CartPole-v1'; it has ALE/…"):
        make_vec_env("CartPole-v1", backend="ale")


def test_without_ale_the_remedy_is_named(monkeypatch) -> None:
    """The error holds the command that installs it."""
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(MissingDependencyError, match=r'pip install "rlox-core\[atari\]"'):
        make_vec_env("ALE/Pong-v5")


def test_evaluations_play_whole_games() -> None:
    """``episodic_life`` applies to training alone, and options are passed by name."""
    pytest.importorskip("rlox_onpolicy")
    options = {"n_envs": 2, "n_steps": 8, "n_epochs": 1, "seed": 0}
    options |= {"episodic_life": True, "clip_rewards": 1.0}  # the first selects the backend
    with rlox.make("ppo", env="ALE/Breakout-v5", **options) as ppo:
        assert ppo.config.env_backend == "ale"
        assert ppo.env_arguments()["backend"].options == AtariOptions()
        assert np.isfinite(ppo.train(32)["policy_loss"])
