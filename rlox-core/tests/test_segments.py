"""Tests of :mod:`rlox.training.segments`: large buffers in checkpoints, in files of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rlox.callbacks import CheckpointCallback
from rlox.errors import CheckpointError
from rlox.kernels.reference import PrioritizedReplayBuffer, ReplayBuffer
from rlox.training import checkpoint
from rlox.training.segments import SavedBuffer, SegmentFolder, remove_orphans, segments_of
from rlox_testing.probes import first_difference

CAPACITY = 400
OBS = 3


@pytest.fixture
def buffered(counting, monkeypatch):
    """Return a class of algorithms with a buffer; one segment has 64 rows."""
    monkeypatch.setattr("rlox.training.segments.SEGMENT_BYTES", 1)

    class Buffered(counting.CountingAlgorithm):
        def __init__(self, *args, buffer=None, **arguments):
            super().__init__(*args, **arguments)
            self.buffer = ReplayBuffer(CAPACITY, OBS, 1, seed=0) if buffer is None else buffer
            self.saved = SavedBuffer(self.buffer)

        def push(self, n):
            first = getattr(self, "pushed", 0)
            self.pushed = first + n
            numbers = np.arange(first, first + n, dtype=np.float32)
            obs = np.repeat(numbers[:, None], OBS, 1)
            ends = numbers % 7 == 0
            self.buffer.push_batch(obs, numbers[:, None], numbers, ends, ~ends, obs + 1)

        def state_dict(self):
            return {**super().state_dict(), "buffer": self.saved.state()}

        def load_state_dict(self, state):
            super().load_state_dict(state)
            self.buffer.set_state(state["buffer"])

    return Buffered


def segment_files(folder):
    """Return the segments in a folder and when they were written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("segments/*.safetensors")}


def test_restored_buffer_is_the_saved_one(buffered, tmp_path):
    """Empty, partly filled and overwritten: rows, position and random stream come back."""
    algorithm = buffered("CartPole-v1")
    for new in (0, 1, 63, 100, 300, 10, 1_000):
        if new:
            algorithm.push(new)
        algorithm.save(tmp_path / "c.safetensors")
        restored = buffered.from_checkpoint(tmp_path / "c.safetensors")
        assert first_difference(algorithm.buffer.state(), restored.buffer.state()) is None
    assert algorithm.buffer.sample(5)["obs"].tolist() == restored.buffer.sample(5)["obs"].tolist()


def test_save_writes_only_segments_that_changed(buffered, tmp_path):
    """What is written for ten new rows is the same whether few or many are stored."""
    written, files, checkpoints = [], [], []
    for stored in (64 + 2, 20 * 64 + 2, 60 * 64 + 2, 130 * 64 + 2):
        folder = tmp_path / str(stored)
        algorithm = buffered("CartPole-v1", buffer=ReplayBuffer(100 * 64, OBS, 1))
        algorithm.push(stored)
        algorithm.save(folder / "a.safetensors")
        before = segment_files(folder)
        algorithm.push(10)
        algorithm.save(folder / "b.safetensors")
        after = segment_files(folder)
        assert all(after[name] == time for name, time in before.items())
        (new,) = after.keys() - before.keys()
        written.append((folder / "segments" / new).stat().st_size)
        files.append(len(segments_of(folder / "b.safetensors")))
        checkpoints.append((folder / "b.safetensors").stat().st_size)
    assert max(written[:3]) <= min(written) + 16
    assert written[3] < 64 * 35 + 1_000  # in a full ring a segment has 64 rows, the others had 12
    # the checkpoint itself grows by a name for each segment
    assert checkpoints[2] - checkpoints[0] <= 80 * (files[2] - files[0]) + 16


def test_same_segments_are_not_written_twice(buffered, tmp_path):
    """A second checkpoint, also by a restored algorithm, shares the files of the first."""
    algorithm = buffered("CartPole-v1")
    algorithm.push(300)
    algorithm.save(tmp_path / "a.safetensors")
    before = segment_files(tmp_path)
    algorithm.save(tmp_path / "b.safetensors")
    restored = buffered.from_checkpoint(tmp_path / "a.safetensors")
    restored.save(tmp_path / "c.safetensors")
    assert segment_files(tmp_path) == before
    assert segments_of(tmp_path / "a.safetensors") == segments_of(tmp_path / "c.safetensors")


