"""Normalised observations and rewards are those of Stable-Baselines3's VecNormalize."""

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit
from rlox.envs.gymnasium import GymVecEnv
from rlox.preprocessing import Preprocessor, RewardScaler
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

GAMMA = 0.97


def make():
    """Return CartPole whose episodes both fall and are cut."""
    return TimeLimit(gymnasium.make("CartPole-v1"), 15)


def test_the_same_stream_gives_the_same_numbers():
    """Observations, true final observations and rewards of 200 steps of 3 envs, to rounding."""
    theirs = VecNormalize(DummyVecEnv([make] * 3), gamma=GAMMA)
    theirs.seed(7)
    env = GymVecEnv(make, 3)
    preprocessor = Preprocessor(env.observation_space, normalize=True, frame_stack=1)
    scaler = RewardScaler(3, GAMMA)
    expected = theirs.reset()
    seen = preprocessor.reset(env.reset_all(7))
    rng = np.random.default_rng(0)
    # the envs of both must begin later episodes alike
    for mine, other in zip(env._env.envs, theirs.venv.envs, strict=True):
        other.unwrapped.np_random.bit_generator.state = mine.unwrapped.np_random.bit_generator.state
    cuts = falls = 0
    for _ in range(200):
        np.testing.assert_allclose(seen, expected, rtol=1e-4, atol=1e-5)
        actions = rng.integers(2, size=3)
        expected, rewards, done, infos = theirs.step(actions)
        step = preprocessor.step(seen, env.step_all(actions))
        ended = step["terminated"] | step["truncated"]
        np.testing.assert_allclose(scaler.scale(step["rewards"], ended), rewards, rtol=1e-5)
        assert np.array_equal(ended, done)
        for i in np.flatnonzero(ended):
            final = infos[i]["terminal_observation"]
            np.testing.assert_allclose(step["final_obs"][i], final, rtol=1e-4, atol=1e-5)
        cuts += int(step["truncated"].sum())
        falls += int(step["terminated"].sum())
        seen = step["obs"]
    assert cuts > 5
    assert falls > 5
