"""PPO balances a pole; 500 is the most that an episode can return.

python examples/ppo.py [--steps N]
"""

from __future__ import annotations

import argparse

import rlox


def main(steps: int = 50_000) -> float:
    """Train, and return the mean return of 20 episodes."""
    with rlox.make("ppo", env="CartPole-v1", seed=0) as ppo:
        ppo.train(steps)
        return ppo.evaluate(n_episodes=20).mean_return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=50_000, help="env steps to train for")
    print(f"mean return: {main(parser.parse_args().steps):.2f}")
