"""Updates of DreamerV3: rlox, eager and compiled, and sheeprl at equal sizes, one thread each.

python benchmarks/dreamer_updates.py --python ENV/bin/python [--cases debug 1m images] [--compiled]

``ENV`` is an environment with ``sheeprl``. An update is one gradient step of world model, actor and
critic on a batch of sequences; rlox's draws the batch and writes the states back, sheeprl's is
given one. Widths, depths, bins, sequences and horizon are the same, so that the models differ by
the recurrent layer: sheeprl's GRU is dense, as in the first DreamerV3, rlox's has eight blocks.
Each side stays in a process of its own that rests while the others have their turns. Compiling
takes minutes before the first turn.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from measure import Side, kept, machine, run_in_turns, summary, write

ONE_M = {
    "deter": 512, "hidden": 64, "stoch": 32, "classes": 4, "units": 64, "depth": 4, "bins": 255,
    "horizon": 15, "batch": 16, "length": 64, "images": False,
}  # fmt: skip
SIZES = {
    "debug": {
        "deter": 64, "hidden": 64, "stoch": 8, "classes": 8, "units": 64, "depth": 8, "bins": 63,
        "horizon": 5, "batch": 32, "length": 16, "images": False,
    },
    "1m": ONE_M,
    "images": {**ONE_M, "images": True},
}  # fmt: skip
"""Of the cases: ``debug`` on vectors of 4 numbers, size ``1m`` on those, and on 64×64 images."""

UPDATES = {"debug": 20, "1m": 2, "images": 2}
"""Updates of a turn."""

RLOX = """
import gymnasium, numpy as np, rlox, torch
from rlox.nn import flush_denormals
from rlox_dreamer.dreamer import Latent, Learn

class Frames(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}
    def step(self, action):
        return self.observation_space.sample(), 1.0, False, False, {}

s = SIZE
agent = rlox.make(
    "dreamer_v3", env=Frames if s["images"] else "CartPole-v1", seed=0, backend=BACKEND,
    deter_dim=s["deter"], hidden=s["hidden"], stoch_dim=s["stoch"], stoch_classes=s["classes"],
    units=s["units"], depth=s["depth"], bins=s["bins"], imagination_horizon=s["horizon"],
    batch_size=s["batch"], seq_len=s["length"], learning_starts=2000, torch_threads=1,
)
agent.train(2000)
torch.set_num_threads(1)
versions = {"rlox": rlox.__version__}

def train(updates):
    with flush_denormals():
        for _ in range(updates):
            batch = agent.experience.draw()
            learnt = agent.learner.step(Learn.ALL, batch, 3e-4)
            agent.experience.batches.write_back(batch.indices, Latent(**learnt.outputs))
    return updates
"""

SHEEPRL = """
import contextlib, hydra, numpy as np, sys, torch, warnings
from gymnasium import spaces
from hydra import compose, initialize_config_module
from importlib.metadata import version
from lightning.fabric import Fabric
from omegaconf import OmegaConf
from sheeprl.algos.dreamer_v3.agent import build_agent
from sheeprl.algos.dreamer_v3.dreamer_v3 import train as update
from sheeprl.algos.dreamer_v3.utils import Moments
from sheeprl.utils.metric import MetricAggregator
from sheeprl.utils.utils import dotdict

torch.set_num_threads(1)
MetricAggregator.disabled = True
s = SIZE
seen = ["cnn", "mlp"] if s["images"] else ["mlp", "cnn"]
world = "algo.world_model."
options = {
    "exp": "dreamer_v3", "env": "gym", "fabric.accelerator": "cpu",
    "algo.compile.enabled": COMPILED, "algo.compile.mode": "default",
    "algo.per_rank_batch_size": s["batch"], "algo.per_rank_sequence_length": s["length"],
    "algo.horizon": s["horizon"], "algo.dense_units": s["units"], "algo.mlp_layers": 3,
    "algo.critic.bins": s["bins"], world + "reward_model.bins": s["bins"],
    world + "reward_model.mlp_layers": 1, world + "discount_model.mlp_layers": 1,
    world + "stochastic_size": s["stoch"], world + "discrete_size": s["classes"],
    world + "recurrent_model.recurrent_state_size": s["deter"],
    world + "recurrent_model.dense_units": s["hidden"],
    world + "transition_model.hidden_size": s["hidden"],
    world + "representation_model.hidden_size": s["hidden"],
    world + "encoder.cnn_channels_multiplier": s["depth"],
    f"algo.{seen[0]}_keys.encoder": "[seen]", f"algo.{seen[0]}_keys.decoder": "[seen]",
    f"algo.{seen[1]}_keys.encoder": "[]", f"algo.{seen[1]}_keys.decoder": "[]",
}
with initialize_config_module("sheeprl.configs", version_base="1.3"):
    config = compose("config", overrides=[f"{k}={v}" for k, v in options.items()])
