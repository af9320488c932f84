"""Fitted Q evaluation: what a policy would return, from data of another one.

python examples/fqe.py [--steps N]
"""

from __future__ import annotations

import argparse

import rlox
from recorded_pendulum import recorded_episodes


def main(steps: int = 2_000) -> float:
    """Train, and return the estimated discounted return of a cloned policy."""
    dataset = recorded_episodes()
    with rlox.make("bc", dataset=dataset, seed=0) as policy:
        policy.train(500)
        with rlox.make("fqe", dataset=dataset, policy=policy, gamma=0.95, seed=0) as fqe:
            fqe.train(steps)
            return fqe.estimate()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=2_000, help="gradient steps to train for")
    print(f"discounted return: {main(parser.parse_args().steps):.2f}")
