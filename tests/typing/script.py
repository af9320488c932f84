"""A user's script for the type checkers: never run, checked strictly by `nox -s types`.

Where a comment expects an error and there is none, the check fails.
"""

from typing import Any

import rlox
from rlox.algorithms import PPO
from rlox.callbacks import EvalCallback

ppo = rlox.make("ppo", env="CartPole-v1", seed=0, gamma=0.98, learning_rate="linear(1e-3, 0)")
discount: float = ppo.config.gamma
epochs: int = ppo.config.n_epochs
metrics: dict[str, float] = ppo.train(total_timesteps=10_000)
score: float = ppo.evaluate(n_episodes=20).mean_return

rlox.make("ppo", env="CartPole-v1", gama=0.98)  # type: ignore[call-overload]
rlox.make("ppo", env="CartPole-v1", n_steps="many")  # type: ignore[call-overload]
rlox.make("sac", env="Pendulum-v1", clip_eps=0.1)  # type: ignore[call-overload]
wrong: str = ppo.config.gamma  # type: ignore[assignment]
missing: float = ppo.config.gama  # type: ignore[attr-defined]

typed: PPO = rlox.make("ppo", env="CartPole-v1", callbacks=["progress", EvalCallback()])
again: PPO = PPO.from_checkpoint("best.safetensors")
direct = PPO("CartPole-v1", n_envs=4, clip_eps=0.1)
PPO("CartPole-v1", clip_epsilon=0.1)  # type: ignore[call-arg]

offline = rlox.make("cql", dataset="walker2d.hdf5", batch_size=64, preset="tuned")
teams = rlox.make("mappo", env="mpe2/simple_spread_v3", share_parameters="agents")
remote = rlox.make("impala", "CartPole-v1", worker_addresses=["a:50051"], hidden=64)
grouped: int = rlox.make("grpo", model="model", reward_fn=len, group_size=4).config.group_size


def by_any_name(name: str, **options: Any) -> rlox.Algorithm:
    """Build an algorithm whose name and options only the caller knows."""
    return rlox.make(name, env="CartPole-v1", config=options)
