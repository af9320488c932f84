"""IMPALA balances a pole: two actors collect while the learner learns.

python examples/impala.py [--steps N]
"""

from __future__ import annotations

import argparse

import rlox


def main(steps: int = 100_000) -> float:
    """Train, and return the mean return of 20 episodes."""
    with rlox.make("impala", env="CartPole-v1", seed=0, n_actors=2) as impala:
        impala.train(steps)
        return impala.evaluate(n_episodes=20).mean_return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000, help="env steps to train for")
    print(f"mean return: {main(parser.parse_args().steps):.2f}")
