"""Sampling replay buffers: rlox against NumPy, a bare gather and other libraries' buffers.

python benchmarks/replay.py [--rounds 30]
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any

import gymnasium
import numpy as np
import rlox_native
from measure import interleave, interleave_calls, machine, summary, write

LAYOUTS = {
    "CartPole": (100_000, (4,), 1, np.float32),
    "MuJoCo": (100_000, (17,), 6, np.float32),
    "Atari": (2_000, (4, 84, 84), 1, np.uint8),
}
"""Capacity, observation shape, action length, observation dtype."""

BATCH_SIZES = (32, 256, 1024)

PRIORITIZED = 1_000_000
"""Transitions in the prioritized buffers of the second measurement."""

Arrays = tuple[np.ndarray, ...]


def installed(name: str) -> bool:
    """Return whether a library is installed; print if not."""
    if importlib.util.find_spec(name) is not None:
        return True
    print(f"{name} is not installed and is left out")
    return False


def transitions(capacity: int, shape: tuple[int, ...], act_dim: int, dtype: Any) -> Arrays:
    """Return obs, actions, rewards, terminated, truncated and next_obs, random."""
    rng = np.random.default_rng(0)

    def observations() -> np.ndarray:
        if dtype == np.uint8:
            return rng.integers(0, 256, (capacity, *shape), dtype)
        return rng.random((capacity, *shape), dtype)

    actions = rng.random((capacity, act_dim), np.float32)
    rewards = rng.random(capacity, np.float32)
    ends = rng.random((2, capacity)) < 0.01
    return observations(), actions, rewards, *ends, observations()


def numpy_sampler(rows: Arrays) -> Callable[[int], Any]:
    """Return NumPy's fancy indexing of the same arrays, draw included."""
    rng = np.random.default_rng(0)

    def sample(batch_size: int) -> Arrays:
        chosen = rng.integers(len(rows[0]), size=batch_size)
        return tuple(array[chosen] for array in rows)

    return sample


def gather_sampler(rows: Arrays) -> Callable[[int], Any]:
    """Return a compiled loop that copies rows drawn beforehand into existing arrays."""
    import numba

    @numba.njit  # type: ignore[untyped-decorator]
    def gather(slots: Any, rows: Any, out: Any) -> None:
        obs, actions, rewards, terminated, truncated, next_obs = rows
        to_obs, to_actions, to_rewards, to_terminated, to_truncated, to_next_obs = out
        for row in range(len(slots)):
            slot = slots[row]
            to_obs[row] = obs[slot]
            to_next_obs[row] = next_obs[slot]
            to_actions[row] = actions[slot]
            to_rewards[row] = rewards[slot]
            to_terminated[row] = terminated[slot]
            to_truncated[row] = truncated[slot]

    flat = tuple(array if array.ndim == 1 else array.reshape(len(array), -1) for array in rows)
    rng = np.random.default_rng(0)
    outs = {size: tuple(array[:size].copy() for array in flat) for size in BATCH_SIZES}
    # enough of them that no row stays in the cache
    turns = {size: cycle(rng.integers(len(flat[0]), size=(500, size))) for size in BATCH_SIZES}

    def sample(batch_size: int) -> None:
        gather(next(turns[batch_size]), flat, outs[batch_size])

    return sample


def sb3_sampler(rows: Arrays) -> Callable[[int], Any]:
    """Return Stable-Baselines3's buffer; its batches are tensors."""
    from stable_baselines3.common.buffers import ReplayBuffer

    obs, actions, rewards, terminated, truncated, next_obs = rows
    low, high = (0, 255) if obs.dtype == np.uint8 else (-np.inf, np.inf)
    buffer = ReplayBuffer(
        len(obs),
        gymnasium.spaces.Box(low, high, obs.shape[1:], obs.dtype.type),
        gymnasium.spaces.Box(-1, 1, actions.shape[1:], np.float32),
        device="cpu",
        handle_timeout_termination=True,
    )
    buffer.observations[:, 0], buffer.next_observations[:, 0] = obs, next_obs
    buffer.actions[:, 0], buffer.rewards[:, 0] = actions, rewards
    buffer.dones[:, 0], buffer.timeouts[:, 0] = terminated | truncated, truncated
    buffer.full = True
    return buffer.sample


