"""PPO on a batched env of tensors: 256 copies in one object.

python examples/rl8_ppo.py [--steps N]
"""

from __future__ import annotations

import argparse

import rlox
from rlox.rl8.env import DiscreteDummyEnv


def main(steps: int = 200_000) -> float:
    """Train, and return the mean return of 100 episodes."""
    with rlox.make("rl8_ppo", env=DiscreteDummyEnv, n_envs=256, seed=0) as algorithm:
        algorithm.train(steps)
        return algorithm.evaluate(n_episodes=100).mean_return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=200_000, help="env steps to train for")
    print(f"mean return: {main(parser.parse_args().steps):.2f}")
