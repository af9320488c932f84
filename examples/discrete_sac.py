"""SAC for discrete actions balances a pole, with tuned options.

python examples/discrete_sac.py [--steps N]
"""

from __future__ import annotations

import argparse

import rlox


def main(steps: int = 30_000) -> float:
    """Train, and return the mean return of 20 episodes."""
    with rlox.make("discrete_sac", env="CartPole-v1", seed=0, preset="tuned") as discrete_sac:
        discrete_sac.train(steps)
        return discrete_sac.evaluate(n_episodes=20).mean_return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=30_000, help="env steps to train for")
    print(f"mean return: {main(parser.parse_args().steps):.2f}")