config = dotdict(OmegaConf.to_container(config, resolve=True))
fabric = Fabric(accelerator="cpu", devices=1)
fabric.launch()
shape = (3, 64, 64) if s["images"] else (4,)
space = spaces.Box(0, 255, shape, np.uint8) if s["images"] else spaces.Box(-1, 1, shape)
model, actor, critic, target, _ = build_agent(
    fabric, (2,), False, config, spaces.Dict({"seen": space}))
optimizers = fabric.setup_optimizers(*(
    hydra.utils.instantiate(part.optimizer, params=module.parameters(), _convert_="all")
    for part, module in (
        (config.algo.world_model, model), (config.algo.actor, actor), (config.algo.critic, critic))
))
found = config.algo.actor.moments
moments = Moments(found.decay, found.max, found.percentile.low, found.percentile.high)
versions = {"sheeprl": version("sheeprl")}
steps = (s["length"], s["batch"])
none = torch.zeros(*steps, 1)

def train(updates):
    for _ in range(updates):
        batch = {
            "seen": torch.randint(256, (*steps, *shape)).to(torch.uint8).float()
            if s["images"] else torch.randn(*steps, *shape),
            "actions": torch.nn.functional.one_hot(torch.randint(2, steps), 2).float(),
            "rewards": torch.ones(*steps, 1), "terminated": none, "truncated": none,
            "is_first": none.clone(),
        }
        for own, slow in zip(critic.module.parameters(), target.parameters()):
            slow.data.copy_(0.02 * own.data + 0.98 * slow.data)
        update(fabric, model, actor, critic, target, *optimizers, batch, None, config, False, (2,),
               moments)
    return updates
"""


def main() -> None:
    """Measure, print and write ``benchmarks/results/<processor>/dreamer_updates.json``."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", required=True, help="interpreter with sheeprl")
    parser.add_argument("--cases", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--compiled", action="store_true", help="also with torch.compile")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    result: dict[str, Any] = {
        "machine": {**machine(["rlox-dreamer", "torch"]), "load": os.getloadavg()[0]},
        "clock": "processor time of the process",
        "cases": kept("dreamer_updates").get("cases", {}),
    }
    for case in given.cases:
        result["cases"][case] = compare(case, given.python, given.rounds, given.compiled)
        print(case, json.dumps(result["cases"][case], indent=2), flush=True)
    print(write("dreamer_updates", result))


def compare(case: str, python: str, rounds: int, compiled: bool) -> dict[str, Any]:
    """Return updates per second of each contender, and rlox's over the others'."""
    programs = {
        "rlox": (RLOX.replace("BACKEND", "'torch'"), sys.executable),
        "sheeprl": (SHEEPRL.replace("COMPILED", "False"), python),
    }
    if compiled:
        programs |= {
            "rlox, compiled": (RLOX.replace("BACKEND", "'torch-compile'"), sys.executable),
            "sheeprl, compiled": (SHEEPRL.replace("COMPILED", "True"), python),
        }
    sides = {
        name: Side(
            program.replace("SIZE", repr(SIZES[case])), interpreter, UPDATES[case], warm_up=3
        )
        for name, (program, interpreter) in programs.items()
    }
    versions = run_in_turns(sides, rounds)
    speeds = {name: side.processor_speeds for name, side in sides.items()}
    return {
        "rounds": rounds,
        "sizes": SIZES[case],
        "versions": versions,
        "updates_per_second": {name: summary(found) for name, found in speeds.items()},
        "over": {
            f"{ours} over {theirs}": summary(
                [a / b for a, b in zip(speeds[ours], speeds[theirs], strict=True)]
            )
            for ours in programs
            for theirs in programs
            if ours.startswith("rlox") and theirs.startswith("sheeprl")
        },
    }


if __name__ == "__main__":
    main()
