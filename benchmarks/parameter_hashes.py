"""Hashes of the final parameters of short trainings with fixed seeds, as JSON.

Two versions of rlox that print the same hashes on one machine compute the same bits:
``python benchmarks/parameter_hashes.py > before.json``, change something, and compare.
"""

from __future__ import annotations

import json
import sys
import warnings
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import rlox
from gymnasium import spaces
from rlox_tools.evidence import digest, parameter_hash

PPO = {"n_envs": 4, "n_steps": 32, "batch_size": 64, "n_epochs": 2}
REPLAY = {"learning_starts": 100, "batch_size": 32}
ACTORS = {"n_envs": 2, "n_steps": 16, "n_actors": 2, "order": "fixed"}
TEAM = {"n_envs": 2, "n_steps": 32, "batch_size": 64, "n_epochs": 2}
VALUES = {"n_envs": 2, "learning_starts": 50, "batch_size": 4}
RUNS: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "ppo": ("ppo", "CartPole-v1", 1024, PPO),
    "ppo-continuous": ("ppo", "Pendulum-v1", 1024, {**PPO, "ent_coef": 0.01, "vf_clip_eps": 0.2}),
    "ppo-lstm": ("ppo", "CartPole-v1", 512, {**PPO, "recurrent": "lstm", "batch_size": 64}),
    "ppo-normalized": (
        "ppo", "Pendulum-v1", 512,
        {**PPO, "normalize_observations": True, "normalize_rewards": True, "target_kl": 0.01},
    ),
    "a2c": ("a2c", "CartPole-v1", 1024, {}),
    "sac": ("sac", "Pendulum-v1", 300, REPLAY),
    "sac-prioritized": ("sac", "Pendulum-v1", 300, {**REPLAY, "buffer": "prioritized"}),
    "td3": ("td3", "Pendulum-v1", 300, REPLAY),
    "crossq": ("crossq", "Pendulum-v1", 300, {**REPLAY, "critic_hidden": 16}),
    "ddpg": ("ddpg", "Pendulum-v1", 300, REPLAY),
    "discrete-sac": ("discrete_sac", "CartPole-v1", 300, REPLAY),
    "dqn": ("dqn", "CartPole-v1", 600, {**REPLAY, "train_freq": 4}),
    "dqn-rainbow": (
        "dqn", "CartPole-v1", 400,
        {**REPLAY, "train_freq": 4, "buffer": "prioritized", "n_step": 3, "noisy": True,
         "distributional": "c51", "v_min": 0.0, "v_max": 50.0, "dueling": True},
    ),
    "impala": ("impala", "CartPole-v1", 512, ACTORS),
    "appo": ("appo", "CartPole-v1", 512, ACTORS),
    "hybrid-ppo": ("hybrid_ppo", "CartPole-v1", 512, PPO),
    "mappo": ("mappo", "mpe2/simple_spread_v3", 256, TEAM),
    "mappo-of-one": ("mappo", "CartPole-v1", 512, PPO),
    "ippo": ("ippo", "mpe2/simple_spread_v3", 256, TEAM),
    "vdn": ("vdn", "mpe2/simple_spread_v3", 200, VALUES),
    "qmix": ("qmix", "mpe2/simple_spread_v3", 200, VALUES),
    "independent-q": ("independent_q", "mpe2/simple_spread_v3", 200, VALUES),
    "dreamer": (
        "dreamer_v3", "CartPole-v1", 64,
        {"hidden": 8, "units": 8, "batch_size": 2, "seq_len": 4, "learning_starts": 16,
         "train_ratio": 2},
    ),
    "rl8": ("rl8_ppo", "CartPole-v1", 512, {"horizon": 16}),
    "rl8-recurrent": ("rl8_recurrent_ppo", "CartPole-v1", 512, {"horizon": 16}),
    "ppo-nested": ("ppo", "nested", 512, PPO),
    "ppo-masked": ("ppo", "masked", 512, PPO),
    "a2c-nested": ("a2c", "nested", 512, {}),
}  # fmt: skip
OFFLINE = ("bc", "td3_bc", "awac", "iql", "cql")
LANGUAGE = ("grpo", "dpo")
IN_TORCH = (
    "vdn", "qmix", "independent_q", "dreamer_v3", "crossq", "discrete_sac", "rl8_recurrent_ppo",
)  # fmt: skip
"""Algorithms without a choice of backend."""


