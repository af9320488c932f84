"""Online DPO teaches a small transformer to repeat its prompt, by which of two is better.

python examples/online_dpo.py [--steps N]
"""

from __future__ import annotations

import argparse

import rlox
import torch
from tiny_gpt import GPT, make_prompts, repeated
from torch import Tensor


def main(steps: int = 200) -> float:
    """Train, and return the share of pairs whose better completion is more probable."""
    torch.manual_seed(0)
    prompts = make_prompts()

    def second_is_better(pairs: list[tuple[Tensor, Tensor]]) -> list[int]:
        shares = [[repeated(row[None], row[None, :2])[0] for row in pair] for pair in pairs]
        return [int(second > first) for first, second in shares]

    with rlox.make(
        "online_dpo", model=GPT(), ref_model=GPT(), preference_fn=second_is_better,
        dataset=prompts, learning_rate=1e-3, max_new_tokens=2, seed=0,
    ) as online_dpo:  # fmt: skip
        metrics = online_dpo.train(steps)
        return metrics["accuracy"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=200, help="gradient steps to train for")
    print(f"accuracy: {main(parser.parse_args().steps):.2f}")
