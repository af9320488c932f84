"""The cost of checking files and env steps for a user whose files and envs are in order.

Each operation runs with its checks and without them, in turn.

python benchmarks/guards.py [--rounds 21]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import rlox
from measure import interleave_calls, machine, ratio_summary, write
from rlox.algorithms import PPO
from rlox.training.segments import digest_of
from rlox_offline.datasets import Dataset, load_dataset, save_dataset, stream_dataset

ROWS = 1_000_000

Call = Callable[[], Any]


@contextmanager
def replaced(*parts: tuple[str, Any]) -> Iterator[None]:
    """Replace checks by functions."""
    with ExitStack() as stack:
        for name, function in parts:
            stack.enter_context(mock.patch(name, function))
        yield


def without(call: Call, *parts: tuple[str, Any]) -> Call:
    """Return a call without its checks."""

    def unchecked() -> None:
        with replaced(*parts):
            call()

    return unchecked


def nothing(*_: Any, **__: Any) -> None:
    """Check nothing."""


def operations(folder: Path) -> dict[str, tuple[Call, Call]]:
    """Return common operations by name, with their checks and without."""
    path, policy = folder / "ppo.safetensors", folder / "ppo.rlox"
    with rlox.make("ppo", env="CartPole-v1", seed=0) as ppo:
        ppo.save(path)
        rlox.export(ppo, policy)
        digest = digest_of
        rows = folder / "rows.npz"
    rng = np.random.default_rng(0)
    columns = {
        "obs": rng.random((ROWS, 11), np.float32),
        "next_obs": rng.random((ROWS, 11), np.float32),
        "actions": rng.uniform(-1, 1, (ROWS, 3)).astype(np.float32),
        "rewards": rng.random(ROWS, np.float32),
        "terminated": np.arange(ROWS) % 1_000 == 999,
    }
    save_dataset(Dataset(columns, act_low=-1, act_high=1), rows)
    stored = {}

    def remembered(manifest: str, tensors: Any) -> str:
        if manifest not in stored:
            stored[manifest] = digest(manifest, tensors)
        return stored[manifest]

    def restore() -> None:
        PPO.from_checkpoint(path).close()

    def stream() -> None:
        stream_dataset(rows).close()

    def steps(backend: str) -> Call:
        algorithm = rlox.make("ppo", env="CartPole-v1", env_backend=backend, seed=0)
        return partial(algorithm.train, 16_384)

    no_digest = ("rlox_offline.datasets.columns.DIGEST", "absent")
    checked_step = ("rlox.envs.running.CheckedSteps.check", nothing)
    native, gymnasium = steps("native"), steps("gymnasium")
    return {
        "PPO.from_checkpoint": (
            restore,
            without(restore, ("rlox.training.checkpoint.digest_of", remembered)),
        ),
        "rlox.load_policy": (
            partial(rlox.load_policy, policy),
            without(
                partial(rlox.load_policy, policy),
                ("rlox.deployment.files.is_intact", lambda content: True),
            ),
        ),
        "load_dataset, 107 MB": (
            partial(load_dataset, rows), without(partial(load_dataset, rows), no_digest)
        ),
        "stream_dataset, 107 MB": (stream, without(stream, no_digest)),
        "16,384 env steps of PPO, native": (native, without(native, checked_step)),
        "16,384 env steps of PPO, gymnasium": (gymnasium, without(gymnasium, checked_step)),
    }  # fmt: skip


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/guards.json``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21)
    rounds = parser.parse_args().rounds
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (checked, unchecked) in operations(Path(folder)).items():
            seconds = interleave_calls({"checked": checked, "unchecked": unchecked}, rounds, 1)
            taken = {each: values[:, 0] for each, values in seconds.items()}
            ratios = ratio_summary(taken["checked"], taken["unchecked"])
            found[name] = {
                "milliseconds": {k: round(float(np.median(v)) * 1e3, 3) for k, v in taken.items()},
                "checked_over_unchecked": {k: round(float(v), 4) for k, v in ratios.items()},
            }
            print(name, found[name], flush=True)
    where = machine(["rlox-core", "rlox-offline", "torch"])
    print(write("guards", {"rounds": rounds, "machine": where, "operations": found}))


if __name__ == "__main__":
    main()
