"""Envs whose episodes end in rl8's algorithms, and batched envs as vector envs."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import rlox
import torch
from agents import Windows
from gymnasium import spaces
from rlox.envs.gymnasium import GymVecEnv
from rlox.envs.tensors import CartPole
from rlox.errors import ConfigError, EnvError, SpaceError, WorkerLostError
from rlox.kernels.reference import compute_gae_time_major
from rlox.testing import ScriptedVecEnv, check_algorithm
from rlox.training import checkpoint
from rlox_rl8.algorithms import AlgorithmConfig
from rlox_rl8.env import DiscreteDummyEnv
from rlox_rl8.losses import estimate_advantages
from rlox_rl8.vec_envs import TensorVecEnv, tensor_env
from tensordict import TensorDict

SMALL = {"n_envs": 4, "horizon": 16, "sgd_minibatch_size": 32}


class Scripted(gymnasium.Env[Any, Any]):
    """Shows the step's number; after 3 steps it is terminated or truncated, in turn."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.steps, self.episodes = 0, 0

    def reset(self, *, seed=None, options=None):
        """Begin an episode."""
        super().reset(seed=seed)
        self.steps = 0
        self.episodes += 1
        return np.zeros(1, np.float32), {}

    def step(self, action):
        """Pay the number of the step."""
        self.steps += 1
        ends = self.steps == 3
        terminated = ends and self.episodes % 2 == 1
        obs = np.full(1, self.steps, np.float32)
        return obs, float(self.steps), terminated, ends and not terminated, {}


def test_advantages_stop_at_ends():
    """Advantages equal those of rlox's kernel."""
    rng = np.random.default_rng(0)
    shape = (20, 3)
    rewards, final_values = rng.normal(size=(2, *shape)).astype(np.float32)
    values = rng.normal(size=(21, 3)).astype(np.float32)
    terminated, truncated = rng.random((2, *shape)) < 0.2
    truncated &= ~terminated
    expected, _ = compute_gae_time_major(
        rewards, values[:-1], terminated, truncated, final_values, values[-1], 0.9, 0.8
    )
    found = estimate_advantages(
        *map(torch.from_numpy, (rewards, values)),
        gamma=0.9,
        gae_lambda=0.8,
        terminated=torch.from_numpy(terminated),
        truncated=torch.from_numpy(truncated),
        final_values=torch.from_numpy(final_values),
    )
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_horizon_of_envs_that_end():
    """Flags, values at truncations, discounted returns and episode returns are the script's.

    The returns go on after learning, unlike those of batched envs that are reset together.
    """
    config = AlgorithmConfig(horizon=7, num_envs=1, horizons_per_env_reset=-1, gamma=0.5)
    algorithm = config.build(tensor_env(Scripted))
    algorithm.collect()  # the script's second episode begins with the first horizon
    algorithm.step()
    algorithm.collect()
    buffer = algorithm.buffer
    steps = (np.arange(7, 14) % 3) + 1  # of an episode
    np.testing.assert_array_equal(buffer["rewards"][0, :-1, 0], steps)
    ended = np.flatnonzero(buffer["terminated"][0, :-1, 0] | buffer["truncated"][0, :-1, 0])
    np.testing.assert_array_equal(ended, np.flatnonzero(steps == 3))
    cut = buffer["truncated"][0, :-1, 0].numpy()
    assert cut.sum() == 1
    with torch.no_grad():
        last = TensorDict({"obs": torch.full((1, 1, 1), 3.0)}, [1, 1])
        value = algorithm.policy.sample(last, return_values=True)["values"]
    np.testing.assert_allclose(buffer["final_values"][0, :-1, 0][cut], value.flatten(), rtol=1e-6)
    returns = buffer["reversed_discounted_returns"][0, 1:, 0].numpy()
    of_step = {1: 1.0, 2: 2.5, 3: 4.25}
    np.testing.assert_allclose(returns, [of_step[step] for step in steps])
    assert algorithm.ends.statistics.mean_return == 6
    assert algorithm.ends.statistics.finished == 4


def test_rlox_contract_on_a_gymnasium_env():
    """Training, saving, resuming and predicting, by an id."""
    check_algorithm("rl8_ppo", "CartPole-v1", **SMALL)


