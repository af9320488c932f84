"""Faults of ranks: killed, stopped and missing ones end the training, which resumes exactly.

``RLOX_FAULT_SCHEDULES`` sets the number of random schedules; ``nox -s faults`` runs 50.
"""

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import pytest
from rlox.training import checkpoint

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),  # of interpreters that import torch on a busy machine
]

SCHEDULES = int(os.environ.get("RLOX_FAULT_SCHEDULES", "2"))
STEPS = 3_200
PATIENCE = 20.0
"""Seconds that ranks wait for each other."""
SLACK = 120.0
"""Seconds more that an interpreter may take to start and to end on a busy machine."""

TRAIN = """
import hashlib, json, sys
import rlox
from rlox.algorithms import A2C
from rlox.callbacks import Callback, CheckpointCallback
from rlox.ranks import join_ranks, leave_ranks

folder, saved, patience, steps = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])

class Says(Callback):
    def on_iteration_end(self, *, step, algo, metrics):
        print(step, flush=True)

ranks = join_ranks(patience)
callbacks = [CheckpointCallback(160, folder, verbose=False, keep_last=2), Says()]
options = {"n_envs": 1, "n_steps": 8, "hidden": 8, "seed": 3, "backend": "torch"}
if saved == "none":
    algorithm = A2C("CartPole-v1", callbacks=callbacks, **options)
    algorithm.train(steps)
else:
    algorithm = A2C.from_checkpoint(saved, callbacks=callbacks)
    if algorithm.clock.remaining:
        algorithm.train()
flat = algorithm.optimizer.parameters.numpy()
print("end", algorithm.clock.env_steps, hashlib.sha256(flat.tobytes()).hexdigest(), flush=True)
algorithm.close()
leave_ranks()
"""


def start(folder, size, saved="none", *, missing=None):
    """Start ranks, but for a missing one, and return them by number."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = str(listening.getsockname()[1])
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(size)}
    return {
        rank: subprocess.Popen(
            [sys.executable, "-c", TRAIN, str(folder), saved, str(PATIENCE), str(STEPS)],
            env={**os.environ, **where, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(size) if rank != missing
    }  # fmt: skip


def end_of(process, deadline):
    """Return what a rank printed until it ended by itself."""
    try:
        return process.communicate(timeout=deadline)
    finally:
        process.kill()


def finished(output):
    """Return count of env steps and digest of the parameters that a rank ended with."""
    return output.splitlines()[-1].split()[1:]


@cache
def undisturbed(size):
    """Return what an undisturbed training of so many ranks ends with."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = start(Path(folder), size)
        found = [finished(end_of(process, 600)[0]) for process in ranks.values()]
    assert all(each == found[0] for each in found)
    return found[0]


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_a_lost_rank_is_one_error_and_nothing_is_lost(seed, tmp_path, record_property):
    """The others say who lost whom at what; resumed, they end as if nothing had happened."""
    drawn = random.Random(seed)  # no secret
    size = drawn.choice([2, 3])
    fault = drawn.choice(["killed", "killed", "stopped", "missing"])
    victim = drawn.randrange(size)
    step = drawn.randrange(0, STEPS * 3 // 4)
    record_property("fault", f"{fault} rank {victim} of {size} after {step} steps")
    ranks = start(tmp_path, size, missing=victim if fault == "missing" else None)
    if fault != "missing":
        for line in ranks[victim].stdout:
            if int(line) >= step:
                break
        ranks[victim].send_signal(signal.SIGKILL if fault == "killed" else signal.SIGSTOP)
    began = time.monotonic()
    for rank in ranks.keys() - {victim}:
        output, errors = end_of(ranks[rank], PATIENCE + SLACK)
        assert ranks[rank].returncode == 1, f"rank {rank}: {output} {errors}"
        last = errors.strip().splitlines()[-1]
        if fault == "missing":
            expected = f"ConfigError: rank {rank} of {size} cannot reach the others"
        else:
            expected = f"WorkerLostError: rank {rank} of {size} lost another rank while it agreed"
        assert expected in errors, last
    assert time.monotonic() - began < PATIENCE + SLACK
    if victim in ranks:
        ranks[victim].kill()
        ranks[victim].communicate()
    saved = sorted(tmp_path.glob("step-*.safetensors"), key=checkpoint.steps_of)
    for path in saved:
        checkpoint.read(path)
    resumed = start(tmp_path, size, str(saved[-1]) if saved else "none")
    for rank, process in resumed.items():
        output, errors = end_of(process, 600)
        assert process.returncode == 0, f"rank {rank}: {errors}"
        assert finished(output) == undisturbed(size)


FULL_DISK = """ranks = join_ranks(patience)
if ranks.rank == 1:
    from rlox.training.segments import SegmentFolder
    real, count = SegmentFolder.write, [0]
    def write(self, *arguments):
        count[0] += 1
        if count[0] > 3:
            raise OSError(28, "No space left on device")
        return real(self, *arguments)
    SegmentFolder.write = write
"""


def test_a_part_that_cannot_be_written_is_one_error(tmp_path, monkeypatch):
    """As on a full disk: both ranks say why, and the checkpoint before it still loads."""
    code = TRAIN.replace("ranks = join_ranks(patience)\n", FULL_DISK)
    monkeypatch.setitem(globals(), "TRAIN", code)
    ranks = start(tmp_path, 2)
    errors = [end_of(process, 600)[1] for process in ranks.values()]
    assert [process.returncode for process in ranks.values()] == [1, 1]
    assert "OSError: rank 1 cannot write its part of" in errors[0]
    assert all("No space left on device" in error for error in errors)
    saved = sorted(tmp_path.glob("step-*.safetensors"), key=checkpoint.steps_of)
    assert [checkpoint.steps_of(path) for path in saved] == [320, 480]
    assert len(checkpoint.read(saved[-1])["parts"]) == 1
