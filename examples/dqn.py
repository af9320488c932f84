"""DQN balances a pole, with tuned options.

python examples/dqn.py [--steps N]
"""

from __future__ import annotations

import argparse

import rlox


def main(steps: int = 50_000) -> float:
    """Train, and return the mean return of 20 episodes."""
    with rlox.make("dqn", env="CartPole-v1", seed=0, preset="tuned") as dqn:
        dqn.train(steps)
        return dqn.evaluate(n_episodes=20).mean_return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=50_000, help="env steps to train for")
    print(f"mean return: {main(parser.parse_args().steps):.2f}")
