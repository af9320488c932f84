"""TD3 swings up a pendulum, with tuned options.

python examples/td3.py [--steps N]
"""

from __future__ import annotations

import argparse

import rlox


def main(steps: int = 20_000) -> float:
    """Train, and return the mean return of 20 episodes."""
    with rlox.make("td3", env="Pendulum-v1", seed=0, preset="tuned") as td3:
        td3.train(steps)
        return td3.evaluate(n_episodes=20).mean_return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000, help="env steps to train for")
    print(f"mean return: {main(parser.parse_args().steps):.2f}")
