"""Envs with wrong outputs, and one that overwrites tensors it has returned."""

import pytest
import rlox
import torch
from agents import Windows, small
from rlox_rl8.algorithms import AlgorithmConfig
from rlox_rl8.env import DiscreteDummyEnv
from tensordict import TensorDict
from torchrl.data import Unbounded


def changed(method, key, change):
    """Return a class of envs with a changed result of one method."""

    class Wrong(DiscreteDummyEnv):
        def reset(self, *, config=None):
            obs = super().reset(config=config)
            return change(obs) if method == "reset" else obs

        def step(self, action):
            out = super().step(action)
            if method == "reset":
                return out
            parts = {k: change(v) if k == key else v for k, v in out.items()}
            return TensorDict({k: v for k, v in parts.items() if v is not None})

    return Wrong


class Scalar(DiscreteDummyEnv):
    """Has observations without a dimension."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.observation_spec = Unbounded(torch.Size([]))


def nan(x):
    """Return a copy with one NaN."""
    x = x.clone()
    x[0] = float("nan")
    return x


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (changed("reset", None, lambda x: x[:, 0]), r"Wrong.reset must have shape \(4, 1\)"),
        (changed("reset", None, torch.Tensor.double), "Wrong.reset must be torch.float32"),
        (changed("reset", None, lambda x: x.to("meta")), "Wrong.reset must be on cpu, got meta"),
        (changed("reset", None, nan), "Wrong.reset must be finite"),
        (changed("reset", None, torch.Tensor.tolist), "Wrong.reset must return a tensor, got list"),
        (changed("step", "obs", lambda x: None), "Wrong.step must return 'obs'"),
        (changed("step", "rewards", lambda x: x[:, 0]), "Wrong.step rewards must have shape"),
        (Scalar, "observation_spec must have at least one dimension"),
    ],
)
def test_each_is_one_error_that_names_the_method(env, message):
    """The error comes at construction, before anything is collected."""
    with pytest.raises(ValueError, match=message):
        small(AlgorithmConfig, env, num_envs=4)


@pytest.mark.parametrize("key", ["obs", "rewards"])
def test_a_late_nan_is_an_error_and_the_next_horizon_begins_with_a_reset(key):
    """The error names the method, and the horizon is not learned from."""

    class Late(DiscreteDummyEnv):
        steps = 0

        def step(self, action):
            out = super().step(action)
            self.steps += 1
            if self.steps == 4:  # the first step is the validation's
                out[key] = nan(out[key])
            return out

    algorithm = small(AlgorithmConfig, Late, num_envs=4, horizons_per_env_reset=-1)
    with pytest.raises(ValueError, match=r"Late.step must return finite observations and rewards"):
        algorithm.collect()
    with pytest.raises(RuntimeError, match="is not buffered"):
        algorithm.step()
    assert algorithm.collect()["env/resets"] == 4
    algorithm.step()


class Overwriting(DiscreteDummyEnv):
    """Returns its own state, and writes into it."""

    def reset(self, *, config=None):
        """Return the state itself."""
        super().reset(config=config)
        return self.state

    def step(self, action):
        """Move in place."""
        self.state += 2 * action - 1
        return TensorDict({"obs": self.state, "rewards": -self.state.abs()}, [self.num_envs])


def test_an_env_that_hands_out_its_own_state_is_collected_as_one_that_does_not():
    """Buffer, evaluation and windows of the past equal those of an env that returns copies."""
    found = []
    for env in (Overwriting, DiscreteDummyEnv):
        algorithm = rlox.make(
            "rl8_ppo", env=env, n_envs=4, horizon=8, seed=0, device="cpu",
            parts={"model_cls": Windows},
        )  # fmt: skip
        algorithm.train(64)
        Windows.seen.clear()
        returns = algorithm.evaluate(n_episodes=16, seed=3).returns
        found.append((algorithm.agent.buffer.clone(), returns, list(Windows.seen)))
        obs = algorithm.agent.buffer["obs"][..., 0]
        assert (obs.diff(dim=1).abs() - 1).abs().max() < 1e-4
    assert (found[0][0] == found[1][0]).all()
    assert found[0][1].tolist() == found[1][1].tolist()
    assert len(found[0][2]) == len(found[1][2]) == 8
    assert all(map(torch.equal, found[0][2], found[1][2]))
