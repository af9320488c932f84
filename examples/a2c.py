"""A2C balances a pole, with short rollouts of many envs.

python examples/a2c.py [--steps N]
"""

from __future__ import annotations

import argparse

import rlox


def main(steps: int = 100_000) -> float:
    """Train, and return the mean return of 20 episodes."""
    with rlox.make("a2c", env="CartPole-v1", seed=0) as a2c:
        a2c.train(steps)
        return a2c.evaluate(n_episodes=20).mean_return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000, help="env steps to train for")
    print(f"mean return: {main(parser.parse_args().steps):.2f}")
