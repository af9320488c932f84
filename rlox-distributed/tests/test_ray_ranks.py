"""Ranks whose actors run on a Ray cluster: saved, and resumed on another cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rlox.testing import run_in_ranks

ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
pytest.importorskip("rlox_onpolicy")

pytestmark = [
    pytest.mark.timeout(900),  # clusters take up to a minute each to start on a busy machine
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

STEPS = 256
TRAIN = """
import hashlib, json, sys
import numpy as np
import rlox
from rlox.ranks import join_ranks, leave_ranks

report, address, saved, begin = sys.argv[1:5]
rank = join_ranks().rank
ray = {"actor_backend": "ray", "ray_address": address}
options = {"n_actors": 2, "n_envs": 2, "n_steps": 16, "hidden": 8, "seed": 3, "queue_size": 2,
           "normalize_observations": True, "backend": "torch"}
if begin == "new":
    algorithm = rlox.make("impala", env="CartPole-v1", **ray, **options)
    algorithm.train(int(sys.argv[5]))
    algorithm.save(saved)
else:
    algorithm = rlox.algorithms.IMPALA.from_checkpoint(saved, **ray)
metrics = algorithm.train(int(sys.argv[5]))

def arrays(value):
    if isinstance(value, dict):
        for key in sorted(value):
            yield from arrays(value[key])
    elif isinstance(value, list):
        for each in value:
            yield from arrays(each)
    elif isinstance(value, np.ndarray):
        yield value

state = hashlib.sha256()
for array in arrays(algorithm.state_dict()):
    state.update(np.ascontiguousarray(array).tobytes())
found = {
    "parameters": hashlib.sha256(algorithm.optimizer.parameters.numpy().tobytes()).hexdigest(),
    "state": state.hexdigest(),
    "env_steps": algorithm.clock.env_steps,
    "reward": metrics["mean_reward"],
    "draw": int(algorithm.streams.numpy("probe").integers(2**62)),
}
with open(f"{report}-{rank}.json", "w") as file:
    json.dump(found, file)
algorithm.close()
leave_ranks()
"""


@contextmanager
def cluster() -> Iterator[str]:
    """Start a cluster of one node with CPUs for four actors, and return its address."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 4, "object_store_memory": 100 * 2**20, "include_dashboard": False}
    started = Cluster(initialize_head=True, head_node_args=node)
    try:
        yield str(started.address)
    finally:
        started.shutdown()


def trained(report: Path, saved: Path, begin: str) -> list[dict[str, Any]]:
    """Return what two ranks report that trained on a cluster of their own."""
    with cluster() as address:
        done = run_in_ranks(TRAIN, str(report), address, str(saved), begin, str(STEPS), size=2)
    for rank, process in enumerate(done):
        assert process.returncode == 0, f"rank {rank}: {process.stderr}"
    return [json.loads(Path(f"{report}-{rank}.json").read_text("utf-8")) for rank in range(2)]


def test_ranks_go_on_exactly_on_a_new_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N steps, saved, new processes on another cluster and N steps are 2 N, on every rank."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    saved = tmp_path / "checkpoints" / "saved.safetensors"
    whole = trained(tmp_path / "whole", saved, "new")
    resumed = trained(tmp_path / "resumed", saved, "resumed")
    assert resumed == whole
    assert whole[0]["env_steps"] == 2 * STEPS
    assert whole[0]["parameters"] == whole[1]["parameters"]
    assert whole[0]["state"] != whole[1]["state"]