def test_new_episodes_of_a_resumed_run_are_said(tmp_path):
    """Gymnasium's envs have no state to go on from."""
    path = tmp_path / "saved.safetensors"
    with rlox.make("rl8_ppo", env=Scripted, **SMALL) as algorithm:
        algorithm.train(64)
        algorithm.save(path)
    with type(algorithm).from_checkpoint(path, Scripted) as resumed:
        assert "new episodes begin" in checkpoint.difference_in(path, resumed)


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (spaces.Discrete(5, start=-2), (5,)),
        (spaces.MultiBinary(3), (3,)),
        (spaces.Box(-1, 1, (2, 3), np.float64), (2, 3)),
        (spaces.Box(-1, 1, ()), (1,)),
    ],
)
def test_observations_become_tensors(space, shape):
    """``Discrete`` is one-hot, all others are floats of the space's shape."""

    class Shown(Scripted):
        observation_space = space

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

        def step(self, action):
            return self.observation_space.sample(), *super().step(action)[1:]

    env = tensor_env(Shown)(2)
    out = env.step(torch.zeros(2, 1, dtype=torch.int64))
    for obs in (env.reset(), out["obs"], out["final_obs"]):
        assert obs.shape == (2, *shape)
        assert obs.dtype == torch.float32
    if isinstance(space, spaces.Discrete):
        assert (out["obs"].sum(1) == 1).all()


@pytest.mark.parametrize(
    ("space", "rows", "expected"),
    [
        (spaces.Discrete(3, start=4), [[0], [2]], [4, 6]),
        (spaces.Box(-1, 1, (1,)), [[3.0]], [1]),
        (spaces.MultiDiscrete([2, 3]), [[1, 2]], [1, 2]),
    ],
)
def test_actions_reach_the_env_as_its_space_has_them(space, rows, expected):
    """``Discrete`` begins at the space's start, and ``Box`` is clipped."""
    taken = []

    class Listening(Scripted):
        action_space = space

        def step(self, action):
            taken.append(np.array(action))
            return super().step(action)

    env = tensor_env(Listening)(len(rows))
    env.reset()
    env.step(torch.tensor(rows))
    np.testing.assert_array_equal(np.concatenate([x.ravel() for x in taken]), expected)


def test_batched_env_as_a_vector_env():
    """PPO trains on it; its horizon truncates episodes, and the global stream is unchanged."""
    envs = TensorVecEnv(DiscreteDummyEnv, 4, 8)
    torch.manual_seed(5)
    expected = torch.get_rng_state()
    first = envs.reset_all(1)
    np.testing.assert_array_equal(envs.reset_all(1), first)
    for t in range(8):
        step = envs.step_all(np.ones((4, 1), np.int64))
        assert step["truncated"].all() == (t == 7)
        np.testing.assert_allclose(step["final_obs"], first + t + 1, rtol=1e-5)
    assert not np.array_equal(step["obs"], step["final_obs"])
    assert torch.equal(torch.get_rng_state(), expected)
    ppo = rlox.make("ppo", env=envs, n_steps=16, batch_size=32, seed=0)
    ppo.train(128)
    assert ppo.clock.env_steps == 128


class Ending(DiscreteDummyEnv):
    """Declares that episodes end, but returns no flags."""

    episodes_end = True


