"""Observations of any space with every off-policy algorithm: storing, learning, acting."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlox.spaces.rows import map_leaves
from rlox_offpolicy.ddpg import DDPG
from rlox_offpolicy.discrete_sac import DiscreteSAC
from rlox_offpolicy.dqn import DQN
from rlox_offpolicy.sac import SAC
from rlox_offpolicy.td3 import TD3

SMALL: dict[str, Any] = {
    "hidden": 8, "buffer_size": 200, "learning_starts": 8, "train_freq": 4, "gradient_steps": 2,
    "batch_size": 16, "steps_per_iteration": 16, "seed": 0,
}  # fmt: skip
ROBOT = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (8, 8, 3), np.uint8),
        "arm": spaces.Dict({"angles": spaces.Box(-np.pi, np.pi, (3,)), "grip": spaces.Discrete(2)}),
        "flags": spaces.MultiBinary(2),
    }
)
SPACES = {
    "nested": ROBOT,
    "image": spaces.Box(0, 255, (8, 8), np.uint8),
    "bytes": spaces.Box(0, 255, (5,), np.uint8),
    "matrix": spaces.Box(-1, 1, (2, 3)),
    "number": spaces.Discrete(5, start=2),
    "pair": spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,))]),
}
DISCRETE = (DQN, DiscreteSAC)


class Random(gymnasium.Env[Any, Any]):
    """Random samples of a space; episodes of five steps, even ones truncated."""

    def __init__(self, space: Any, discrete: bool) -> None:
        self.observation_space = space
        self.action_space = spaces.Discrete(3) if discrete else spaces.Box(-2.0, 1.0, (2,))
        self.episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode."""
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.left, self.episodes = 5, self.episodes + 1
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        """Return another sample."""
        assert self.action_space.contains(action)
        self.left -= 1
        ended, even = self.left == 0, self.episodes % 2 == 0
        return self.observation_space.sample(), 1.0, ended and not even, ended and even, {}


def make(algorithm: Any, space: Any, **options: Any) -> Any:
    """Return a small algorithm over envs of a space."""
    discrete = algorithm in DISCRETE
    return algorithm(lambda: Random(space, discrete), **{**SMALL, **options})


def nets(algorithm: Any) -> list[torch.Tensor]:
    """Return the flat parameters of all trained parts."""
    optimizers = algorithm.optimizers
    return [optimizers[n].parameters for n in ("network", "policy", "critic") if n in optimizers]


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        (DQN, "nested"), (DQN, "number"), (SAC, "nested"), (SAC, "bytes"), (TD3, "image"),
        (DDPG, "matrix"), (DiscreteSAC, "pair"),
    ],
)  # fmt: skip
def test_learns_from_any_space(algorithm: Any, name: str) -> None:
    """Every parameter vector moves, metrics are finite, and predictions fit the action space."""
    space = SPACES[name]
    made = make(algorithm, space, n_envs=3)
    before = [parameters.clone() for parameters in nets(made)]
    metrics = made.train(48)
    assert np.isfinite(metrics["q_loss"])
    assert all(not torch.equal(a, b) for a, b in zip(before, nets(made), strict=True))
    env = Random(space, algorithm in DISCRETE)
    action = made.predict(space.sample())
    assert env.action_space.contains(action if algorithm in DISCRETE else action.astype(np.float32))
    assert made.evaluate(n_episodes=2).mean_return == 5.0


@pytest.mark.parametrize("buffer", ["uniform", "prioritized"])
def test_batches_hold_what_the_env_returned(buffer: str) -> None:
    """Leaves come back bit for bit by name and dtype, also over two steps of two envs."""
    seen: dict[bytes, int] = {}

    class Watched(Random):
        def step(self, action: Any) -> Any:
            obs, *rest = super().step(action)
            seen[obs["arm"]["angles"].tobytes()] = int(obs["camera"].astype(np.int64).sum())
            return obs, *rest

    dqn = DQN(lambda: Watched(ROBOT, True), **{**SMALL, "n_envs": 2, "n_step": 2, "buffer": buffer})
    dqn.train(32)
    batch = dqn.replay.draw()
    assert set(batch.next_obs) == {"camera", "arm.angles", "arm.grip", "flags"}
    dtypes = map_leaves(lambda leaf: leaf.dtype, batch.next_obs)
    assert dtypes["camera"] == torch.uint8
    assert dtypes["arm.grip"] == torch.int64
    assert dtypes["arm.angles"] == dtypes["flags"] == torch.float32
    for angles, camera in zip(batch.next_obs["arm.angles"], batch.next_obs["camera"], strict=True):
        assert seen[angles.numpy().tobytes()] == int(camera.long().sum())
