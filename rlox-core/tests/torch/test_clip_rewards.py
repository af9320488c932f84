"""Rewards that are clipped in what is learnt from, and nowhere else."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlox.envs.running import RunningEnvs
from rlox.networks.actor_critics import make_policy
from rlox.replay.collector import ReplayCollector
from rlox.rollouts import RolloutCollector


class Paying(gymnasium.Env):
    """Three steps that pay 0.5, 7 and -9, or the nearest within the bound."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, bound: float = np.inf) -> None:
        self._bound = bound
        self._step = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin with the first reward."""
        super().reset(seed=seed)
        self._step = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        """Pay the next reward."""
        reward = (0.5, 7.0, -9.0)[self._step]
        self._step += 1
        reward = float(np.clip(reward, -self._bound, self._bound))
        return np.full(2, self._step / 4, np.float32), reward, self._step == 3, False, {}


@pytest.mark.parametrize("bound", [1.0, 2.5])
def test_advantages_are_of_clipped_rewards(bound) -> None:
    """They equal those of an env that pays clipped rewards; batches and returns are the env's."""
    batches, collectors = [], []
    for env, clip in ((Paying, bound), (lambda: Paying(bound), None)):
        collector = RolloutCollector(env, 2, seed=0, clip_rewards=clip)
        torch.manual_seed(0)
        policy = make_policy(collector.observation_space, collector.env.action_space)
        batches.append(collector.collect(policy, 7))
        collectors.append(collector)
    ours, expected = batches
    assert torch.equal(ours.advantages, expected.advantages)
    assert torch.equal(ours.returns, expected.returns)
    assert ours.rewards.min() == -9.0
    assert collectors[0].statistics.mean_return == -1.5


def test_stored_rewards_are_clipped() -> None:
    """A replay buffer gets clipped rewards, the statistics the env's."""
    stored: list[Any] = []

    class Buffer:
        def push_batch(self, obs, actions, rewards, *rest):
            stored.append(rewards)

        def __len__(self):
            return len(stored)

        def sample(self, *args):
            raise NotImplementedError

    envs = RunningEnvs.make(Paying, 1, 0)
    collector = ReplayCollector(envs, Buffer(), clip_rewards=1.0)
    for _ in range(3):
        collector.step(collector.obs, np.zeros(1, np.int64), np.zeros(1, np.int64))
    collector.count_episodes()
    assert np.array_equal(np.concatenate(stored), [0.5, 1.0, -1.0])
    assert envs.statistics.mean_return == -1.5
