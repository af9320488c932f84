"""Supervised fine-tuning: a small transformer repeats its prompt, from examples.

python examples/sft.py [--steps N]
"""

from __future__ import annotations

import argparse

import rlox
import torch
from tiny_gpt import GPT, make_prompts


def main(steps: int = 200) -> float:
    """Train, and return the share of words that are predicted."""
    torch.manual_seed(0)
    rows = [{"prompt": prompt, "completion": prompt} for prompt in make_prompts().tolist()]
    with rlox.make("sft", model=GPT(), dataset=rows, learning_rate=3e-3, seed=0) as sft:
        metrics = sft.train(steps)
        return metrics["token_accuracy"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=200, help="gradient steps to train for")
    print(f"token accuracy: {main(parser.parse_args().steps):.2f}")
