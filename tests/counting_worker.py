"""A worker of envs whose steps carry counters, for tests that disturb it.

``python counting_worker.py PORT [ENV_ID]`` prints the port that it listens on; with an id it serves
two envs of it instead.
"""

import secrets
import sys

import numpy as np
from gymnasium import spaces
from rlox.envs.make import make_vec_env
from rlox_distributed.worker import EnvWorker

N_ENVS, LENGTH = 2, 9
PADDING = 4096
"""Further numbers, so that a message is several reads of a socket."""


class Counting:
    """Observes (process, env, steps of the episode, last action) and their sum, many times over."""

    n_envs = N_ENVS
    observation_space = spaces.Box(-np.inf, np.inf, (5 + PADDING,), np.float64)
    action_space = spaces.Box(-(2**31), 2**31, (), np.int64)

    def __init__(self):
        self._process = float(secrets.randbits(40))
        self._count = np.zeros(N_ENVS)

    def reset_all(self, seed=None):
        """Begin at 0."""
        self._count[:] = 0
        return self._obs(np.zeros(N_ENVS))

    def step_all(self, actions):
        """Count a step of every env, and end after some."""
        self._count += 1
        final = self._obs(actions)
        ended = self._count == LENGTH
        self._count[ended] = 0
        obs = np.where(ended[:, None], self._obs(actions), final)
        return {"obs": obs, "rewards": actions.astype(float), "terminated": ended,
                "truncated": np.zeros(N_ENVS, bool), "final_obs": final}  # fmt: skip

    def _obs(self, actions):
        columns = (np.full(N_ENVS, self._process), np.arange(N_ENVS), self._count, actions)
        numbers = np.stack(columns, 1).astype(np.float64)
        sums = numbers.sum(1, keepdims=True)
        return np.concatenate([numbers, np.repeat(sums, 1 + PADDING, 1)], 1)

    def close(self):
        """Do nothing."""


if __name__ == "__main__":
    env_id = sys.argv[2] if len(sys.argv) > 2 else "Counting"
    env = make_vec_env(env_id, n_envs=N_ENVS) if len(sys.argv) > 2 else Counting()
    worker = EnvWorker(env, env_id, f"127.0.0.1:{sys.argv[1]}")
    worker.start()
    print(worker.port, flush=True)
    worker.wait()
