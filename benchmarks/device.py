"""PPO with its envs on a GPU: rlox's programs, also as rl8's, rl8, rsl_rl and one JAX function.

    python benchmarks/device.py [--cases cart-pole-1024 cart-pole-8192 robot] [--rounds 5]
        [--device cuda] [--without rl8 rsl_rl jax]
    python benchmarks/device.py --learn

Milliseconds of an iteration: all steps of the envs and all gradient steps. Each contender has a
process of its own and is idle during others' turns; clocks are read after waiting for the GPU.
Libraries that are not installed are left out.

    cart-pole   32 steps, then all envs are reset; 4 epochs on the whole rollout, two 256×256
    robot       48 observations, 12 actions, 24 steps of 4,096 envs; 5 epochs of 4 minibatches, two
                512-256-128 with ELU; the dynamics are one matrix product

With ``--learn``, seconds after the capture until CartPole-v1's mean return is 475, and five seeds
of the robot next to rsl_rl's: the mean reward of a step after 100 iterations, and memory.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from clocks import gpu_of
from gymnasium import spaces
from measure import Side, kept, machine, ratio_summary, run_in_turns, summary, write
from torch import Tensor

Turn = Callable[[int], None]
"""Takes n iterations."""


class Stepped:
    """N copies that are reset together after ``horizon`` steps; see :class:`TensorEnv`."""

    capturable = True
    horizon = 1 << 30
    n_state = 4

    def __init__(self, n_envs: int, device: str) -> None:
        self.n_envs, self.device = n_envs, torch.device(device)
        self.generator = torch.Generator(self.device)
        self.state = torch.zeros(n_envs, self.n_state, device=device)
        self.elapsed = torch.zeros((), device=device)

    def reset(self, seed: int | None = None) -> Tensor:
        """Reset all copies."""
        if seed is not None:
            self.generator.manual_seed(seed)
        self.state.uniform_(-0.2, 0.2, generator=self.generator)
        return self.observe(self.state)

    def step(self, actions: Tensor) -> dict[str, Tensor]:
        """Step all copies."""
        state, rewards = self.advance(self.state, actions)
        self.elapsed += 1
        cut = self.elapsed >= self.horizon
        drawn = torch.empty_like(state).uniform_(-0.2, 0.2, generator=self.generator)
        self.state.copy_(torch.where(cut, drawn, state))
        self.elapsed.masked_fill_(cut, 0)
        cut = cut.expand(self.n_envs)
        return {
            "obs": self.observe(self.state),
            "rewards": rewards,
            "terminated": torch.zeros_like(cut),
            "truncated": cut,
            "final_obs": self.observe(state),
        }

    def advance(self, state: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the next states and the rewards."""
        raise NotImplementedError

    def observe(self, state: Tensor) -> Tensor:
        """Return the observations of states."""
        return state.clone()


def swing(xp: Any, stack: Any, state: Any, force: Any) -> tuple[Any, Any]:
    """Return states and rewards of cart-poles in torch or JAX, by explicit Euler steps."""
    x, speed, angle, spin = state[:, 0], state[:, 1], state[:, 2], state[:, 3]
    sin, cos = xp.sin(angle), xp.cos(angle)
    pull = (10.0 * force + 0.05 * spin**2 * sin) / 1.1
    spin_up = (9.8 * sin - cos * pull) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    speed_up = pull - 0.05 * spin_up * cos / 1.1
    turned = xp.remainder(angle + 0.02 * spin + math.pi, 2 * math.pi) - math.pi
    x = x + 0.02 * speed
    moved = stack([x, speed + 0.02 * speed_up, turned, spin + 0.02 * spin_up], -1)
    return moved, -(xp.abs(turned) + 0.1 * xp.abs(x))