def cpprb_sampler(rows: Arrays) -> Callable[[int], Any]:
    """Return cpprb's buffer."""
    import cpprb

    obs, actions, rewards, terminated, truncated, next_obs = rows
    shapes = {"obs": obs, "next_obs": next_obs, "act": actions}
    fields = {
        name: {"shape": array.shape[1:], "dtype": array.dtype} for name, array in shapes.items()
    }
    buffer: Any = cpprb.ReplayBuffer(len(obs), fields | {"rew": {}, "done": {}, "cut": {}})
    buffer.add(obs=obs, act=actions, rew=rewards, next_obs=next_obs, done=terminated, cut=truncated)
    sample: Callable[[int], Any] = buffer.sample
    return sample


def torchrl_sampler(rows: Arrays) -> Callable[[int], Any]:
    """Return torchrl's buffer of tensors."""
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, ReplayBuffer

    names = ("obs", "action", "reward", "terminated", "truncated", "next_obs")
    tensors = {name: torch.from_numpy(array) for name, array in zip(names, rows, strict=True)}
    buffer: Any = ReplayBuffer(storage=LazyTensorStorage(len(rows[0])))
    buffer.extend(TensorDict(tensors, batch_size=len(rows[0])))
    sample: Callable[[int], Any] = buffer.sample
    return sample


PEERS = {
    "stable_baselines3": sb3_sampler,
    "cpprb": cpprb_sampler,
    "torchrl": torchrl_sampler,
}


def samplers(layout: str, peers: list[str]) -> dict[str, Callable[[int], Any]]:
    """Return functions of the batch size, over buffers full of the same transitions."""
    capacity, shape, act_dim, dtype = LAYOUTS[layout]
    rows = transitions(capacity, shape, act_dim, dtype)
    uniform = rlox_native.ReplayBuffer(capacity, shape, act_dim, obs_dtype=dtype, seed=0)
    prioritized: Any = rlox_native.PrioritizedReplayBuffer(
        capacity, shape, act_dim, obs_dtype=dtype, seed=0
    )
    uniform.push_batch(*rows)
    prioritized.push_batch(*rows, priorities=np.random.default_rng(0).random(capacity) + 0.01)
    outs = {size: uniform.sample(size) for size in BATCH_SIZES}
    contenders = {name: PEERS[name](rows) for name in peers}
    if dtype == np.float32 and installed("numba"):
        # the compiled loop copies long rows by element, NumPy as a whole
        contenders["bare gather (numba)"] = gather_sampler(rows)
    return {
        "rlox": uniform.sample,
        "rlox, out=": lambda size: uniform.sample(size, out=outs[size]),
        "rlox prioritized": prioritized.sample,
        "NumPy fancy indexing": numpy_sampler(rows),
    } | contenders


def cpprb_prioritized() -> Callable[[], Any]:
    """Return a draw and an update of cpprb's prioritized buffer."""
    import cpprb

    fields = {"obs": {"shape": 4}, "next_obs": {"shape": 4}, "act": {}, "rew": {}, "done": {}}
    buffer = cpprb.PrioritizedReplayBuffer(PRIORITIZED, fields, alpha=0.6)
    obs, actions, rewards, terminated, _, next_obs = transitions(PRIORITIZED, (4,), 1, np.float32)
    priorities = np.random.default_rng(0).random(PRIORITIZED) + 0.01
    buffer.add(
        obs=obs, act=actions, rew=rewards, next_obs=next_obs, done=terminated, priorities=priorities
    )

    def turn() -> None:
        batch = buffer.sample(256, beta=0.4)
        buffer.update_priorities(batch["indexes"], batch["weights"] + 0.01)

    return turn


