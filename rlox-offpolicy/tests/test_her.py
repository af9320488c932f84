"""Hindsight experience replay as an option of every off-policy algorithm."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import rlox
from gymnasium import spaces
from rlox.errors import ConfigError
from rlox.registry import get_registry
from rlox.replay import buffers
from rlox_offpolicy.dqn import DQN
from rlox_offpolicy.td3 import TD3

SMALL: dict[str, Any] = {
    "hidden": 8, "buffer_size": 400, "learning_starts": 8, "train_freq": 4, "gradient_steps": 2,
    "batch_size": 64,
    "steps_per_iteration": 16, "seed": 0, "buffer": "her",
}  # fmt: skip


class BitFlip(gymnasium.Env[Any, Any]):
    """Flip one of n bits at a time until they are the goal's; n steps at most.

    Source:
        Andrychowicz et al. 2017, "Hindsight experience replay", section 3.1.
    """

    def __init__(self, n: int = 10) -> None:
        self.n = n
        keys = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = spaces.Dict({key: spaces.MultiBinary(n) for key in keys})
        self.action_space = spaces.Discrete(n)

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Return 0 where the goals agree, else -1."""
        return -(np.asarray(achieved_goal) != desired_goal).any(-1).astype(np.float32)

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> bool:
        """Return whether the goals agree."""
        return bool(np.array_equal(achieved_goal, desired_goal))

    def _observe(self) -> Any:
        bits = self.bits.copy()
        return {"observation": bits, "achieved_goal": bits, "desired_goal": self.goal}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Draw bits and a goal."""
        super().reset(seed=seed)
        self.bits, self.goal = self.np_random.integers(2, size=(2, self.n)).astype(np.int8)
        self.left = self.n
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        """Flip a bit."""
        self.bits[action] ^= 1
        self.left -= 1
        reached = self.compute_terminated(self.bits, self.goal, {})
        reward = float(self.compute_reward(self.bits, self.goal, {}))
        return self._observe(), reward, reached, not reached and self.left == 0, {}


class Reach(gymnasium.Env[Any, Any]):
    """Move a point in a square to within 0.1 of the goal, in 25 steps that never end early."""

    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    observation_space = spaces.Dict(
        {
            "observation": spaces.Box(-1, 1, (1,), np.float32),
            "achieved_goal": spaces.Box(-1, 1, (2,), np.float32),
            "desired_goal": spaces.Box(-1, 1, (2,), np.float32),
        }
    )

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Return 0 within reach, else -1."""
        return -(np.linalg.norm(achieved_goal - desired_goal, axis=-1) > 0.1).astype(np.float32)

    def _observe(self) -> Any:
        return {
            "observation": np.zeros(1, np.float32),
            "achieved_goal": self.at.copy(),
            "desired_goal": self.goal,
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Put point and goal anywhere."""
        super().reset(seed=seed)
        self.at, self.goal = self.np_random.uniform(-1, 1, (2, 2)).astype(np.float32)
        self.left = 25
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        """Move by up to 0.2 in each direction."""
        self.at = np.clip(self.at + 0.2 * action, -1, 1).astype(np.float32)
        self.left -= 1
        reward = float(self.compute_reward(self.at, self.goal, {}))
        return self._observe(), reward, False, self.left == 0, {}


@pytest.mark.parametrize(("algorithm", "env"), [(DQN, BitFlip), (TD3, Reach)])
def test_learns_from_goals_its_own_episodes_reached(algorithm: Any, env: Any) -> None:
    """Every drawn transition's reward fits its goal; most goals are replaced.

    Goals come from later in the same episode, so they are states that the same env reached.
    """
    made = algorithm(env, n_envs=3, **SMALL)
    assert np.isfinite(made.train(96)["q_loss"])
    agent = made.replay
    judge, asked = env(), agent.observations.unpack(agent.buffer.state()["obs"])["desired_goal"]
    batch = agent.draw()
    achieved, desired = (batch.next_obs[key].numpy() for key in ("achieved_goal", "desired_goal"))
    assert np.array_equal(batch.rewards.numpy(), judge.compute_reward(achieved, desired, {}))
    assert np.array_equal(batch.obs["desired_goal"].numpy(), desired)
    own = (desired[:, None] == np.asarray(asked)[None]).all(-1).any(-1)
    assert 0.05 < own.mean() < 0.6
    reached = np.asarray(agent.buffer.state()["next_obs"])
    seen = agent.observations.unpack(reached)["achieved_goal"]
    assert (own | (desired[:, None] == seen[None]).all(-1).any(-1)).all()
    if env is BitFlip:
        assert np.array_equal(batch.discounts.numpy() == 0, batch.rewards.numpy() == 0)


def test_bits_are_flipped_with_hindsight() -> None:
    """Eight bits, 2000 env steps: HER reaches the goals; without it, the return is below -7.8."""
    options: dict[str, Any] = {
        "hidden": 64, "learning_starts": 200, "train_freq": 4, "gradient_steps": 2, "gamma": 0.95,
        "epsilon": "linear(1, 0.05, 1000)", "learning_rate": 1e-3, "batch_size": 64, "seed": 0,
    }  # fmt: skip
    dqn = rlox.make("dqn", env=lambda: BitFlip(8), buffer="her", **options)
    dqn.train(2_000)
    assert dqn.evaluate(n_episodes=100).mean_return > -5


@pytest.mark.slow
def test_goals_in_a_square_are_reached_with_hindsight_and_not_without() -> None:
    """Continuous actions, 4000 env steps of TD3: in reach from the fourth step on, or never."""
    options: dict[str, Any] = {
        "hidden": 64, "learning_starts": 500, "train_freq": 2, "gamma": 0.95, "noise_std": 0.2,
        "learning_rate": 1e-3, "batch_size": 128, "seed": 0,
    }  # fmt: skip
    returns = {}
    for buffer in ("her", "uniform"):
        td3 = rlox.make("td3", env=Reach, buffer=buffer, **options)
        td3.train(4_000)
        returns[buffer] = td3.evaluate(n_episodes=100).mean_return
    assert returns["her"] > -8
    assert returns["uniform"] < -20


def test_resuming_with_the_buffer_cuts_the_episodes_under_way(tmp_path: Path) -> None:
    """Gymnasium envs begin new episodes, so no goal may come from after the cut."""
    dqn = DQN(BitFlip, n_envs=2, save_replay_buffer=True, **{**SMALL, "steps_per_iteration": 6})
    dqn.train(6)
    before = dqn.replay.buffer.state()
    assert not before["truncated"][-2:].any()
    dqn.save(tmp_path / "her.safetensors")
    restored = DQN.from_checkpoint(tmp_path / "her.safetensors", BitFlip)
    after = restored.replay.buffer.state()
    assert after["truncated"][-2:].all()
    assert np.array_equal(before["truncated"][:-2], after["truncated"][:-2])
    restored.train(48)
    assert np.isfinite(restored.train(16)["q_loss"])


class Scalar(BitFlip):
    """Returns rewards without the batch axis."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -float(np.linalg.norm(achieved_goal - desired_goal) > 0)


class Mute(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Hides compute_reward."""

    def has_wrapper_attr(self, name: str) -> bool:
        return name != "compute_reward"


class Seen(BitFlip):
    """Observes an image."""

    def __init__(self) -> None:
        super().__init__()
        parts = dict(self.observation_space)
        parts["observation"] = spaces.Box(0, 255, (8, 8), np.uint8)
        self.observation_space = spaces.Dict(parts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env_id": "CartPole-v1"}, "needs observations that are a Dict of observation, achieved"),
        ({"env_id": Scalar}, r"must return \(M,\) rewards of goals \(M, 10\), got shape \(\)"),
        ({"env_id": lambda: Mute(BitFlip())}, "needs an env with compute_reward.* BitFlip has not"),
        ({"env_id": Seen}, "needs goals that are vectors, and observations of floats alone"),
        ({"n_step": 3}, "gives transitions of one step other goals, got n_step=3; set n_step=1"),
        ({"priority_alpha": 0.5}, "priority_alpha needs buffer='prioritized', got buffer='her'"),
        ({"buffer": "uniform", "n_sampled_goal": 8}, "n_sampled_goal needs buffer='her', got"),
    ],
)
def test_bad_input_is_named_before_any_work(options: dict[str, Any], message: str) -> None:
    """The error names the given value, the needed one and the remedy."""
    with pytest.raises(ConfigError, match=message):
        DQN(**{"env_id": BitFlip, **SMALL, **options})


def test_other_buffers_may_ask_for_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their spec declares it; errors have their name."""
    asked: list[buffers.BufferOptions] = []
    make = buffers.uniform_buffer
    spy = lambda options: asked.append(options) or make(options)  # noqa: E731
    monkeypatch.setattr(buffers, "uniform_buffer", spy)
    found = get_registry().get("rlox_buffers", "uniform")
    monkeypatch.setitem(vars(found), "spec", dataclasses.replace(found.spec, goals=True))
    options = {**SMALL, "buffer": "uniform"}
    DQN(BitFlip, **options).train(32)
    assert asked[0].goals is not None
    with pytest.raises(ConfigError, match="buffer='uniform' needs observations that are a Dict"):
        DQN("CartPole-v1", **options)
