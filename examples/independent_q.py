"""Independent Q-learning: three agents that learn as if each were alone.

python examples/independent_q.py [--steps N]
"""

from __future__ import annotations

import argparse

import rlox


def main(steps: int = 50_000) -> float:
    """Train, and return the mean return of 20 episodes."""
    with rlox.make("independent_q", env="mpe2/simple_spread_v3", seed=0) as team:
        team.train(steps)
        return team.evaluate(n_episodes=20).mean_return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=50_000, help="env steps to train for")
    print(f"mean return: {main(parser.parse_args().steps):.2f}")
