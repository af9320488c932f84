"""PPO with memory, masks, several choices and nested observations, against Stable-Baselines3.

python benchmarks/ppo_policies.py [--rounds 7] [--kinds nested]

Equal work in both: 8 envs in this process, rollouts of 128 steps, 10 epochs of minibatches of 256
rows, one thread. Policy and values have two layers of 64 units each, or an LSTM of 64 and a layer.
A turn is one rollout and its update. ``processor`` is the time of all threads of the process, which
hardly depends on other programs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import rlox
import torch
from gymnasium import spaces
from measure import interleave_counted, machine, ratio_summary, summary, write
from rlox.nn import torch_threads
from sb3_contrib import MaskablePPO, RecurrentPPO
from stable_baselines3 import PPO as SB3PPO  # next to rlox's
from stable_baselines3.common.vec_env import DummyVecEnv

N_ENVS, N_STEPS = 8, 128
STEPS = N_ENVS * N_STEPS
EQUAL: dict[str, Any] = {
    "n_steps": N_STEPS,
    "n_epochs": 10,
    "batch_size": 256,
    "learning_rate": 3e-4,
}


class Masked(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole with ``Discrete(4)``, whose second pair repeats the first, and masks that change."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.action_space = spaces.Discrete(4)
        self.mask = np.ones(4, np.int8)

    def action_masks(self) -> Any:
        """Return the present mask, where sb3-contrib looks for it."""
        return self.mask.astype(bool)

    def reset(self, **options: Any) -> Any:
        """Begin an episode, with the mask of the first action."""
        obs, info = self.env.reset(**options)
        return obs, {**info, "action_mask": self.mask}

    def step(self, action: Any) -> Any:
        """Push to a side; the action determines the next mask."""
        self.mask = np.roll(np.array([1, 1, 1, 0], np.int8), int(action))
        obs, reward, terminated, truncated, info = self.env.step(int(action) % 2)
        return obs, reward, terminated, truncated, {**info, "action_mask": self.mask}


def cart_pole(kind: str) -> Any:
    """Return a CartPole with other spaces."""
    env: Any = gymnasium.make("CartPole-v1")
    if kind == "masks":
        return Masked(env)
    if kind == "choices":
        space = spaces.MultiDiscrete([2, 3])
        return gymnasium.wrappers.TransformAction(env, lambda action: int(action[0]), space)
    if kind == "nested":
        part = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        both = spaces.Dict({"cart": part, "pole": part})
        return gymnasium.wrappers.TransformObservation(
            env, lambda obs: {"cart": obs[:2], "pole": obs[2:]}, both
        )
    return env


def ours(kind: str) -> Callable[[], Any]:
    """Return a call that trains PPO of rlox for a rollout."""
    memory: dict[str, Any] = {"recurrent": "lstm", "memory_size": 64} if kind == "lstm" else {}
    ppo = rlox.make(
        "ppo",
        env=partial(cart_pole, kind),
        n_envs=N_ENVS,
        seed=0,
        torch_threads=1,
        **EQUAL,
        **memory,
    )
    print(f"{kind}: learner {ppo.learner}")
    return lambda: ppo.train(STEPS)


def theirs(kind: str) -> Callable[[], Any]:
    """Return a call that trains Stable-Baselines3, or sb3-contrib, for a rollout."""
    env = DummyVecEnv([partial(cart_pole, kind)] * N_ENVS)
    made: Any = partial(SB3PPO, "MultiInputPolicy" if kind == "nested" else "MlpPolicy")
    if kind == "masks":
        made = partial(MaskablePPO, "MlpPolicy")
    if kind == "lstm":
        sizes = {"lstm_hidden_size": 64, "net_arch": {"pi": [64], "vf": [64]}}
        made = partial(RecurrentPPO, "MlpLstmPolicy", policy_kwargs=sizes)
    with torch_threads(1):
        ppo = made(env, seed=0, device="cpu", **EQUAL)

    def train() -> None:
        with torch_threads(1):
            ppo.learn(STEPS, reset_num_timesteps=False)

    return train


def main() -> None:
    """Measure and write ``ppo_policies.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--kinds", nargs="+", default=["lstm", "masks", "choices", "nested"])
    arguments = parser.parse_args()
    result: dict[str, Any] = {"machine": machine(["torch", "stable-baselines3", "sb3-contrib"])}
    for kind in arguments.kinds:
        contenders = {"rlox": ours(kind), "stable-baselines3": theirs(kind)}
        for train in contenders.values():
            train()
        wall, processor = interleave_counted(contenders, arguments.rounds)
        result[kind] = {
            part: {
                "seconds": {name: summary(each) for name, each in seconds.items()},
                "rlox_over_stable_baselines3": ratio_summary(
                    seconds["stable-baselines3"], seconds["rlox"]
                ),
            }
            for part, seconds in (("wall", wall), ("processor", processor))
        }
        print(kind, {k: v["rlox_over_stable_baselines3"] for k, v in result[kind].items()})
    write("ppo_policies", result)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