class Nested(gymnasium.Env[Any, Any]):
    """An env with random nested observations and, unless masked, nested actions.

    Args:
        masked: whether actions are discrete, with masks in infos.
    """

    observation_space = spaces.Dict(
        {"place": spaces.Box(-1, 1, (3,)), "kind": spaces.Discrete(3, start=1)}
    )

    def __init__(self, masked: bool = False) -> None:
        self.masked, self.n_steps = masked, 0
        self.action_space = (
            spaces.Discrete(3)
            if masked
            else spaces.Dict({"choice": spaces.Discrete(3), "torque": spaces.Box(-2, 2, (2,))})
        )

    def look(self) -> tuple[Any, dict[str, Any]]:
        """Return an observation, and the masks."""
        place = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        mask = np.array([True, *(self.np_random.random(2) < 0.5)])
        seen = {"place": place, "kind": int(self.np_random.integers(1, 4))}
        return seen, {"action_mask": mask} if self.masked else {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode."""
        super().reset(seed=seed)
        self.n_steps = 0
        return self.look()

    def step(self, action: Any) -> Any:
        """Pay a random reward; every second episode is truncated, after nine steps."""
        self.n_steps += 1
        seen, info = self.look()
        over = self.n_steps == 9
        ends = bool(self.np_random.random() < 0.5)
        return seen, float(self.np_random.normal()), over and ends, over and not ends, info


ENVS = {"nested": Nested, "masked": partial(Nested, masked=True)}


def language_model() -> Any:
    """Return a small Llama of random weights."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=16, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=32, eos_token_id=1, bos_token_id=None,
        pad_token_id=0,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def language(name: str) -> str:
    """Return the hash of a small language model's parameters after training."""
    import torch

    rng = np.random.default_rng(0)
    prompts = [rng.integers(2, 16, 4).tolist() for _ in range(16)]
    model, options = language_model(), {"learning_rate": 1e-3, "seed": 0}
    if name == "grpo":
        lengths: Any = lambda completions, prompts: [float(c.sum()) for c in completions]  # noqa: E731
        options |= {"reward_fn": lengths, "group_size": 4, "max_new_tokens": 6}
        data: Any = torch.tensor(prompts)
    else:
        data = [{"prompt": p, "chosen": [5, 1], "rejected": [6, 7, 1]} for p in prompts]
    make: Any = rlox.make
    with make(name, model=model, ref_model=language_model(), dataset=data, **options) as made:
        made.train(n_gradient_steps=4)
        return digest({key: value.numpy() for key, value in made.model.state_dict().items()})


def dataset() -> Any:
    """Return transitions of a synthetic continuous task."""
    from rlox_offline.datasets import Dataset

    rng = np.random.default_rng(0)
    n = 2_000
    obs = rng.normal(size=(n + 1, 3)).astype(np.float32)
    ends = np.arange(1, n + 1) % 100 == 0
    columns = {
        "obs": obs[:-1], "next_obs": obs[1:], "rewards": rng.normal(size=n).astype(np.float32),
        "actions": rng.uniform(-1, 1, (n, 1)).astype(np.float32),
        "terminated": np.zeros(n, bool), "truncated": ends,
    }  # fmt: skip
    return Dataset(columns)


def main() -> None:
    """Print the hashes by run and learner backend."""
    wanted = sys.argv[1:]
    make: Any = rlox.make  # of any name
    found: dict[str, str] = {}
    for name, (algorithm, env, steps, options) in RUNS.items():
        for backend in (None,) if algorithm in IN_TORCH else ("torch", "native"):
            if wanted and not any(name.startswith(word) for word in wanted):
                continue
            chosen = {} if backend is None else {"backend": backend}
            try:
                made = make(algorithm, env=ENVS.get(env, env), seed=0, **chosen, **options)
            except (rlox.errors.BackendError, rlox.errors.MissingDependencyError) as error:
                found[f"{name} {backend or ''}".strip()] = type(error).__name__
                continue
            with made:
                made.train(steps)
                found[f"{name} {backend or ''}".strip()] = parameter_hash(made)
    for name in OFFLINE:
        for backend in ("torch", "native"):
            if wanted and not any(name.startswith(word) for word in wanted):
                continue
            options = {} if name in ("bc", "awac") else {"backend": backend}
            try:
                made = make(name, dataset=dataset(), seed=0, batch_size=32, **options)
            except rlox.errors.BackendError as error:
                found[f"{name} {backend}"] = type(error).__name__
                continue
            with made:
                made.train(60)
                found[f"{name} {backend}"] = parameter_hash(made)
    for name in LANGUAGE:
        if not wanted or any(name.startswith(word) for word in wanted):
            found[name] = language(name)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    import rlox.errors

    main()
