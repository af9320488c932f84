"""One seed, the same bits: whatever the hash seed, torch's threads, and the process.

Every case trains in two processes, and what they learnt must be equal to the last bit. Learner
backends differ by rounding, so each has a case of its own.
"""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(1200)

ROLLOUTS = {"n_envs": 4, "n_steps": 32, "hidden": 16}
REPLAY = {"n_envs": 2, "learning_starts": 64, "batch_size": 32, "hidden": 16,
          "steps_per_iteration": 100, "train_freq": 4, "gradient_steps": 1}  # fmt: skip
TEAMS = {"env": "mpe2/simple_spread_v3", "n_envs": 4, "hidden": 16}
OFFLINE = {"batch_size": 32, "hidden": 16}

CASES = [
    (name, {**options, "backend": backend, "env_backend": env_backend})
    for name, options in {
        "ppo": {"env": "CartPole-v1", **ROLLOUTS, "batch_size": 64},
        "sac": {"env": "Pendulum-v1", **REPLAY},
    }.items()
    for backend, env_backend in (("native", "native"), ("native", "gymnasium"), ("torch", "native"))
]
CASES += [
    ("impala", {"env": "CartPole-v1", "n_actors": 2, "n_envs": 2, "n_steps": 16, "hidden": 16}),
    ("mappo", {**TEAMS, "n_steps": 25, "batch_size": 100, "backend": "native"}),
    ("qmix", {**TEAMS, "learning_starts": 64, "batch_size": 8, "steps_per_iteration": 66}),
    ("rl8_ppo", {"env": "CartPole-v1", "n_envs": 8, "horizon": 16, "sgd_minibatch_size": 64}),
    ("dreamer_v3", {"env": "CartPole-v1", "learning_starts": 64, "batch_size": 4, "seq_len": 8,
                    "hidden": 8, "units": 8, "train_ratio": 4,
                    "steps_per_iteration": 66}),
    ("td3_bc", {**OFFLINE, "backend": "native"}),
    ("iql", {**OFFLINE, "backend": "torch"}),
]  # fmt: skip

TRAIN = """
import hashlib, json, sys
import numpy as np, rlox, torch
from rlox_offline.datasets import Dataset

torch.set_num_threads(int(sys.argv[1]))

def digest(value, into):
    if isinstance(value, dict):
        for key in sorted(value):
            into.update(key.encode())
            digest(value[key], into)
    elif hasattr(value, "tobytes"):
        into.update(value.tobytes())
    else:
        into.update(repr(value).encode())

draws = np.random.default_rng(0)
columns = {
    "obs": draws.normal(size=(200, 3)), "next_obs": draws.normal(size=(200, 3)),
    "actions": draws.uniform(-1, 1, (200, 2)), "rewards": draws.normal(size=200),
    "terminated": np.arange(200) % 20 == 19,
}
for name, options in json.loads(sys.argv[2]):
    steps = 130
    if "env" not in options:
        options["dataset"], steps = Dataset(columns, act_low=-1.0, act_high=1.0), 20
    with rlox.make(name, **options, seed=3) as algorithm:
        algorithm.train(steps)
        into = hashlib.sha256()
        digest(algorithm.state_dict(), into)
        print(into.hexdigest())
"""


def learn_twice():
    """Return hashes of what each case learnt, by two processes; see above what differs."""
    children = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", TRAIN, threads, json.dumps(CASES)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "OMP_NUM_THREADS": threads},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for threads, hash_seed in (("1", "0"), ("2", "12345"))
    ]  # fmt: skip
    outputs = [child.communicate() for child in children]
    assert [child.returncode for child in children] == [0, 0], outputs
    first, second = (out.splitlines() for out, _ in outputs)
    return list(zip(first, second, strict=True))


def test_processes_agree():
    """The parameters, the optimiser's moments and all else that a checkpoint has.

    No two cases learnt the same but those that differ in the env backend alone. One test, so that
    test processes side by side do not train the cases twice.
    """
    hashes = learn_twice()
    differ = [case for case, (one, other) in zip(CASES, hashes, strict=True) if one != other]
    assert not differ
    learnt = {}
    for (name, options), (digest, _) in zip(CASES, hashes, strict=True):
        key = json.dumps([name, {k: v for k, v in options.items() if k != "env_backend"}])
        learnt.setdefault(digest, set()).add(key)
    assert all(len(keys) == 1 for keys in learnt.values())
