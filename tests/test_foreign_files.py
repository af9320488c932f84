"""Damaged and hostile files: a few of those that fuzzing makes."""

import numpy as np
import pytest
import rlox
import safetensors.numpy
from foreign_files import every_kind
from rlox.errors import CheckpointError
from rlox.training import checkpoint


def test_no_damaged_file_is_more_than_refused():
    """``nox -s fuzz`` tries thousands; a few find what refuses nothing, or fails."""
    counts = every_kind(20, 1)
    assert [line for count in counts.values() for line in count.faults] == []
    assert counts.keys() >= {
        "checkpoint", "policy", "config", "model of Stable-Baselines3", "run folder",
        "dataset `.npz`",
    }  # fmt: skip
    assert all(count.refused > 0 for count in counts.values())


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_no_impossible_value_is_loaded(backend, tmp_path):
    """Each array of a checkpoint once with NaN; counts and variances below zero; envs unbegun."""
    path = tmp_path / "c.safetensors"
    options = {"n_envs": 2, "n_steps": 8, "hidden": 4, "backend": backend}
    with rlox.make("ppo", env="CartPole-v1", normalize_observations=True, **options) as ppo:
        ppo.train(16)
        ppo.save(path)
    with safetensors.safe_open(path, framework="numpy") as file:
        text = file.metadata()["rlox"]
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    floats = {n for n, array in tensors.items() if array.dtype.kind == "f" and array.size}
    tried = dict.fromkeys((n for n in floats if not n.endswith(".obs")), np.nan)
    tried |= {n: 0 for n in tensors if n.endswith(".started")}
    below = {name: -1 for name in tried if name.endswith((".step", "variance", ".exp_avg_sq"))}
    assert len(tried) > 12
    assert len(below) == 3
    for name, value in [*tried.items(), *below.items()]:
        changed = {**tensors, name: tensors[name].copy()}
        changed[name].reshape(-1)[0] = value
        metadata = {"rlox": text, "digest": checkpoint.digest_of(text, changed)}
        path.write_bytes(safetensors.numpy.save(changed, metadata=metadata))
        with pytest.raises(CheckpointError, match="does not fit"):
            rlox.algorithms.PPO.from_checkpoint(path)
