"""IMPALA on CartPole-v1 in rlox, RLlib and Sample Factory: env steps per second, in turn.

python benchmarks/impala_peers.py --rllib PYTHON --sample-factory PYTHON [--rounds 7]

``--rllib`` is an interpreter with ``ray[rllib]``, ``--sample-factory`` one with ``sample-factory``,
which needs ``numpy<2`` and ``gymnasium<1``. All have two collecting processes of four envs, unrolls
of 128 steps, one update for each 1,024 env steps, and two hidden layers of 64. Sample Factory 2.1.1
fails at its first summary with V-trace, so it has GAE, its default. Env steps count when they are
learnt from, in RLlib when they are sampled. Sample Factory trains to its end once begun, so its
processes are stopped during others' turns.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from appo_rllib import SIDES, STEPS, WARM_UP
from measure import Side, machine, run_in_turns, summary, write

RLLIB = SIDES["RLlib"].replace("appo", "impala").replace("APPO", "IMPALA")

SAMPLE_FACTORY = """
import atexit, os, signal, subprocess, sys, tempfile
from importlib.metadata import version
versions = {"sample-factory": version("sample-factory")}
TRAINING = '''
import sys, threading, time
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.train import make_runner
from sf_examples.train_gym_env import register_custom_components
register_custom_components()
counts = sys.stdout
sys.stdout = sys.stderr
parser, _ = parse_sf_args(sys.argv[1:])
config, runner = make_runner(parse_full_cfg(parser, sys.argv[1:]))

def report():
    before = None
    while True:
        steps = runner.total_env_steps_since_resume
        if steps != before:
            before = steps
            print(steps or 0, file=counts, flush=True)
        time.sleep(0.005)

threading.Thread(target=report, daemon=True).start()
runner.init()
runner.run()
'''
options = dict(
    algo="APPO", env="CartPole-v1", experiment="speed", train_dir=tempfile.mkdtemp(), device="cpu",
    seed=0, num_workers=2, num_envs_per_worker=4, rollout=128, batch_size=1024, num_epochs=1,
    num_batches_per_epoch=1, use_rnn=False, recurrence=1, with_vtrace=False,
    encoder_mlp_layers=[64, 64], nonlinearity="tanh", normalize_input=False,
    normalize_returns=False,
    async_rl=True, set_workers_cpu_affinity=False, train_for_env_steps=10**9, save_every_sec=10**6,
    default_niceness=-10,  # collecting processes add 10
    heartbeat_reporting_interval=10**6, experiment_summaries_interval=10**6,
)
words = []
for name, value in options.items():
    words += [f"--{name}", *map(str, value)] if isinstance(value, list) else [f"--{name}={value}"]
training = subprocess.Popen(
    [sys.executable, "-W", "ignore", "-c", TRAINING, *words], stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL, text=True, start_new_session=True,
)
atexit.register(os.killpg, training.pid, signal.SIGKILL)
learnt = 0

def train(more):
    global learnt
    before = learnt
    os.killpg(training.pid, signal.SIGCONT)
    while learnt - before < more:
        line = training.stdout.readline()
        if not line:
            raise RuntimeError("Sample Factory has ended")
        learnt = int(line)
    os.killpg(training.pid, signal.SIGSTOP)
    return learnt - before
"""
SCRIPTS = {
    "rlox": SIDES["rlox"]
    .replace('"appo"', '"impala"')
    .replace("n_epochs=4, batch_size=256", "unrolls_per_update=2"),
    "RLlib": RLLIB.replace(", num_epochs=4, minibatch_size=256", ""),
    "Sample Factory": SAMPLE_FACTORY,
}


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rllib", help="interpreter with ray[rllib]")
    parser.add_argument("--sample-factory", help="interpreter with sample-factory")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    pythons = {
        "rlox": sys.executable,
        "RLlib": given.rllib,
        "Sample Factory": given.sample_factory,
    }
    sides = {
        name: Side(SCRIPTS[name], python, STEPS, warm_up=WARM_UP)
        for name, python in pythons.items()
        if python
    }
    versions = run_in_turns(sides, given.rounds)
    speeds = {name: side.speeds for name, side in sides.items()}
    result: dict[str, Any] = {
        "rounds": given.rounds,
        "machine": machine(["torch", "gymnasium"]),
        "versions": versions,
        "load": os.getloadavg()[0],
        "env_steps_per_second": {name: summary(found) for name, found in speeds.items()},
        "rlox_over": {
            name: summary([a / b for a, b in zip(speeds["rlox"], found, strict=True)])
            for name, found in speeds.items()
            if name != "rlox"
        },
    }
    print(json.dumps(result, indent=2))
    write("impala_peers", result)


if __name__ == "__main__":
    main()
