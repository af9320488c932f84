"""IPPO: three agents spread over three landmarks, each with what it sees itself.

python examples/ippo.py [--steps N]
"""

from __future__ import annotations

import argparse

import rlox


def main(steps: int = 200_000) -> float:
    """Train, and return the mean return of 20 episodes."""
    with rlox.make("ippo", env="mpe2/simple_spread_v3", seed=0, n_envs=16) as ippo:
        ippo.train(steps)
        return ippo.evaluate(n_episodes=20).mean_return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=200_000, help="env steps to train for")
    print(f"mean return: {main(parser.parse_args().steps):.2f}")
