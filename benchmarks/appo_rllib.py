"""APPO on CartPole-v1 in rlox and RLlib: env steps per second, in turn on the same cores.

python benchmarks/appo_rllib.py --python ENV/bin/python [--rounds 7]

``ENV`` is an environment with ``ray[rllib]``. Both have two collecting processes of four envs,
unrolls of 128 steps, updates of 1,024 env steps in four epochs of minibatches of 256, and two
hidden layers of 64. Each side stays in a process of its own, idle during the other's turn. Ray's
workers get the same priority as rlox's (``RAY_worker_niceness=0``).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from measure import Side, machine, run_in_turns, summary, write

STEPS = 20_480
"""Minimum env steps of a turn."""

WARM_UP = 4_096
"""Env steps before the first turn."""

SIDES = {
    "rlox": """
import rlox
algorithm = rlox.make("appo", env="CartPole-v1", seed=0, n_actors=2, n_envs=4, n_steps=128,
                      actor_backend="process", queue_size=2, n_epochs=4, batch_size=256, hidden=64)
versions = {"rlox": rlox.__version__}

def train(steps):
    before = algorithm.clock.env_steps
    algorithm.train(steps)
    return algorithm.clock.env_steps - before
""",
    "RLlib": """
import os
os.environ["RAY_worker_niceness"] = "0"
import ray
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
ray.init(address="local", num_cpus=8, include_dashboard=False, logging_level="ERROR",
         log_to_driver=False)
versions = {"ray": ray.__version__}
config = (
    APPOConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=2, num_envs_per_env_runner=4, rollout_fragment_length=128)
    .learners(num_learners=0)
    .training(train_batch_size_per_learner=1024, num_epochs=4, minibatch_size=256)
    .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64]))
    .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=1024)
    .debugging(seed=0)
)
algorithm = config.build_algo()
sampled = 0

def train(steps):
    global sampled
    before = sampled
    while sampled - before < steps:
        # what learners report as trained has each env step once per epoch
        sampled = int(algorithm.train()["env_runners"]["num_env_steps_sampled_lifetime"])
    return sampled - before
""",
}


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", required=True, help="interpreter with ray[rllib]")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    pythons = {"rlox": sys.executable, "RLlib": given.python}
    sides = {
        name: Side(SIDES[name], python, STEPS, warm_up=WARM_UP) for name, python in pythons.items()
    }
    versions = run_in_turns(sides, given.rounds)
    speeds = {name: side.speeds for name, side in sides.items()}
    result: dict[str, Any] = {
        "machine": machine(["torch", "gymnasium"]),
        "versions": versions,
        "load": os.getloadavg()[0],
        "env_steps_per_second": {name: summary(found) for name, found in speeds.items()},
        "rlox_over_rllib": summary(
            [a / b for a, b in zip(speeds["rlox"], speeds["RLlib"], strict=True)]
        ),
    }
    print(json.dumps(result, indent=2))
    write("appo_rllib", result)


if __name__ == "__main__":
    main()