class Speaking(Scripted):
    """Its actions are texts."""

    action_space: ClassVar[Any] = spaces.Text(3)


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (lambda: AlgorithmConfig(num_envs=2, horizon=4).build(Ending), ValueError, "'terminated'"),
        (lambda: AlgorithmConfig(num_envs=2, model_cls=Windows).build(tensor_env("CartPole-v1")),
         ValueError, "has shift 2"),
        (lambda: tensor_env("NoSuchEnv-v0")(2), EnvError, "NoSuchEnv"),
        (lambda: tensor_env(Speaking)(2), SpaceError, "neither a Box nor discrete"),
        (lambda: tensor_env("CartPole-v1")(2).reset(config={"a": 1}), EnvError, "env_config"),
        (lambda: TensorVecEnv(tensor_env("CartPole-v1"), 2, 8), EnvError, "by themselves"),
        (lambda: TensorVecEnv(DiscreteDummyEnv, 2, 0), ValueError, "got 2 and 0"),
        (lambda: rlox.make("rl8_ppo", env=DiscreteDummyEnv, n_envs=2, env_kwargs={"a": 1}),
         ConfigError, "env_kwargs is for"),
        (lambda: rlox.make("rl8_ppo", env=3), ConfigError, "got 3"),
        *((lambda env=env: rlox.make("rl8_ppo", env=env), ConfigError,
           f"env must be 'module:Class', got '{env}'") for env in (":", "os:", ".os:Env")),
        (lambda: rlox.make("rl8_ppo", env="CartPole-v1", device="foo"), ConfigError,
         "device 'foo' cannot be used"),
        (lambda: rlox.make("rl8_ppo", env=DiscreteDummyEnv, n_envs=2, learning_rate=0.1,
                           parts={"optimizer_config": {"lr": 0.2}}),
         ConfigError, "learning_rate=0.1 and optimizer_config's lr=0.2 are two"),
        (lambda: rlox.make("rl8_ppo", env=Scripted, n_envs=4, sgd_minibatch_size=256),
         ConfigError, "must divide the buffer's 128 transitions, got 256"),
    ],
)  # fmt: skip
def test_wrong_calls(wrong, error, text):
    """Each raises one error that names the wrong argument."""
    with pytest.raises(error, match=text):
        wrong()


@pytest.mark.parametrize(
    ("name", "options", "size"),
    [
        ("rl8_ppo", {"n_envs": 12}, 192),
        ("rl8_ppo", {"n_envs": 3, "horizon": 7}, 21),
        ("rl8_recurrent_ppo", {"n_envs": 12, "seq_len": 8}, 48),
    ],
)
def test_minibatches_that_are_left_out_fit_any_number_of_envs(name, options, size):
    """The size is the greatest divisor of the buffer's samples up to 256, or 64 sequences."""
    with rlox.make(name, env=Scripted, seed=0, **options) as algorithm:
        assert algorithm.config.sgd_minibatch_size == size
        algorithm.train(1)


def test_an_env_of_tensors_is_one_of_arrays():
    """As an object it is what it is by its backend's name."""
    options = {"n_envs": 4, "horizon": 8, "seed": 0}
    named = rlox.make("rl8_ppo", env="CartPole-v1", env_backend="tensors", **options)
    passed = rlox.make("rl8_ppo", env=CartPole(4), **options)
    assert named.train(64)["policy_loss"] == passed.train(64)["policy_loss"]


def test_numbers_that_the_space_does_not_hold_are_an_error():
    """One-hot vectors cannot represent them."""
    env = ScriptedVecEnv(2, spaces.Discrete(4), spaces.Discrete(2), odd=7, at=1)
    made = tensor_env(env)(2)
    made.reset()
    with pytest.raises(EnvError, match=r"^env 1 returned an observation with 7, which Discrete"):
        made.step(torch.zeros(2, 1, dtype=torch.int64))


def test_lost_envs_are_an_error():
    """A horizon holds the steps of all copies, and a lost one must not be learned from."""

    class Losing(GymVecEnv):
        def step_all(self, actions):
            return {**super().step_all(actions), "lost": np.array([False, True])}

    env = tensor_env(Losing(Scripted, 2))(2)
    env.reset()
    with pytest.raises(WorkerLostError, match="1 of 2 envs were lost"):
        env.step(torch.zeros(2, 1, dtype=torch.int64))


class Standing:
    """A batched env without a base class."""

    def __init__(self, num_envs, horizon=None, *, device="cpu"):
        self.env = DiscreteDummyEnv(num_envs, horizon, device=device)

    def __getattr__(self, name):
        if name == "fits_specs":  # only this package's own classes have it
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, *, config=None):
        """As the env within."""
        return self.env.reset(config=config)

    def step(self, action):
        """As the env within."""
        return self.env.step(action)


def test_what_has_the_members_is_a_batched_env():
    """The algorithms and the adapter accept it; an error names any missing members."""
    rlox.make("rl8_ppo", env=Standing, n_envs=4, horizon=8, device="cpu").train(64)
    assert TensorVecEnv(Standing, 2, 8).reset_all(0).shape == (2, 1)

    class Lacking:
        def __init__(self, num_envs, horizon=None, *, device="cpu"):
            self.num_envs, self.device = num_envs, device

    with pytest.raises(ConfigError, match="Lacking lacks observation_spec, action_spec"):
        AlgorithmConfig(num_envs=2).build(Lacking)
