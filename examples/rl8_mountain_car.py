"""Drive a car that is too weak out of a valley: ``rlox.rl8`` on 64 cars in one tensor.

python examples/rl8_mountain_car.py
"""

from __future__ import annotations

from typing import Any

import torch
from rlox.rl8 import AlgorithmConfig, Env, Trainer
from tensordict import TensorDict
from torchrl.data import Categorical, Unbounded

FORCE, GRAVITY, LEFT, RIGHT, FASTEST = 0.001, 0.0025, -1.2, 0.6, 0.07
OPTIONS: dict[str, Any] = {
    "horizon": 128, "horizons_per_env_reset": 4, "gamma": 0.99, "sgd_minibatch_size": 1024,
}  # fmt: skip


class MountainCar(Env):
    """Cars between two hills; the reward is the height, from -1 in the valley to 1 at the top.

    The equations of motion are those of Moore 1990. A car stops where the track ends.
    """

    def __init__(
        self, num_envs: int, /, horizon: int | None = None, *, device: Any = "cpu"
    ) -> None:
        super().__init__(num_envs, horizon, device=device)
        self.observation_spec = Unbounded(shape=torch.Size([2]), device=device)
        self.action_spec = Categorical(3, shape=torch.Size([1]), device=device)
        self.state = torch.zeros(num_envs, 2, device=device)

    def reset(self, *, config: dict[str, Any] | None = None) -> torch.Tensor:
        """Place the cars at rest, in the valley: ``config["left"]`` and ``["right"]`` bound it."""
        config = config or {}
        at = torch.empty(self.num_envs, device=self.device)
        at.uniform_(config.get("left", -0.6), config.get("right", -0.4))
        self.state = torch.stack([at, torch.zeros_like(at)], -1)
        return self.obs()

    def obs(self) -> torch.Tensor:
        """Return position and velocity, both of about 1."""
        x, v = self.state.unbind(-1)
        return torch.stack([x, v / FASTEST], -1)

    def step(self, action: torch.Tensor) -> TensorDict:  # type: ignore[override]
        """Drive to the left, not at all, or to the right."""
        x, v = self.state.unbind(-1)
        v = v + FORCE * (action[:, 0] - 1).float() - GRAVITY * (3 * x).cos()
        x = x + v.clamp(-FASTEST, FASTEST)
        held = (x <= LEFT) | (x >= RIGHT)
        x, v = x.clamp(LEFT, RIGHT), v.clamp(-FASTEST, FASTEST).masked_fill(held, 0.0)
        self.state = torch.stack([x, v], -1)
        rewards = (3 * x).sin()[:, None]
        return TensorDict({"obs": self.obs(), "rewards": rewards}, batch_size=[self.num_envs])


def main(steps: int = 24, num_envs: int = 64) -> float:
    """Train and return the mean return of the last evaluation."""
    torch.manual_seed(0)
    trainer = Trainer(AlgorithmConfig(num_envs=num_envs, **OPTIONS).build(MountainCar))
    for step in range(0, steps, 4):
        stats = trainer.run(steps_per_eval=4, max_steps=4)
        print(f"step {step + 4}: mean return {stats['eval/returns/mean']:.1f}")
    return float(stats["eval/returns/mean"])


if __name__ == "__main__":
    main()
