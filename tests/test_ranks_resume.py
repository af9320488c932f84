"""Several ranks saved and resumed: exactly with as many, new episodes with others."""

import json
import shutil
from pathlib import Path

import pytest
from rlox.testing import run_in_ranks
from rlox.training import checkpoint
from rlox.training.segments import segments_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),  # of interpreters that import torch on a busy machine
]

TRAIN = """
import hashlib, json, sys
import numpy as np
import rlox
from rlox import registry
from rlox.callbacks import CheckpointCallback
from rlox.ranks import join_ranks, leave_ranks

path, work = sys.argv[1], json.loads(sys.argv[2])
ranks = join_ranks()
rank = 0 if ranks is None else ranks.rank
callbacks = []
if "every" in work:
    callbacks.append(CheckpointCallback(work["every"], work["folder"], keep_last=1))
if "from" in work:
    made = registry.algorithm_class(work["name"]).from_checkpoint
    algorithm = made(work["from"], callbacks=callbacks)
else:
    algorithm = rlox.make(work["name"], env=work["env"], callbacks=callbacks, **work["options"])
for number, steps in enumerate(work["steps"]):
    if number and "save" in work:
        algorithm.save(work["save"])
    algorithm.train(steps)

def tensors(value):
    if isinstance(value, dict):
        for key in sorted(value):
            yield from tensors(value[key])
    elif isinstance(value, list):
        for each in value:
            yield from tensors(each)
    elif isinstance(value, np.ndarray):
        yield value

def report(algorithm):
    digest, own = hashlib.sha256(), hashlib.sha256()
    for _, optimizer in sorted(algorithm.optimizers.items()):
        digest.update(optimizer.parameters.detach().numpy().tobytes())
    for array in tensors(algorithm.state_dict()):
        own.update(np.ascontiguousarray(array).tobytes())
    return {
        "parameters": digest.hexdigest(),
        "state": own.hexdigest(),
        "env_steps": algorithm.clock.env_steps,
        "draw": int(algorithm.streams.numpy("probe").integers(2**62)),
    }

found = report(algorithm)
open(f"{path}-{rank}.json", "w").write(json.dumps(found))
algorithm.close()
leave_ranks()
"""

ON_POLICY = {"n_envs": 2, "n_steps": 16, "hidden": 8, "seed": 3}
CASES = {
    "ppo": (
        "CartPole-v1",
        {**ON_POLICY, "batch_size": 16, "n_epochs": 2, "normalize_observations": True,
         "normalize_rewards": True},
        192,
    ),
    "a2c": ("CartPole-v1", {**ON_POLICY, "memory_size": 4, "recurrent": "gru"}, 192),
    "impala": ("CartPole-v1", {**ON_POLICY, "n_actors": 2, "queue_size": 2}, 384),
    "sac": (
        "Pendulum-v1",
        {"n_envs": 2, "hidden": 8, "seed": 3, "learning_starts": 40, "batch_size": 16,
         "buffer_size": 500, "save_replay_buffer": True},
        160,
    ),
}  # fmt: skip

OTHERS = {"ppo": (1, 3), "sac": (3,)}
"""Other numbers of ranks that each goes on with."""


def trained(tmp_path, size, **work):
    """Return what each rank reports of a training, and what rank 0 printed as errors."""
    path = tmp_path / f"ranks-{size}"
    done = run_in_ranks(TRAIN, str(path), json.dumps(work), size=size)
    for rank, process in enumerate(done):
        assert process.returncode == 0, f"rank {rank}: {process.stderr}"
    reports = [Path(f"{path}-{rank}.json").read_text(encoding="utf-8") for rank in range(size)]
    return [json.loads(report) for report in reports], done[0].stderr


@pytest.mark.parametrize("name", CASES)
def test_as_many_ranks_go_on_exactly(name, tmp_path):
    """N, saved, new processes and N is 2 N, bit for bit, on every rank; others begin episodes."""
    env, options, steps = CASES[name]
    options = {**options, "backend": "torch"}
    saved = tmp_path / "checkpoints" / "saved.safetensors"
    common = {"name": name, "env": env, "options": options}
    whole, _ = trained(tmp_path, 2, **common, steps=[steps, steps], save=str(saved))
    resumed, errors = trained(tmp_path, 2, **common, steps=[steps], **{"from": str(saved)})
    assert resumed == whole
    assert resumed[0]["parameters"] == resumed[1]["parameters"]
    assert resumed[0]["state"] != resumed[1]["state"]
    assert "goes on otherwise" not in errors
    for size in OTHERS.get(name, ()):
        found, errors = trained(tmp_path, size, **common, steps=[steps], **{"from": str(saved)})
        assert len({each["draw"] for each in found}) == size
        assert len({each["parameters"] for each in found}) == 1
        assert len({each["state"] for each in found}) == size
        assert found[0]["env_steps"] >= 2 * steps
        ranks = "1 rank" if size == 1 else "3 ranks"
        assert f"it was saved by 2 ranks and goes on with {ranks}: ranks above 0 begin" in errors


@pytest.fixture(scope="module")
def saved_in_training(tmp_path_factory):
    """Return the checkpoint that a callback of all ranks saved on the way, the last of several."""
    folder = tmp_path_factory.mktemp("saved")
    env, options, steps = CASES["a2c"]
    trained(folder, 2, name="a2c", env=env, options=options, steps=[steps], every=64,
            folder=str(folder / "checkpoints"))  # fmt: skip
    (found,) = (folder / "checkpoints").glob("*.safetensors")
    return found


def test_callbacks_save_the_parts_of_all_ranks(saved_in_training, tmp_path):
    """Rank 0's checkpoint has the others' parts; what older ones alone listed is gone."""
    env, options, steps = CASES["a2c"]
    manifest = checkpoint.read(saved_in_training)
    assert manifest["n_ranks"] == 2
    assert len(manifest["parts"]) == 1
    folder = saved_in_training.parent / "segments"
    assert {path.stem for path in folder.glob("*.safetensors")} == segments_of(saved_in_training)
    common = {"name": "a2c", "env": env, "options": options}
    whole, _ = trained(tmp_path, 2, **common, steps=[steps, 64])
    resumed, _ = trained(tmp_path, 2, **common, steps=[64], **{"from": str(saved_in_training)})
    assert resumed == whole


@pytest.mark.parametrize("what", ["missing", "damaged"])
def test_a_lost_part_is_one_error(what, saved_in_training, tmp_path):
    """On every rank alike, with the file's name; one rank goes on without it."""
    folder = tmp_path / "copy"
    shutil.copytree(saved_in_training.parent, folder)
    saved = folder / saved_in_training.name
    (part,) = (folder / "segments").glob("*.safetensors")
    if what == "missing":
        part.unlink()
    else:
        data = part.read_bytes()
        part.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    work = {"name": "a2c", "from": str(saved), "steps": [64]}
    done = run_in_ranks(TRAIN, str(tmp_path / "p"), json.dumps(work), size=2)
    for process in done:
        assert process.returncode != 0
        assert f"CheckpointError: segment '{part}' is {what}" in process.stderr
    trained(tmp_path, 1, **work)