def test_another_folder_gets_all_segments(buffered, tmp_path):
    """A checkpoint never refers to segments beside another one; lost ones are written again."""
    algorithm = buffered("CartPole-v1")
    algorithm.push(300)
    for name in ("a", "b"):
        algorithm.save(tmp_path / name / "c.safetensors")
    shutil.rmtree(tmp_path / "a" / "segments")
    algorithm.save(tmp_path / "a" / "d.safetensors")
    for path in ("a/d", "b/c"):
        restored = buffered.from_checkpoint(tmp_path / f"{path}.safetensors")
        assert len(restored.buffer) == 300


def test_priorities_are_saved_with_every_checkpoint(buffered, tmp_path):
    """They change in all places; the transitions stay shared."""
    buffer = PrioritizedReplayBuffer(CAPACITY, OBS, 1, seed=0)
    algorithm = buffered("CartPole-v1", buffer=buffer)
    algorithm.push(200)
    algorithm.save(tmp_path / "a.safetensors")
    before = segment_files(tmp_path)
    buffer.update_priorities(np.arange(128), np.arange(128) + 1.0)
    algorithm.save(tmp_path / "b.safetensors")
    assert segment_files(tmp_path) == before
    other = PrioritizedReplayBuffer(CAPACITY, OBS, 1, seed=1)
    buffered.from_checkpoint(tmp_path / "b.safetensors", buffer=other)
    assert first_difference(buffer.state(), other.state()) is None


def damage(path):
    """Change one byte."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def lead_elsewhere(path):
    """Put a link to the same contents in the place of the file."""
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def make_longer(path):
    """Append to the file."""
    path.write_bytes(path.read_bytes() + b" ")


def make_pipe(path):
    """Put a named pipe in the place of the file, which would block who opens it."""
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (Path.unlink,
         "is missing; a checkpoint with a replay buffer, or of several ranks, is moved"),
        (damage, "is damaged, or another file in its place"),
        (make_longer, "expected [0-9]+ bytes, found [0-9]+"),
        (lead_elsewhere, "is a link, which is not followed"),
        (make_pipe, "is not a regular file"),
    ],
)  # fmt: skip
def test_bad_segment_is_refused_by_name(buffered, tmp_path, harm, message):
    """Nothing is loaded, and the error names the file."""
    algorithm = buffered("CartPole-v1")
    algorithm.push(200)
    algorithm.save(tmp_path / "c.safetensors")
    name = sorted(segment_files(tmp_path))[0]
    harm(tmp_path / "segments" / name)
    with pytest.raises(CheckpointError, match=f"segment '.*{name}'.* {message}"):
        checkpoint.read(tmp_path / "c.safetensors")


def test_linked_folder_is_refused(buffered, tmp_path):
    """Neither reading nor writing leaves the folder of the checkpoint."""
    algorithm = buffered("CartPole-v1")
    algorithm.push(10)
    algorithm.save(tmp_path / "a" / "c.safetensors")
    (tmp_path / "a" / "segments").rename(tmp_path / "elsewhere")
    (tmp_path / "a" / "segments").symlink_to(tmp_path / "elsewhere")
    before = segment_files(tmp_path / "a")
    with pytest.raises(CheckpointError, match="segments' is a link, which is not followed"):
        checkpoint.read(tmp_path / "a" / "c.safetensors")
    algorithm.push(10)
    with pytest.raises(CheckpointError, match="segments' is a link, which is not followed"):
        algorithm.save(tmp_path / "a" / "c.safetensors")
    assert segment_files(tmp_path / "a") == before


@pytest.mark.parametrize(
    "change",
    [
        {"files": [["../../outside", 10]]},
        {"files": [["0" * 64, 10]] * 4},
        {"files": [[7, 10]]},
        {"files": None},
        {"files": []},
        {"rows": 10**18},
        {"rows": -1},
        {"rows_per_file": 0},
        {"rows_per_file": "64"},
    ],
)
def test_hostile_lists_are_refused(buffered, tmp_path, change):
    """A manifest of somebody else's names no path and fills no memory."""
    folder = SegmentFolder(tmp_path / "c.safetensors")
    algorithm = buffered("CartPole-v1")
    algorithm.push(200)
    node = algorithm.saved.write(folder, "buffer")
    from rlox.training.segments import segment_reader

    assert len(segment_reader(tmp_path / "c.safetensors")(node, "buffer")["rewards"]) == 200
    with pytest.raises((CheckpointError, TypeError, ValueError)):
        segment_reader(tmp_path / "c.safetensors")({**node, **change}, "buffer")
    with pytest.raises(CheckpointError, match="belongs to another place of a buffer"):
        segment_reader(tmp_path / "c.safetensors")(node, "other")


