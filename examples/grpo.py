"""GRPO teaches a small transformer to repeat its prompt, by a reward.

python examples/grpo.py [--steps N]
"""

from __future__ import annotations

import argparse

import rlox
import torch
from tiny_gpt import GPT, make_prompts, repeated


def main(steps: int = 200) -> float:
    """Train, and return the mean reward of completions."""
    torch.manual_seed(0)
    prompts = make_prompts()
    with rlox.make(
        "grpo", model=GPT(), reward_fn=repeated, dataset=prompts, group_size=8, kl_coef=0.0,
        learning_rate=3e-3, max_new_tokens=2, seed=0,
    ) as grpo:  # fmt: skip
        grpo.train(steps)
        return grpo.evaluate(prompts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=200, help="gradient steps to train for")
    print(f"mean reward: {main(parser.parse_args().steps):.2f}")
