"""Best-of-N sampling: the best of N completions, by a reward; it learns nothing.

python examples/best_of_n.py [--steps N]
"""

from __future__ import annotations

import argparse

import torch
from rlox.algorithms import BestOfN
from tiny_gpt import GPT, make_prompts, repeated


def main(steps: int = 200) -> float:
    """Train, and return the mean reward of the best of 8 completions."""
    torch.manual_seed(0)
    prompts = make_prompts(max(steps, 1))
    best = BestOfN(GPT(), repeated, n=8, max_new_tokens=2).generate(prompts)
    rewards = repeated(best, prompts)
    return sum(rewards) / len(rewards)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=200, help="prompts to train for")
    print(f"mean reward: {main(parser.parse_args().steps):.2f}")
