"""Learning from rendered images: a small gridworld, alone and with other observations."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlox.nn import ConvolutionalEncoder
from rlox_onpolicy.ppo import PPO

SIZE, PIXELS = 5, 2
MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])


class Gridworld(gymnasium.Env[Any, Any]):
    """Walk from the middle to the goal; 1 for reaching it, -0.1 for each step before.

    Args:
        layout: ``"picture"``: one image of walker and goal; ``"dict"``: the walker's image and the
            goal's position separately.
    """

    action_space = spaces.Discrete(4)

    def __init__(self, layout: str = "picture") -> None:
        side = SIZE * PIXELS
        picture = spaces.Box(0, 255, (side, side, 3), np.uint8)
        self.layout, self.observation_space = layout, picture
        if layout == "dict":
            place = spaces.MultiDiscrete([SIZE, SIZE])
            self.observation_space = spaces.Dict({"picture": picture, "goal": place})

    def _obs(self) -> Any:
        cells = np.zeros((SIZE, SIZE, 3), np.uint8)
        cells[tuple(self.walker)] = 255, 0, 0
        if self.layout != "dict":
            cells[tuple(self.goal)] = 0, 255, 0
        image = cells.repeat(PIXELS, 0).repeat(PIXELS, 1)
        return {"picture": image, "goal": self.goal} if self.layout == "dict" else image

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Place the walker in the middle and the goal anywhere else."""
        super().reset(seed=seed)
        self.walker, self.steps = np.array([SIZE // 2] * 2), 0
        cell = int(self.np_random.integers(SIZE**2 - 1))
        self.goal = np.array(divmod(cell + (cell >= SIZE**2 // 2), SIZE))
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        """Walk; walls stop."""
        self.walker = np.clip(self.walker + MOVES[action], 0, SIZE - 1)
        self.steps += 1
        there = bool((self.walker == self.goal).all())
        return self._obs(), 1.0 if there else -0.1, there, self.steps == 15, {}


@pytest.mark.slow
def test_a_gridworld_is_learnt_from_its_pictures() -> None:
    """The best policy gets 0.85; a random walk reaches the goal half the time."""
    options: dict[str, Any] = {"n_steps": 64, "batch_size": 128, "n_epochs": 4, "gamma": 0.9}
    # at a constant step size the policy forgets one of the goals now and then
    options |= {"ent_coef": 0.01, "learning_rate": "linear(0.003, 0)"}
    with PPO(lambda: Gridworld("dict"), **options) as ppo:
        encoders = [m for m in ppo.policy.modules() if isinstance(m, ConvolutionalEncoder)]
        assert len(encoders) == 1
        batch = ppo.collector.collect(ppo.policy, 4)
        assert batch.obs["picture"].dtype == torch.uint8
        assert ppo.train(1)["mean_reward"] < 0.3
        ppo.train(12_288)
        assert ppo.evaluate(n_episodes=50).mean_return > 0.75


def test_rollouts_in_half_precision_act_with_the_newest_parameters() -> None:
    """Parameters converted for one rollout are not reused in the next."""
    options: dict[str, Any] = {"n_steps": 16, "compute_dtype": "bfloat16", "learning_rate": 0.02}
    with PPO(Gridworld, **options, seed=0) as ppo:
        before = copy.deepcopy(ppo.policy)
        ppo.train(1)
        batch = ppo.collector.collect(ppo.policy, 16)
        now, then = (
            policy.get_logprob_and_entropy(batch.obs, batch.actions)[0].detach()
            for policy in (ppo.policy, before)
        )
        assert (batch.log_probs - now).abs().max() < 0.05
        assert (batch.log_probs - then).abs().max() > 0.2
