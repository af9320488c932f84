"""Swing a pole up and hold it: 64 carts in one tensor, trained by ``rlox.rl8``.

python examples/rl8_cartpole.py
"""

from __future__ import annotations

import math
from typing import Any

import torch
from rlox.rl8 import AlgorithmConfig, Env, Trainer
from tensordict import TensorDict
from torchrl.data import Categorical, Unbounded

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
OPTIONS: dict[str, Any] = {"horizon": 64}


class CartPole(Env):
    """Carts with poles that begin near upright; the reward is minus the angle and the position.

    The equations of motion are those of Barto, Sutton and Anderson 1983, without friction.
    """

    max_horizon = 128
    capturable = True  # a step writes into self.state, and asks the host for nothing

    def __init__(
        self, num_envs: int, /, horizon: int | None = None, *, device: Any = "cpu"
    ) -> None:
        super().__init__(num_envs, horizon, device=device)
        self.observation_spec = Unbounded(shape=torch.Size([5]), device=device)
        self.action_spec = Categorical(3, shape=torch.Size([1]), device=device)
        self.state = torch.zeros(num_envs, 4, device=device)

    def reset(self, *, config: dict[str, Any] | None = None) -> torch.Tensor:
        """Draw states within ``config["bounds"]`` of rest, 0.2 by default."""
        bounds = (config or {}).get("bounds", 0.2)
        self.state.uniform_(-bounds, bounds)
        return self.obs()

    def obs(self) -> torch.Tensor:
        """Return position, velocity, cosine and sine of the angle, and its velocity."""
        x, v, angle, spin = self.state.unbind(-1)
        return torch.stack([x, v, angle.cos(), angle.sin(), spin], -1)

    def step(self, action: torch.Tensor) -> TensorDict:  # type: ignore[override]
        """Push to the left, not at all, or to the right."""
        x, v, angle, spin = self.state.unbind(-1)
        force = FORCE * (action[:, 0] - 1).float()
        total = CART + POLE
        pull = (force + POLE * HALF_LENGTH * spin**2 * angle.sin()) / total
        spin_up = (GRAVITY * angle.sin() - angle.cos() * pull) / (
            HALF_LENGTH * (4 / 3 - POLE * angle.cos() ** 2 / total)
        )
        speed_up = pull - POLE * HALF_LENGTH * spin_up * angle.cos() / total
        angle = torch.remainder(angle + SECONDS * spin + math.pi, 2 * math.pi) - math.pi
        self.state.copy_(
            torch.stack(
                [x + SECONDS * v, v + SECONDS * speed_up, angle, spin + SECONDS * spin_up], -1
            )
        )
        rewards = -(angle.abs() + 0.1 * self.state[:, 0].abs())[:, None]
        return TensorDict({"obs": self.obs(), "rewards": rewards}, batch_size=[self.num_envs])


def main(steps: int = 40, num_envs: int = 64) -> float:
    """Train and return the mean return of the last evaluation."""
    torch.manual_seed(0)
    trainer = Trainer(AlgorithmConfig(num_envs=num_envs, **OPTIONS).build(CartPole))
    for step in range(0, steps, 5):
        stats = trainer.run(steps_per_eval=5, max_steps=5)
        print(f"step {step + 5}: mean return {stats['eval/returns/mean']:.1f}")
    return float(stats["eval/returns/mean"])


if __name__ == "__main__":
    main()
