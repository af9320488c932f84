"""DreamerV3 balances a pole in a world that it has learnt; 30,000 steps reach 500.

python examples/dreamer_v3.py [--steps N]
"""

from __future__ import annotations

import argparse

import rlox


def main(steps: int = 5_000) -> float:
    """Train, and return the mean return of 10 episodes."""
    with rlox.make("dreamer_v3", env="CartPole-v1", seed=0) as dreamer:
        dreamer.train(steps)
        return dreamer.evaluate(n_episodes=10).mean_return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=5_000, help="env steps to train for")
    print(f"mean return: {main(parser.parse_args().steps):.2f}")
