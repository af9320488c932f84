"""CQL learns from recorded actions, with low values for all others.

python examples/cql.py [--steps N]
"""

from __future__ import annotations

import argparse

import rlox
from recorded_pendulum import recorded_episodes


def main(steps: int = 2_000) -> float:
    """Train, and return the mean return of 10 episodes."""
    dataset = recorded_episodes()
    with rlox.make("cql", dataset=dataset, env="Pendulum-v1", seed=0) as algorithm:
        algorithm.train(steps)
        return algorithm.evaluate(n_episodes=10).mean_return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=2_000, help="gradient steps to train for")
    print(f"mean return: {main(parser.parse_args().steps):.2f}")