class CartPole(Stepped):
    """A cart-pole that is paid for an upright pole near the middle."""

    horizon = 32
    observation_space = spaces.Box(-np.inf, np.inf, (5,))
    action_space = spaces.Discrete(3)

    def advance(self, state: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Push to the left, not at all, or to the right."""
        return swing(torch, torch.stack, state, (actions - 1).float())

    def observe(self, state: Tensor) -> Tensor:
        """Return the state with cosine and sine of the angle."""
        x, speed, angle, spin = state.unbind(1)
        return torch.stack((x, speed, angle.cos(), angle.sin(), spin), 1)


class Robot(Stepped):
    """As many numbers as a legged robot has; the state is pulled by a random matrix."""

    n_state = 48
    observation_space = spaces.Box(-np.inf, np.inf, (48,))
    action_space = spaces.Box(-np.inf, np.inf, (12,))

    def __init__(self, n_envs: int, device: str) -> None:
        super().__init__(n_envs, device)
        rng = np.random.default_rng(0)
        self.pull = torch.tensor(0.1 * rng.standard_normal((48, 48)), device=device).float()
        self.push = torch.tensor(0.3 * rng.standard_normal((12, 48)), device=device).float()

    def advance(self, state: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Be paid for small states and actions."""
        state = torch.tanh(state @ self.pull + actions @ self.push + 0.9 * state)
        return state, -state.square().mean(1) - 0.01 * actions.square().mean(1)


CART: dict[str, Any] = {
    "n_steps": 32, "n_epochs": 4, "batch_size": None, "hidden": 256, "activation": "relu",
    "learning_rate": 1e-3, "gamma": 0.95, "max_grad_norm": 5.0,
}  # fmt: skip
ROBOT: dict[str, Any] = {
    "n_steps": 24, "n_epochs": 5, "batch_size": 4, "hidden": (512, 256, 128), "activation": "elu",
    "learning_rate": 1e-3, "gamma": 0.99, "max_grad_norm": 1.0, "ent_coef": 0.005,
    "vf_clip_eps": 0.2, "adaptive_kl": 0.01,
}  # fmt: skip
CASES: dict[str, tuple[type[Stepped], int, dict[str, Any]]] = {
    "cart-pole-1024": (CartPole, 1024, CART),
    "cart-pole-8192": (CartPole, 8192, CART),
    "robot": (Robot, 4096, ROBOT),
    "small": (CartPole, 16, CART),
}
"""Envs, their number, and rlox's options; ``batch_size`` is the number of minibatches."""
RLOX: dict[str, dict[str, str]] = {
    "rlox, float32": {},
    "rlox, TF32": {"matmul_precision": "high"},
    "rlox, TF32, compiled": {"matmul_precision": "high", "backend": "torch-compile"},
    "rlox, bfloat16, compiled": {"compute_dtype": "bfloat16", "backend": "torch-compile"},
}
"""Options of each."""


def ours(who: str, case: str, device: str, seed: int = 0) -> Turn:
    """Return rlox's iterations."""
    import rlox

    kind, n_envs, options = CASES[case]
    size = n_envs * options["n_steps"]
    make: Any = rlox.make
    ppo = make(
        "ppo", env=kind(n_envs, device), n_envs=n_envs, device=device, seed=seed,
        **{**options, "batch_size": size // (options["batch_size"] or 1)},
        **{"backend": "torch", **RLOX[who]},
    )  # fmt: skip
    return lambda n: void(ppo.train(n * size))


def void(_: object) -> None:
    """Drop a result."""


def rl8(case: str, device: str, package: str = "rl8") -> Turn:
    """Return the iterations of rl8, or of rlox under its interface."""
    make: Any = importlib.import_module(package).AlgorithmConfig
    base: Any = importlib.import_module(f"{package}.env").Env
    from tensordict import TensorDict
    from torchrl.data import Categorical, Unbounded

    made, n_envs, options = CASES[case]

    class Theirs(base):  # type: ignore[misc]
        max_num_envs, max_horizon, capturable = 1 << 20, 1 << 20, True

        def __init__(self, n: int, /, horizon: int | None = None, *, device: str = "cpu") -> None:
            super().__init__(n, horizon, device=device)
            self.inner = made(n, device)
            self.inner.horizon = 1 << 30
            shape = torch.Size(self.inner.observation_space.shape)  # type: ignore[attr-defined]
            self.observation_spec = Unbounded(shape, device=device)
            if made is CartPole:
                self.action_spec = Categorical(3, shape=torch.Size([1]), device=device)
            else:
                self.action_spec = Unbounded(torch.Size([12]), device=device)

        def reset(self, *, config: Any = None) -> Tensor:
            return self.inner.reset()

        def step(self, action: Tensor) -> TensorDict:
            out = self.inner.step(action[:, 0] if made is CartPole else action)
            parts = {"obs": out["obs"], "rewards": out["rewards"][:, None]}
            return TensorDict(parts, [self.inner.n_envs], device=self.inner.device)

    size = n_envs * options["n_steps"]
    hidden = options["hidden"]
    hiddens = (hidden, hidden) if isinstance(hidden, int) else hidden
    algorithm = make(
        num_envs=n_envs, horizon=options["n_steps"], num_sgd_iters=options["n_epochs"],
        horizons_per_env_reset=1 if made is CartPole else -1, device=device,
        sgd_minibatch_size=size // (options["batch_size"] or 1), gamma=options["gamma"],
        model_config={"hiddens": hiddens, "activation_fn": options["activation"]},
    ).build(Theirs)  # fmt: skip

    def turn(n: int) -> None:
        for _ in range(n):
            algorithm.collect()
            algorithm.step()

    return turn


def rsl_rl(case: str, device: str) -> Turn:
    """Return rsl_rl's iterations, with its adaptive learning rate as its users have it."""
    from rsl_rl.env import VecEnv  # type: ignore[import-not-found]
    from rsl_rl.runners import OnPolicyRunner  # type: ignore[import-not-found]
    from tensordict import TensorDict

    made, n_envs, options = CASES[case]
    inner = made(n_envs, device)

    class Theirs(VecEnv):  # type: ignore[misc]
        num_actions, max_episode_length = 12, 1000
        cfg: ClassVar[dict[str, Any]] = {}

        def __init__(self) -> None:
            self.num_envs, self.device = n_envs, device
            self.obs = inner.reset(0)
            self.episode_length_buf = torch.zeros(n_envs, dtype=torch.long, device=device)

        def get_observations(self) -> TensorDict:
            return TensorDict({"policy": self.obs}, [n_envs])

        def step(self, actions: Tensor) -> Any:
            out = inner.step(actions)
            self.obs = out["obs"]
            self.episode_length_buf += 1
            done = self.episode_length_buf >= self.max_episode_length
            self.episode_length_buf *= ~done
            extras = {"time_outs": done.float()}
            return self.get_observations(), out["rewards"], done.long(), extras

    net = {
        "class_name": "MLPModel", "hidden_dims": list(options["hidden"]),
        "activation": options["activation"],
    }  # fmt: skip
    gaussian = {"class_name": "GaussianDistribution", "init_std": 1.0}
    runner = OnPolicyRunner(Theirs(), {
        "num_steps_per_env": options["n_steps"], "save_interval": 1 << 30,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": {**net, "distribution_cfg": gaussian}, "critic": dict(net),
        "algorithm": {
            "class_name": "PPO", "num_learning_epochs": options["n_epochs"],
            "num_mini_batches": options["batch_size"], "schedule": "adaptive", "desired_kl": 0.01,
            "entropy_coef": options["ent_coef"], "gamma": options["gamma"], "lam": 0.95,
            "learning_rate": options["learning_rate"], "max_grad_norm": options["max_grad_norm"],
        },
    }, log_dir=None, device=device)  # fmt: skip
    env, algorithm = runner.env, runner.alg

    def turn(n: int) -> None:
        for _ in range(n):
            with torch.inference_mode():
                obs = env.get_observations()
                for _ in range(options["n_steps"]):
                    obs, rewards, dones, extras = env.step(algorithm.act(obs))
                    algorithm.process_env_step(obs, rewards, dones, extras)
                algorithm.compute_returns(obs)
            algorithm.update()

    return turn


def jitted(case: str, precision: str) -> Turn:  # noqa: PLR0915  # it is one program
    """Return iterations that are one jitted JAX function each, with this precision of products."""
    import jax  # type: ignore[import-not-found]
    import jax.numpy as jnp  # type: ignore[import-not-found]
    import optax  # type: ignore[import-not-found]

    jax.config.update("jax_default_matmul_precision", precision)
    made, n_envs, options = CASES[case]
    steps, rows = options["n_steps"], n_envs * options["n_steps"]
    parts = options["batch_size"] or 1
    hidden = options["hidden"]
    widths = [hidden, hidden] if isinstance(hidden, int) else list(hidden)
    activate = jax.nn.relu if options["activation"] == "relu" else jax.nn.elu
    cart, gamma = made is CartPole, options["gamma"]
    n_in, n_out = (5, 3) if cart else (48, 12)
    rng = jax.random.PRNGKey
    pull, push = (
        0.1 * jax.random.normal(rng(1), (48, 48)),
        0.3 * jax.random.normal(rng(2), (12, 48)),
    )
    adam = optax.chain(
        optax.clip_by_global_norm(options["max_grad_norm"]), optax.adam(options["learning_rate"])
    )

    def layers(seed: int, *sizes: int) -> Any:
        keys = jax.random.split(rng(seed), len(sizes))
        pairs = zip(keys, sizes, sizes[1:], strict=False)
        return [(jax.random.normal(k, (i, o)) / math.sqrt(i), jnp.zeros(o)) for k, i, o in pairs]

    def apply(net: Any, x: Any) -> Any:
        for weight, bias in net[:-1]:
            x = activate(x @ weight + bias)
        return x @ net[-1][0] + net[-1][1]

    def observe(s: Any) -> Any:
        if not cart:
            return s
        return jnp.stack([s[:, 0], s[:, 1], jnp.cos(s[:, 2]), jnp.sin(s[:, 2]), s[:, 3]], -1)

    def log_prob(out: Any, log_std: Any, action: Any) -> Any:
        if cart:
            return jnp.take_along_axis(jax.nn.log_softmax(out), action[:, None], 1)[:, 0]
        z = (action - out) / jnp.exp(log_std)
        return (-0.5 * z**2 - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)

    def iteration(params: Any, moments: Any, state: Any, key: Any) -> Any:
        key, begin, acting, order = jax.random.split(key, 4)
        if cart:
            state = jax.random.uniform(begin, (n_envs, 4), minval=-0.2, maxval=0.2)

        def act(state: Any, key: Any) -> Any:
            seen = observe(state)
            out = apply(params[0], seen)
            if cart:
                action = jax.random.categorical(key, out)
                moved, reward = swing(jnp, jnp.stack, state, action.astype(jnp.float32) - 1.0)
            else:
                action = out + jnp.exp(params[2]) * jax.random.normal(key, out.shape)
                moved = jnp.tanh(state @ pull + action @ push + 0.9 * state)
                reward = -(moved**2).mean(-1) - 0.01 * (action**2).mean(-1)
            return moved, (seen, action, log_prob(out, params[2], action), reward)

        state, (seen, actions, old, rewards) = jax.lax.scan(
            act, state, jax.random.split(acting, steps)
        )
        values = apply(params[1], jnp.concatenate([seen, observe(state)[None]]))[..., 0]

        def back(later: Any, row: Any) -> Any:
            reward, value, following = row
            later = reward + gamma * following - value + gamma * 0.95 * later
            return later, later

        rewarded = (rewards, values[:-1], values[1:])
        _, advantages = jax.lax.scan(back, jnp.zeros(n_envs), rewarded, reverse=True)
        returns = advantages + values[:-1]
        columns = (seen, actions, old, values[:-1], advantages, returns)
        flat = [x.reshape(rows, *x.shape[2:]) for x in columns]

        def loss(params: Any, batch: Any) -> Any:
            seen, actions, old, before, gains, returns = batch
            gains = (gains - gains.mean()) / (gains.std() + 1e-8)
            ratio = jnp.exp(log_prob(apply(params[0], seen), params[2], actions) - old)
            surrogate = jnp.minimum(ratio * gains, jnp.clip(ratio, 0.8, 1.2) * gains).mean()
            values = apply(params[1], seen)[:, 0]
            errors = (values - returns) ** 2
            if not cart:
                near = before + jnp.clip(values - before, -0.2, 0.2)
                errors = jnp.maximum(errors, (near - returns) ** 2)
            return errors.mean() - surrogate - options.get("ent_coef", 0.0) * params[2].sum()

        def epoch(learnt: Any, key: Any) -> Any:
            chosen = jnp.arange(rows) if parts == 1 else jax.random.permutation(key, rows)

            def minibatch(learnt: Any, some: Any) -> Any:
                params, moments = learnt
                batch = flat if parts == 1 else [x[some] for x in flat]
                change, moments = adam.update(jax.grad(loss)(params, batch), moments, params)
                return (optax.apply_updates(params, change), moments), None

            return jax.lax.scan(minibatch, learnt, chosen.reshape(parts, -1))

        keys = jax.random.split(order, options["n_epochs"])
        (params, moments), _ = jax.lax.scan(epoch, (params, moments), keys)
        return params, moments, state, key

    params = (layers(3, n_in, *widths, n_out), layers(4, n_in, *widths, 1), jnp.zeros(n_out))
    run = jax.jit(iteration, donate_argnums=(0, 1, 2))
    kept = [params, adam.init(params), jnp.zeros((n_envs, 4 if cart else 48)), rng(5)]

    def turn(n: int) -> None:
        for _ in range(n):
            kept[:] = run(*kept)
        jax.block_until_ready(kept)

    return turn


PEERS: dict[str, tuple[str, Callable[[str, str], Turn]]] = {
    "rl8": ("rl8", rl8),
    "rlox as rl8": ("rlox_rl8", lambda case, device: rl8(case, device, "rlox.rl8")),
    "rsl_rl": ("rsl_rl", rsl_rl),
    "JAX, float32": ("jax", lambda case, _: jitted(case, "float32")),
    "JAX, TF32": ("jax", lambda case, _: jitted(case, "tensorfloat32")),
    "JAX, bfloat16": ("jax", lambda case, _: jitted(case, "bfloat16")),
}
"""Module and iterations of each."""


def contender(who: str, case: str, device: str) -> Callable[[int], int]:
    """Return a function that takes n iterations, waits for the device, and returns n."""
    turn = ours(who, case, device) if who in RLOX else PEERS[who][1](case, device)

    def timed(n: int) -> int:
        turn(n)
        if device == "cuda":
            torch.cuda.synchronize()
        return n

    return timed


PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from device import contender
train = contender({who!r}, {case!r}, {device!r})
versions = {{}}
"""


def compare(case: str, device: str, rounds: int, without: list[str]) -> dict[str, Any]:
    """Return milliseconds of each contender, and times as fast as the first peer."""
    names = [*RLOX]
    for who, (module, _) in PEERS.items():
        fits = who != "rsl_rl" or case == "robot"
        if module not in without and fits and importlib.util.find_spec(module):
            names.append(who)
    folder, sides = str(Path(__file__).resolve().parent), {}
    for who in names:
        program = PROGRAM.format(folder=folder, who=who, case=case, device=device)
        sides[who] = Side(program, sys.executable, 3, warm_up=4)
    run_in_turns(sides, rounds)
    milliseconds = {who: [1e3 / each for each in side.speeds] for who, side in sides.items()}
    base = "rsl_rl" if "rsl_rl" in names else "rl8" if "rl8" in names else names[0]
    over = {n: ratio_summary(milliseconds[base], found) for n, found in milliseconds.items()}
    for name, found in milliseconds.items():
        ratio = f"{over[name]['median']:6.2f} times {base}"
        print(f"{case:16s} {name:22s} {np.median(found):8.2f} ms {ratio}", flush=True)
    each = {name: summary(found) for name, found in milliseconds.items()}
    return {"rounds": rounds, "milliseconds": each, f"times as fast as {base}": over}


def learn(device: str, iterations: int = 100) -> dict[str, Any]:
    """Return what ``--learn`` measures."""
    import rlox

    make: Any = rlox.make
    n_envs = 2048 if device == "cuda" else 64
    size = 32 * n_envs
    ppo = make(
        "ppo", env="CartPole-v1", env_backend="tensors", n_envs=n_envs, n_steps=32, n_epochs=4,
        batch_size=size // 4, learning_rate=2e-3, device=device, backend="torch", seed=0,
    )  # fmt: skip
    ppo.train(2 * size)
    start, count = time.perf_counter(), 2
    while ppo.train(size)["mean_reward"] < 475 and count < 1_000:
        count += 1
    found: dict[str, Any] = {"CartPole-v1": {
        "seconds": time.perf_counter() - start, "iterations": count,
    }}  # fmt: skip
    envs: list[Any] = []

    class Paid(Robot):
        """Sums the mean rewards of its steps."""

        def __init__(self, n_envs: int, device: str) -> None:
            super().__init__(n_envs, device)
            self.paid = torch.zeros((), device=device)
            envs.append(self)

        def advance(self, state: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
            state, rewards = super().advance(state, actions)
            self.paid += rewards.mean()
            return state, rewards

    CASES["paid"] = (Paid, 2 * n_envs, ROBOT)
    last = 5
    for who in ("rlox, float32", "rsl_rl") if importlib.util.find_spec("rsl_rl") else [*RLOX][:1]:
        rewards, peak = [], 0
        for seed in range(5):
            torch.manual_seed(seed)
            if device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            turn = ours(who, "paid", device, seed) if who in RLOX else rsl_rl("paid", device)
            turn(iterations - last)
            envs[-1].paid.zero_()
            turn(last)
            rewards.append(float(envs[-1].paid) / (last * ROBOT["n_steps"]))
            peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
        found[who] = {"reward": summary(rewards), "MiB": peak >> 20}
    return found


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/device.json`` after each case."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES][:3])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cuda", help="cpu is for testing the script")
    parser.add_argument("--without", nargs="*", default=[], help="modules to leave out")
    parser.add_argument("--learn", action="store_true", help="compare what is learnt instead")
    given = parser.parse_args()
    result: dict[str, Any] = {
        "machine": {**machine(["rlox-core", "torch"]), **gpu_of(given.device)},
        "clock": "wall-clock time",
        "cases": kept("device").get("cases", {}),
        "learning": kept("device").get("learning"),
    }
    if given.learn:
        result["learning"] = learn(given.device)
        print(result["learning"])
        write("device", result)
    for case in given.cases if not given.learn else ():
        result["cases"][case] = compare(case, given.device, given.rounds, given.without)
        write("device", result)


if __name__ == "__main__":
    main()
