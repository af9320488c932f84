"""SAC of rlox and of Stable-Baselines3, both continuing one training on HalfCheetah-v5.

SAC's seeds differ by the gait that the cheetah finds in the first third of the training, so a few
seeds do not show whether libraries differ. Here rlox trains, and then both continue with its
policy, critics, target networks, temperature, Adam's moments, replay buffer and options.

    python benchmarks/sac_branches.py run 5 --env-steps 200000
    python benchmarks/sac_branches.py summarize

Needs gymnasium[mujoco].
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import rlox
import torch
from measure import machine
from mujoco_curves import (
    EVALUATED,
    FOLDER,
    PACKAGES,
    Curve,
    EvaluationsCurve,
    Length,
    make_theirs,
)
from rlox.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from torch import Tensor, nn

ENV = "HalfCheetah-v5"
EVERY = 10_000
BRANCHES = FOLDER / "branches"
OTHER_SEEDS = 100
"""Offset of the seed in Stable-Baselines3's branch."""

Pairs = Iterator[tuple[Tensor, Tensor]]


def main() -> None:
    """Make the branches of one seed, or summarise all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="train, and continue in both libraries")
    run.add_argument("seed", type=int)
    run.add_argument("--env-steps", type=int, default=100_000, help="of rlox before the branches")
    run.add_argument("--more", type=int, default=100_000, help="env steps of each branch")
    commands.add_parser("summarize", help="print a table")
    arguments = parser.parse_args()
    if arguments.command == "summarize":
        summarize()
        return
    torch.set_num_threads(1)
    seed, env_steps, more = arguments.seed, arguments.env_steps, arguments.more
    callback = EvalCallback(None, EVERY, EVALUATED, verbose=False)
    ours = rlox.make("sac", env=ENV, config={"seed": seed}, callbacks=[callback])
    ours.train(env_steps)
    theirs = taken_over(ours, seed + OTHER_SEEDS)
    branch = EvaluationsCurve(Length(env_steps + more, EVERY), make_vec_env(ENV, 1, seed=0))
    theirs.learn(more, callback=branch, reset_num_timesteps=False)
    ours.train(more)
    result = {
        "env": ENV,
        "seed": seed,
        "branched_at": env_steps,
        "rlox": callback.eval_results,
        "stable-baselines3": branch.curve,
        "machine": machine(PACKAGES),
    }
    BRANCHES.mkdir(parents=True, exist_ok=True)
    path = BRANCHES / f"sac-{ENV}-{seed}.json"
    path.write_text(json.dumps(result) + "\n", encoding="utf-8")
    print(path)


def taken_over(ours: Any, seed: int) -> Any:
    """Return Stable-Baselines3's SAC with all that ours has learnt and stored."""
    done = ours.clock.env_steps
    theirs = make_theirs("sac", ours.config, make_vec_env(ENV, 1, seed=seed), seed)
    theirs.num_timesteps = done
    copy_into(critic_pairs(ours.critic_target, theirs.critic_target))
    for name, module, pairs in (
        ("policy", theirs.actor, policy_pairs),
        ("critic", theirs.critic, critic_pairs),
    ):
        copy_into(pairs(getattr(ours, name), module))
        copy_moments(ours, name, module, pairs)
    state = ours.optimizers["alpha"].state()
    with torch.no_grad():
        theirs.log_ent_coef.copy_(ours.alpha.log_alpha.reshape(1))
    theirs.ent_coef_optimizer.state[theirs.log_ent_coef] = {
        "step": torch.tensor(float(state["step"])),
        **{key: state[key].clone().reshape(1) for key in ("exp_avg", "exp_avg_sq")},
    }
    stored, buffer = ours.replay.buffer.state(), theirs.replay_buffer
    for name, array in (
        ("obs", buffer.observations),
        ("next_obs", buffer.next_observations),
        ("actions", buffer.actions),
        ("rewards", buffer.rewards),
        ("terminated", buffer.dones),
    ):
        array[:done, 0] = np.asarray(stored[name])[:done]
    buffer.pos = done
    return theirs


def copy_moments(ours: Any, name: str, module: Any, pairs: Callable[[Any, Any], Pairs]) -> None:
    """Copy the moments of our optimiser ``name`` to that of their ``module``."""
    state = ours.optimizers[name].state()
    for key in ("exp_avg", "exp_avg_sq"):
        mine, yours = copy.deepcopy(getattr(ours, name)), copy.deepcopy(module)
        nn.utils.vector_to_parameters(state[key], mine.parameters())
        copy_into(pairs(mine, yours))
        for parameter, moment in zip(module.parameters(), yours.parameters(), strict=True):
            of_parameter = module.optimizer.state[parameter]
            of_parameter["step"] = torch.tensor(float(state["step"]))
            of_parameter[key] = moment.detach().clone()


def copy_into(pairs: Pairs) -> None:
    """Copy the first of each pair into the second."""
    for ours, theirs in pairs:
        theirs.data.copy_(ours)


def critic_pairs(ours: Any, theirs: Any) -> Pairs:
    """Yield our critics' parameters, member by member, with theirs."""
    for k, network in enumerate(theirs.q_networks):
        linears = [layer for layer in network if isinstance(layer, nn.Linear)]
        for weights, biases, linear in zip(ours.net.weights, ours.net.biases, linears, strict=True):
            yield weights.detach()[k].T, linear.weight
            yield biases.detach()[k, 0], linear.bias


def policy_pairs(ours: Any, theirs: Any) -> Pairs:
    """Yield our policy's parameters, with means and deviations in one last layer, with theirs."""
    *hidden, last = ours.net.layers
    linears = [layer for layer in theirs.latent_pi if isinstance(layer, nn.Linear)]
    for mine, linear in zip(hidden, linears, strict=True):
        yield mine.weight.detach(), linear.weight
        yield mine.bias.detach(), linear.bias
    size = theirs.mu.out_features
    for rows, head in ((slice(None, size), theirs.mu), (slice(size, None), theirs.log_std)):
        yield last.weight.detach()[rows], head.weight
        yield last.bias.detach()[rows], head.bias


def summarize() -> None:
    """Print the returns of both branches of every seed, side by side."""
    for path in sorted(BRANCHES.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        print(f"seed {found['seed']}, from {found['branched_at']:,} env steps on")
        for name in ("rlox", "stable-baselines3"):
            curve: Curve = found[name]
            after = [f"{value:,.0f}" for step, value in curve if step > found["branched_at"]]
            print(f"| {name} | {' | '.join(after)} |")


if __name__ == "__main__":
    main()
