"""Swing a pendulum up and hold it there: ``rlox.rl8`` on 64 pendulums in one tensor.

python examples/rl8_pendulum.py
"""

from __future__ import annotations

import math
from typing import Any

import torch
from rlox.rl8 import AlgorithmConfig, Env, Trainer
from tensordict import TensorDict
from torchrl.data import Unbounded

GRAVITY, SECONDS, TORQUE, FASTEST = 10.0, 0.05, 2.0, 8.0
OPTIONS: dict[str, Any] = {
    "horizon": 128, "horizons_per_env_reset": 4, "sgd_minibatch_size": 1024,
}  # fmt: skip


class Pendulum(Env):
    """Rods of 1 m and 1 kg that begin anywhere; angle, speed and torque cost their squares.

    The cost is θ² + 0.1 ω² + 0.001 u², and θ is 0 upright. Torques u beyond 2 N m have no effect.
    """

    def __init__(
        self, num_envs: int, /, horizon: int | None = None, *, device: Any = "cpu"
    ) -> None:
        super().__init__(num_envs, horizon, device=device)
        self.observation_spec = Unbounded(shape=torch.Size([3]), device=device)
        self.action_spec = Unbounded(shape=torch.Size([1]), device=device)
        self.state = torch.zeros(num_envs, 2, device=device)

    def reset(self, *, config: dict[str, Any] | None = None) -> torch.Tensor:
        """Draw angles within ``config["angle"]`` of upright, π by default, and speeds within 1."""
        angle = (config or {}).get("angle", math.pi)
        drawn = torch.empty_like(self.state).uniform_(-1, 1)
        self.state = drawn * torch.tensor([angle, 1.0], device=self.device)
        return self.obs()

    def obs(self) -> torch.Tensor:
        """Return cosine and sine of the angle, and the speed, of about 1."""
        angle, speed = self.state.unbind(-1)
        return torch.stack([angle.cos(), angle.sin(), speed / FASTEST], -1)

    def step(self, action: torch.Tensor) -> TensorDict:  # type: ignore[override]
        """Turn for 0.05 s by ``action`` newton metres."""
        angle, speed = self.state.unbind(-1)
        torque = action[:, 0].clamp(-TORQUE, TORQUE)
        cost = angle**2 + 0.1 * speed**2 + 0.001 * torque**2
        speed = speed + SECONDS * (1.5 * GRAVITY * angle.sin() + 3 * torque)
        speed = speed.clamp(-FASTEST, FASTEST)
        angle = torch.remainder(angle + SECONDS * speed + math.pi, 2 * math.pi) - math.pi
        self.state = torch.stack([angle, speed], -1)
        out = {"obs": self.obs(), "rewards": -cost[:, None]}
        return TensorDict(out, batch_size=[self.num_envs])


def main(steps: int = 24, num_envs: int = 64) -> float:
    """Train and return the mean return of the last evaluation."""
    torch.manual_seed(0)
    trainer = Trainer(AlgorithmConfig(num_envs=num_envs, **OPTIONS).build(Pendulum))
    for step in range(0, steps, 4):
        stats = trainer.run(steps_per_eval=4, max_steps=4)
        print(f"step {step + 4}: mean return {stats['eval/returns/mean']:.1f}")
    return float(stats["eval/returns/mean"])


if __name__ == "__main__":
    main()
