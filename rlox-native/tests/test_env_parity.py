"""Every native env against gymnasium's: the same bits, step by step and from any state."""

import gymnasium as gym
import numpy as np
import pytest
from rlox_native import VecEnv, native_env_ids

SPACES = {env_id: gym.make(env_id).action_space for env_id in native_env_ids()}
# The observation component along which an action swings the env up or keeps it up.
SWING = {
    "CartPole-v1": 2, "MountainCar-v0": 1, "MountainCarContinuous-v0": 1, "Pendulum-v1": 2,
    "Acrobot-v1": 5,
}  # fmt: skip
# Bounds of the physical state, wide if the env has none.
STATE_HIGH = {
    "CartPole-v1": [2.4, 10, np.pi / 15, 10],
    "MountainCar-v0": [0.6, 0.07],
    "MountainCarContinuous-v0": [np.float32(0.6), np.float32(0.07), 1],
    "Pendulum-v1": [90, 8],
    "Acrobot-v1": [np.pi, np.pi, 4 * np.pi, 9 * np.pi, 1],
}
STATE_LOW = {
    "CartPole-v1": [-2.4, -10, -np.pi / 15, -10],
    "MountainCar-v0": [-1.2, -0.07],
    "MountainCarContinuous-v0": [np.float32(-1.2), np.float32(-0.07), 0],
    "Pendulum-v1": [-90, -8],
    "Acrobot-v1": [-np.pi, -np.pi, -4 * np.pi, -9 * np.pi, 0],
}

# For float32 times Python float in gymnasium, NumPy 1 computes in double precision.
PROMOTES = ("MountainCarContinuous-v0", "Pendulum-v1")
numpy_1 = np.lib.NumpyVersion(np.__version__) < "2.0.0"

every_env = pytest.mark.parametrize(
    "env_id",
    [
        pytest.param(
            env_id,
            marks=pytest.mark.skipif(
                numpy_1 and env_id in PROMOTES, reason="gymnasium's bits are other under NumPy 1"
            ),
        )
        for env_id in native_env_ids()
    ],
)


def random_actions(env_id, rng, n):
    """Draw n actions; a third of continuous ones lie beyond the bounds."""
    space = SPACES[env_id]
    if isinstance(space, gym.spaces.Discrete):
        return rng.integers(0, space.n, n)
    return rng.uniform(1.5 * space.low, 1.5 * space.high, (n, *space.shape)).astype(np.float32)


def swing(env_id, obs):
    """Act with the widest action along the motion, which reaches walls, limits and goals."""
    space = SPACES[env_id]
    along = obs[:, SWING[env_id]] > 0
    if isinstance(space, gym.spaces.Discrete):
        return np.where(along, space.n - 1, 0)
    return np.where(along[:, None], space.high, space.low)


@every_env
@pytest.mark.parametrize("n", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_seeds_equal_gymnasium_bit_for_bit(env_id, n):
    """Whole episodes and the starts of the next ones, half random and half swinging."""
    references = [gym.make(env_id) for _ in range(n)]
    envs = VecEnv(n, seed=0, env_id=env_id)
    obs = envs.reset_all()
    first = [reference.reset(seed=seed)[0] for seed, reference in enumerate(references)]
    np.testing.assert_array_equal(obs, first, strict=True)
    rng = np.random.default_rng(0)
    ends = np.zeros(2, np.int64)
    for step in range(references[0].spec.max_episode_steps + 50):
        actions = random_actions(env_id, rng, n)
        actions[::2] = swing(env_id, obs)[::2]
        got = envs.step_all(actions)
        results = [env.step(action) for env, action in zip(references, actions, strict=True)]
        final_obs, rewards, terminated, truncated = (
            np.array([result[k] for result in results]) for k in range(4)
        )
        for i in np.flatnonzero(terminated | truncated):
            assert got["obs"][i].tobytes() == references[i].reset()[0].tobytes(), f"seed {i}"
        goes_on = ~(terminated | truncated)
        assert got["obs"][goes_on].tobytes() == final_obs[goes_on].tobytes(), f"step {step}"
        assert got["final_obs"].tobytes() == final_obs.tobytes(), f"step {step}"
        assert got["rewards"].tobytes() == rewards.astype(np.float64).tobytes(), f"step {step}"
        assert got["terminated"].tobytes() == terminated.tobytes(), f"step {step}"
        assert got["truncated"].tobytes() == truncated.tobytes(), f"step {step}"
        obs = got["obs"]
        ends += terminated.sum(), truncated.sum()
    assert (ends[0] > 0) == (env_id != "Pendulum-v1")
    assert (ends[1] > 0) == (env_id != "CartPole-v1")


@every_env
def test_a_step_from_any_state_equals_gymnasium(env_id):
    """From states at and between the bounds, at the walls and beyond."""
    n = 500
    rng = np.random.default_rng(1)
    low, high = np.array(STATE_LOW[env_id], float), np.array(STATE_HIGH[env_id], float)
    physics = rng.uniform(low, high, (n, len(low)))
    at_bound = rng.random(physics.shape) < 0.2
    physics = np.where(at_bound, np.where(rng.random(physics.shape) < 0.5, low, high), physics)
    single = None
    if env_id == "MountainCarContinuous-v0":
        physics[:, 2] = physics[:, 2].round()
        single = physics[:, 2] == 0
        physics[single, :2] = physics[single, :2].astype(np.float32)
    envs = VecEnv(n, env_id=env_id)
    envs.set_state(envs.state() | {"physics": physics, "started": np.array([True])})
    actions = random_actions(env_id, rng, n)
    got = envs.step_all(actions)
    reference = gym.make(env_id).unwrapped
    for i in range(n):
        reference.reset()
        state = physics[i, : 4 if env_id == "Acrobot-v1" else 2 if single is not None else None]
        reference.state = state.astype(np.float32) if single is not None and single[i] else state
        obs, reward, terminated, *_ = reference.step(actions[i])
        assert got["final_obs"][i].tobytes() == obs.tobytes(), f"state {physics[i]}"
        assert got["rewards"][i].tobytes() == np.float64(reward).tobytes()
        assert got["terminated"][i] == terminated


def test_2000_first_observations_of_acrobot_equal_gymnasium():
    """Only these use NumPy's single-precision sine and cosine, which match in every bit."""
    envs = VecEnv(2_000, seed=0, env_id="Acrobot-v1")
    got = envs.reset_all()
    angles = envs.state()["physics"][:, :2].astype(np.float32)
    expected = np.stack([f(angles[:, k]) for k in (0, 1) for f in (np.cos, np.sin)], axis=1)
    np.testing.assert_array_equal(got[:, :4], expected, strict=True)


@every_env
def test_spaces_equal_gymnasium(env_id):
    """The spaces are those of one gymnasium env, and stay the same objects."""
    reference = gym.make(env_id)
    envs = VecEnv(2, env_id=env_id)
    assert envs.observation_space == reference.observation_space
    assert envs.action_space == reference.action_space
    assert envs.action_space is envs.action_space
    assert (envs.n_envs, envs.env_id) == (2, env_id)
    assert repr(envs) == f"VecEnv(n=2, env_id='{env_id}')"