def torchrl_prioritized() -> Callable[[], Any]:
    """Return a draw and an update of torchrl's prioritized buffer."""
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer

    rows = transitions(PRIORITIZED, (4,), 1, np.float32)
    names = ("obs", "action", "reward", "terminated", "truncated", "next_obs")
    tensors = {name: torch.from_numpy(array) for name, array in zip(names, rows, strict=True)}
    storage = LazyTensorStorage(PRIORITIZED)
    buffer = TensorDictPrioritizedReplayBuffer(
        alpha=0.6, beta=0.4, storage=storage, batch_size=256, priority_key="td_error"
    )
    tensors["td_error"] = torch.rand(PRIORITIZED) + 0.01
    buffer.extend(TensorDict(tensors, batch_size=PRIORITIZED))

    def turn() -> None:
        batch = buffer.sample()
        batch["td_error"] = torch.rand(256) + 0.01
        buffer.update_tensordict_priority(batch)

    return turn


def rlox_prioritized() -> Callable[[], Any]:
    """Return a draw and an update of rlox's prioritized buffer."""
    buffer: Any = rlox_native.PrioritizedReplayBuffer(PRIORITIZED, 4, 1, seed=0)
    priorities = np.random.default_rng(0).random(PRIORITIZED) + 0.01
    buffer.push_batch(*transitions(PRIORITIZED, (4,), 1, np.float32), priorities=priorities)

    def turn() -> None:
        batch = buffer.sample(256)
        buffer.update_priorities(batch["indices"], batch["weights"] + 0.01)

    return turn


def prioritized(peers: list[str], rounds: int) -> list[dict[str, Any]]:
    """Measure drawing 256 of a million transitions and updating their priorities."""
    makers = {"cpprb": cpprb_prioritized, "torchrl": torchrl_prioritized}
    turns = {"rlox": rlox_prioritized()}
    turns |= {name: makers[name]() for name in peers if name in makers}
    interleave(turns, 20)
    rows = []
    for name, seconds in interleave(turns, 20 * rounds).items():
        us = summary([second * 1e6 for second in seconds])
        rows.append({"contender": name, "us": us})
        print(f"prioritized, sample and update 256  {name:22s} {us['median']:10.1f} us")
    return rows


def in_a_row(call: Callable[[], Any]) -> dict[str, float]:
    """Return median and p99 in µs of calls in a row.

    In turns with others, a sampler finds caches that they have filled.
    """
    seconds = interleave_calls({"": call}, 1, 2_500)[""][0, 500:]
    return {
        "median": float(np.median(seconds)) * 1e6,
        "p99": float(np.percentile(seconds, 99)) * 1e6,
    }


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/replay.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    peers = [name for name in PEERS if installed(name)]
    packages = ["rlox-native", "numpy", *(name.replace("_", "-") for name in peers)]
    where = machine(packages)
    rows = []
    for layout in LAYOUTS:
        contenders = samplers(layout, peers)
        for size in BATCH_SIZES:
            calls = 1 if layout == "Atari" else 30
            turns = {name: partial(sample, size) for name, sample in contenders.items()}
            interleave(turns, 3)
            for name, seconds in interleave_calls(turns, rounds, calls).items():
                calls_us = (seconds.ravel() * 1e6).tolist()
                us = {**summary(calls_us), "p99": float(np.percentile(calls_us, 99))}
                row = {"rows": layout, "batch_size": size, "contender": name, "us": us}
                line = f"{us['median']:10.1f} us, p99 {us['p99']:10.1f} us"
                if layout != "Atari":
                    row["alone_us"] = alone = in_a_row(turns[name])
                    line += f", alone {alone['median']:10.1f}, p99 {alone['p99']:10.1f}"
                rows.append(row)
                print(f"{layout:9s} {size:5d}  {name:22s} {line}")
    result = {"rounds": rounds, "machine": where, "sample": rows}
    print(write("replay", result | {"prioritized": prioritized(peers, rounds)}))


if __name__ == "__main__":
    main()