def test_removed_checkpoints_take_their_segments_along(buffered, tmp_path):
    """What a kept one refers to stays, and so does every other file."""
    algorithm = buffered(
        "CartPole-v1",
        callbacks=CheckpointCallback(8, tmp_path, verbose=False, keep_last=2),
    )
    (tmp_path / "segments").mkdir()
    (tmp_path / "segments" / "notes.txt").write_text("mine")
    for _ in range(6):
        algorithm.push(150)
        algorithm.train(8)
    kept = list(tmp_path.glob("*.safetensors"))
    assert sorted(path.name for path in kept) == ["step-40.safetensors", "step-48.safetensors"]
    assert {f"{d}.safetensors" for path in kept for d in segments_of(path)} == set(
        segment_files(tmp_path)
    )
    assert (tmp_path / "segments" / "notes.txt").exists()
    for path in kept:
        buffered.from_checkpoint(path)


def test_overwriting_a_checkpoint_removes_what_it_alone_used(buffered, tmp_path):
    """A path that is saved to again and again does not fill the disk."""
    algorithm = buffered("CartPole-v1")
    for _ in range(20):
        algorithm.push(90)
        algorithm.save(tmp_path / "latest.safetensors")
    files = {f"{digest}.safetensors" for digest in segments_of(tmp_path / "latest.safetensors")}
    assert files == set(segment_files(tmp_path))


def test_a_checkpoint_is_read_while_it_is_saved_again(buffered, tmp_path, monkeypatch):
    """The segments that an older file names may be gone when they are read: then the newer is."""
    algorithm, path, require = buffered("CartPole-v1"), tmp_path / "c.rlox", SegmentFolder.require
    algorithm.push(90)
    algorithm.save(path)

    def late(*arguments):
        monkeypatch.setattr(SegmentFolder, "require", require)
        algorithm.push(400)
        algorithm.save(path)
        return require(*arguments)

    monkeypatch.setattr(SegmentFolder, "require", late)
    restored = buffered.from_checkpoint(path)
    assert first_difference(algorithm.buffer.state(), restored.buffer.state()) is None


def test_segments_of_a_save_under_way_stay(buffered, tmp_path):
    """Who removes a checkpoint leaves segments alone while another one is being written."""
    algorithm = buffered("CartPole-v1")
    algorithm.push(100)
    algorithm.save(tmp_path / "c.safetensors")
    before = segment_files(tmp_path)
    with SegmentFolder(tmp_path / "c.safetensors").locked() as held:
        assert held
        algorithm.remove_checkpoint(tmp_path / "c.safetensors")
        assert segment_files(tmp_path) == before
    assert not (tmp_path / "c.safetensors").exists()
    remove_orphans(tmp_path)
    assert not segment_files(tmp_path)


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
import rlox.training.segments as segments
from rlox.kernels.reference import ReplayBuffer
from rlox.training import checkpoint
sys.path.insert(0, sys.argv[1])
import counting_algorithm as counting
segments.SEGMENT_BYTES = 1
folder = Path(sys.argv[2])

class Buffered(counting.CountingAlgorithm):
    def __init__(self, *args, **arguments):
        super().__init__(*args, **arguments)
        self.buffer = ReplayBuffer(200, 1, 1, seed=0)
        self.saved = segments.SavedBuffer(self.buffer)
    def push(self, value, n=70):
        column = np.full((n, 1), value, np.float32)
        self.buffer.push_batch(column, column, column[:, 0], np.zeros(n), np.zeros(n), column)
    def state_dict(self):
        return {**super().state_dict(), "buffer": self.saved.state()}

def dying(function, left):
    def call(*args, **kwargs):
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        return function(*args, **kwargs)
    return call

survived = 0
for k in range(100):
    path = folder / str(k) / "c.safetensors"
    algorithm = Buffered("CartPole-v1")
    algorithm.push(1), algorithm.save(path)
    old = algorithm.buffer.state()
    algorithm.push(2)
    new = algorithm.buffer.state()
    child = os.fork()
    if child == 0:
        left = [k]
        for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink"), (os, "replace")):
            setattr(owner, name, dying(getattr(owner, name), left))
        algorithm.save(path)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    found = checkpoint.read(path)["state"]["algorithm"]["buffer"]
    assert any(all((found[key] == state[key]).all() for key in state)
               for state in (old, new) if len(state["rewards"]) == len(found["rewards"])), k
    if status == 0:
        assert len(found["rewards"]) == 140
        print(k)
        break
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_kill_at_any_moment_leaves_a_checkpoint_that_loads(tmp_path):
    """A process killed before any sync, rename or removal leaves the old buffer or the new one."""
    tests = str(Path(__file__).parent)
    command = [sys.executable, "-c", KILLED, tests, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 8  # moments
