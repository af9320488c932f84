"""Normalisation and frame stacking inside PPO and A2C."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rlox.errors import CheckpointError
from rlox_onpolicy.ppo import PPO

SMALL: dict[str, Any] = {"n_envs": 2, "n_steps": 64, "batch_size": 64, "n_epochs": 2, "hidden": 8}
EVERYTHING: dict[str, Any] = {
    "normalize_observations": True, "normalize_rewards": True, "frame_stack": 3,
}  # fmt: skip


class Numbered(gymnasium.Env[Any, Any]):
    """Observes the step's number; rewards of 2, episodes truncated after five steps."""

    observation_space = spaces.Box(0, 9, (1,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin at 0."""
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        """Count on."""
        self.count += 1
        return np.full(1, self.count, np.float32), 2.0, False, self.count == 5, {}


class Newest(torch.nn.Module):
    """Values an observation by its newest frame."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(torch.zeros(2))

    def get_action_and_logprob(self, obs: torch.Tensor) -> Any:
        """Return 0."""
        return torch.zeros(len(obs), dtype=torch.int64), torch.zeros(len(obs))

    def get_value(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the last number."""
        return obs[:, -1]

    def get_logprob_and_entropy(self, obs: torch.Tensor, actions: torch.Tensor) -> Any:
        """Return constants."""
        return self.logits.sum().expand(len(obs)), self.logits.sum().expand(len(obs))

    def deterministic(self, obs: torch.Tensor) -> torch.Tensor:
        """Return 0."""
        return torch.zeros(len(obs), dtype=torch.int64)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_stacks_end_with_their_episode(mode: AutoresetMode) -> None:
    """Rollouts end within episodes; truncations are valued by the episode's own frames."""
    envs = SyncVectorEnv([Numbered] * 2, autoreset_mode=mode)
    with PPO(envs, policy=Newest(), n_steps=7, batch_size=14, frame_stack=3, gamma=0.5,
             gae_lambda=0.0) as ppo:  # fmt: skip
        count = 0
        for _ in range(3):
            batch = ppo.collector.collect(ppo.policy, 7)
            for t in range(7):
                row = 2 * t
                assert batch.obs[row].tolist() == [max(count - 2, 0), max(count - 1, 0), count]
                assert batch.returns[row] == 2.0 + 0.5 * (count + 1)
                count = (count + 1) % 5


def test_advantages_come_from_scaled_rewards_and_reports_from_the_envs() -> None:
    """The batch and the mean return keep the envs' rewards."""
    options = {**SMALL, "hidden": 64, "normalize_rewards": True, "gae_lambda": 0.0}
    with PPO(Numbered, policy=Newest(), **options) as ppo:
        batch = ppo.collector.collect(ppo.policy, 64)
        assert batch.rewards.unique().tolist() == [2.0]
        assert ppo.collector.statistics.mean_return == 10.0
        following = torch.where(batch.obs[:, 0] == 4, 5.0, batch.obs[:, 0] + 1)
        scaled = batch.returns - 0.99 * following
        assert scaled[-1] < 1.5
        scaler = ppo.collector.reward_scaler
        assert scaler is not None
        expected = 2.0 / np.sqrt(scaler.moments.variance)
        assert scaled[-1].item() == pytest.approx(expected, rel=1e-3)


def test_acting_sees_what_rollouts_saw_and_changes_nothing(tmp_path: Path) -> None:
    """The frozen statistics apply in predict, evaluate and a restored model."""
    with PPO("CartPole-v1", **SMALL, **EVERYTHING) as learner:
        learner.train(256)
        before = learner.state_dict()["collector"]["observations"][""]["mean"].copy()
        learner.evaluate(n_episodes=2)
        env = gymnasium.make("CartPole-v1")
        obs, _ = env.reset(seed=0)
        preprocessor = learner.collector.preprocessor
        learner.save(tmp_path / "saved")
        with PPO.from_checkpoint(tmp_path / "saved") as restored:
            seen, state, other = None, None, None
            for _ in range(5):
                seen = preprocessor.see(obs[None], seen, None)
                expected = int(learner.policy.deterministic(torch.from_numpy(seen)))
                action, state = learner.predict(obs, state=state)
                again, other = restored.predict(obs, state=other)
                assert action == again == expected
                assert np.array_equal(state["frames"], seen)
                obs = env.step(action)[0]
        assert np.array_equal(learner.state_dict()["collector"]["observations"][""]["mean"], before)


class Recall(gymnasium.Env[Any, Any]):
    """Show a number once, then ask for it twice."""

    observation_space = spaces.Discrete(4)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Show a number."""
        super().reset(seed=seed)
        self.shown, self.steps = int(self.np_random.integers(3)), 0
        return self.shown, {}

    def step(self, action: Any) -> Any:
        """Ask for it."""
        self.steps += 1
        return 3, float(action == self.shown), self.steps == 3, False, {}


def test_frames_let_a_policy_without_memory_remember() -> None:
    """Three frames hold the number until the episode's end; one frame earns at most 5/3."""
    options: dict[str, Any] = {**SMALL, "hidden": 32, "n_epochs": 6, "learning_rate": 5e-3}
    with PPO(Recall, **options, frame_stack=3) as ppo:
        ppo.train(4_096)
        assert ppo.evaluate(n_episodes=50).mean_return > 2.7


@pytest.mark.parametrize(
    ("option", "saved"), [("normalize_observations", False), ("normalize_rewards", True)]
)
def test_checkpoint_keeps_what_is_normalized(tmp_path: Path, option: str, saved: bool) -> None:
    """The networks were trained on one scale; the error names the option."""
    with PPO("CartPole-v1", **SMALL, **{option: saved}) as ppo:
        ppo.save(tmp_path / "ppo.safetensors")
    with pytest.raises(CheckpointError) as caught:
        PPO.from_checkpoint(tmp_path / "ppo.safetensors", **{option: not saved})
    assert str(caught.value).endswith(
        f"does not fit: it was saved with {option}={saved}, got {option}={not saved}; leave the "
        "option as it was, or start a new training to change it"
    )
