"""APPO balances a pole: PPO's loss on what two actors collect.

python examples/appo.py [--steps N]
"""

from __future__ import annotations

import argparse

import rlox


def main(steps: int = 100_000) -> float:
    """Train, and return the mean return of 20 episodes."""
    with rlox.make("appo", env="CartPole-v1", seed=0, n_actors=2) as appo:
        appo.train(steps)
        return appo.evaluate(n_episodes=20).mean_return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000, help="env steps to train for")
    print(f"mean return: {main(parser.parse_args().steps):.2f}")
