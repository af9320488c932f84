"""DPO teaches a small transformer to repeat its prompt, by recorded pairs of completions.

python examples/dpo.py [--steps N]
"""

from __future__ import annotations

import argparse
import copy

import rlox
import torch
from tiny_gpt import GPT, make_prompts


def main(steps: int = 200) -> float:
    """Train, and return the share of pairs whose better completion is more probable."""
    torch.manual_seed(0)
    prompts = make_prompts().tolist()
    uneven = [prompt for prompt in prompts if len(set(prompt)) > 1]
    pairs = [rlox.DPOPair(prompt, prompt, prompt[::-1]) for prompt in uneven]
    model = GPT()
    with rlox.make(
        "dpo", model=model, ref_model=copy.deepcopy(model), dataset=pairs, learning_rate=1e-3,
        seed=0,
    ) as dpo:  # fmt: skip
        metrics = dpo.train(steps)
        return metrics["accuracy"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=200, help="gradient steps to train for")
    print(f"accuracy: {main(parser.parse_args().steps):.2f}")
