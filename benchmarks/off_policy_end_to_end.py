"""SAC, TD3 and DQN, env steps per second with learning: rlox and Stable-Baselines3.

Equal hyperparameters and networks, one torch thread each, all in one process and in turn, so that a
busy machine slows all alike. rlox runs three times: as it comes, with Rust env and learner; with
gymnasium's env, which is what Stable-Baselines3 steps; and with the torch learner. SAC and TD3 take
a gradient step per env step on batches of 256, with two layers of 256; DQN has the settings of the
Stable-Baselines3 zoo for CartPole.

    python benchmarks/off_policy_end_to_end.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import stable_baselines3
import torch
from measure import interleave, machine, ratio_summary, summary, write
from products import Products, network
from rlox.algorithms import DQN, SAC, TD3
from rlox.learners.transitions import Learn
from rlox.nn import flush_denormals
from rlox.training.hooks import Hooks

ENV_STEPS = {"SAC": 200, "TD3": 200, "DQN": 1024}
"""Per run."""

CONTINUOUS = {"learning_rate": 1e-3, "batch_size": 256, "gamma": 0.99, "tau": 0.005}
DISCRETE = {"learning_rate": 2.3e-3, "batch_size": 64, "gamma": 0.99, "train_freq": 256,
            "gradient_steps": 128}  # fmt: skip
HIDDEN = [256, 256]


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/off_policy_end_to_end.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    where = machine(["rlox-core", "rlox-native", "stable-baselines3", "torch", "gymnasium"])
    rows = []
    for name, env_steps in ENV_STEPS.items():
        contenders = contenders_for(name, env_steps)
        interleave(contenders, 2)
        seconds = interleave(contenders, rounds)
        speeds = {who: [env_steps / s for s in runs] for who, runs in seconds.items()}
        for who, values in speeds.items():
            ratio = ratio_summary(values, speeds["stable-baselines3"])
            rows.append(
                {
                    "algorithm": name,
                    "contender": who,
                    "env_steps_per_second": summary(values),
                    "ratio_to_stable_baselines3": ratio,
                }
            )
            print(
                f"{name}  {who:20s} {summary(values)['median']:9,.0f} env steps/s  "
                f"{ratio['median']:5.2f}x ({ratio['min']:.2f}-{ratio['max']:.2f})"
            )
    breakdown, over_products = where_time_goes()
    for part, milliseconds in breakdown.items():
        print(f"{part:40s} {milliseconds:7.3f} ms")
    print(f"gradient step over its products: {over_products['median']:.2f}x")
    path = write(
        "off_policy_end_to_end",
        {
            "settings": {"SAC, TD3": CONTINUOUS, "DQN": DISCRETE, "hidden": 256},
            "rounds": rounds,
            "env_steps_per_round": ENV_STEPS,
            "machine": where,
            "rows": rows,
            "sac_native_env_milliseconds_per_env_step": breakdown,
            "sac_gradient_step_over_its_products": over_products,
        },
    )
    print(path)


def contenders_for(name: str, env_steps: int) -> dict[str, Callable[[], Any]]:
    """Return the runs of ``env_steps`` env steps each, all past their first exploration."""
    discrete = name == "DQN"
    env = "CartPole-v1" if discrete else "Pendulum-v1"
    settings = dict(DISCRETE if discrete else CONTINUOUS, learning_starts=300)
    theirs: Any = getattr(stable_baselines3, name)(
        "MlpPolicy", env, buffer_size=100_000, device="cpu", seed=0,
        policy_kwargs={"net_arch": HIDDEN}, **settings,
        **({"target_update_interval": 256} if discrete else {}),
    )  # fmt: skip
    ours = {
        backend: {"SAC": SAC, "TD3": TD3, "DQN": DQN}[name](
            env, buffer_size=100_000, env_backend=backend, steps_per_iteration=env_steps,
            **settings,
        )
        for backend in ("native", "gymnasium")
    }  # fmt: skip
    eager = {"SAC": SAC, "TD3": TD3, "DQN": DQN}[name](
        env, buffer_size=100_000, env_backend="native", steps_per_iteration=env_steps,
        backend="torch", **settings,
    )  # fmt: skip
    return {
        "stable-baselines3": lambda: theirs.learn(env_steps, reset_num_timesteps=False),
        "rlox": lambda: ours["native"].train(env_steps),
        "rlox, gymnasium env": lambda: ours["gymnasium"].train(env_steps),
        "rlox, torch learner": lambda: eager.train(env_steps),
    }


def where_time_goes(repeats: int = 50) -> tuple[dict[str, float], dict[str, float]]:
    """Return the median milliseconds of each part of SAC's env step with its gradient step.

    And how many times as long as its matrix products the gradient step takes.
    """
    sac = SAC("Pendulum-v1", env_backend="native", learning_starts=300, **CONTINUOUS)
    sac.train(1_000)
    replay, batch = sac.replay, sac.replay.draw()
    obs = torch.zeros(1, 3)

    def milliseconds(run: Callable[[], Any]) -> float:
        runs = []
        for _ in range(repeats):
            started = time.perf_counter()
            run()
            runs.append((time.perf_counter() - started) * 1e3)
        return summary(runs)["median"]

    products = products_of_sac(3, 1, hidden=256, batch_size=CONTINUOUS["batch_size"])
    with flush_denormals():
        with torch.no_grad():
            act = milliseconds(lambda: sac._act(obs))
        step = milliseconds(lambda: replay.step(sac._act, Hooks(sac)))
        draw = milliseconds(replay.draw)
        learn, floor = [], []
        # in turn, as their ratio is what counts
        for _ in range(9):
            learn.append(milliseconds(lambda: sac.learner.step(Learn.ALL, batch, 1e-9)))
            floor.append(milliseconds(products.run))
    learnt, multiplied = summary(learn)["median"], summary(floor)["median"]
    parts = {
        "act": act,
        "step the env and store": step - act,
        "draw a batch": draw,
        "learn: the products": multiplied,
        "learn: everything else": learnt - multiplied,
    }
    return parts, ratio_summary(learn, floor)


def products_of_sac(obs_dim: int, act_dim: int, hidden: int, batch_size: int) -> Products:
    """Return all matrix products of SAC's gradient step, sixteen of them hidden × hidden."""
    products = Products(batch_size)
    policy = network(obs_dim, hidden, hidden, 2 * act_dim)
    critics, targets = (
        [network(obs_dim + act_dim, hidden, hidden, 1) for _ in range(2)] for _ in range(2)
    )
    for weights in (policy, *targets):
        products.forward(weights)
    for critic in critics:
        products.learn(critic)
    values = products.forward(policy)
    for critic in critics:
        products.backward(critic, products.forward(critic), to_inputs=True)
    products.backward(policy, values)
    return products


if __name__ == "__main__":
    main()
