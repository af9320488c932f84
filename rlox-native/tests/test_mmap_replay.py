"""The buffer with a file against one in memory; full disks, damage, and killed writers."""

import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rlox_native import MmapReplayBuffer, ReplayBuffer


def rows(first, n, width=3):
    """Transitions number first to first + n - 1, each with its number as values."""
    ids = np.arange(first, first + n)
    obs = np.repeat(ids[:, None], width, 1).astype(np.float32)
    return obs, ids[:, None].astype(np.float32), ids / 2, ids % 3 == 0, ids % 2 == 0, obs + 0.5


def assert_whole(batch):
    """All parts of each row belong to one transition."""
    ids = batch["actions"][:, 0]
    np.testing.assert_array_equal(batch["obs"], np.repeat(ids[:, None], 3, 1))
    np.testing.assert_array_equal(batch["next_obs"], batch["obs"] + 0.5)
    np.testing.assert_array_equal(batch["rewards"], ids / 2)


def numbers(buffer):
    """The numbers of the stored transitions."""
    batch = buffer.sample(30 * len(buffer), seed=0)
    assert_whole(batch)
    return set(batch["actions"][:, 0].astype(int))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    hot=st.integers(1, 6),
    cold=st.integers(0, 9),
    pushes=st.lists(st.integers(-9, 14), min_size=1, max_size=9),
    keep=st.booleans(),
)
def test_it_draws_what_a_buffer_in_memory_draws(tmp_path, hot, cold, pushes, keep):
    """For any split, with missing next observations (negative) and reopened files."""
    path = Path(tempfile.mkdtemp(dir=tmp_path)) / "cold"
    sizes = (hot, hot + cold, 3, 1, path, keep)
    buffer, model = MmapReplayBuffer(*sizes, seed=0), ReplayBuffer(hot + cold, 3, 1, seed=0)
    count = 0
    for n in pushes:
        batch = rows(count, abs(n))
        count += abs(n)
        if n < 0:
            batch = batch[:5]
        if abs(n) == 1:
            buffer.push(*(part[0] for part in batch)), model.push(*(part[0] for part in batch))
        else:
            buffer.push_batch(*batch), model.push_batch(*batch)
        if keep and n % 3 == 0:
            buffer.close()
            buffer = MmapReplayBuffer(*sizes, seed=99)
        assert len(buffer) == len(model)
        for seed in (None, 5) if len(model) else ():
            got, expected = buffer.sample(20, seed), model.sample(20, seed)
            assert got.keys() == expected.keys()
            for key in got:
                np.testing.assert_array_equal(got[key], expected[key], strict=True)
    buffer.close()
    assert path.exists() == keep


def test_what_was_flushed_is_there_again(tmp_path):
    """Exactly that, even if later pushes had overwritten it."""
    sizes = (10, 50, 3, 1, tmp_path / "cold", True)
    buffer = MmapReplayBuffer(*sizes, seed=1)
    buffer.push_batch(*rows(0, 70))
    buffer.flush()
    expected = buffer.sample(40)
    buffer.push_batch(*rows(70, 15))
    del buffer  # without closing it
    again = MmapReplayBuffer(*sizes, seed=2)
    assert numbers(again) == set(range(20, 70))
    for key, array in again.sample(40).items():
        np.testing.assert_array_equal(array, expected[key])


@pytest.mark.parametrize("place", ["header", "commit", "record", "end"])
def test_damage_is_detected(tmp_path, place):
    """A flipped bit or a truncated file is an error, never a wrong number."""
    path = tmp_path / "cold"
    with MmapReplayBuffer(4, 20, 3, 1, path, keep=True) as buffer:
        buffer.push_batch(*rows(0, 30))
    content = bytearray(path.read_bytes())
    if place == "end":
        content = content[: 3 * 4096 + 40]
    else:
        content[{"header": 9, "commit": 4096 + 3, "record": 3 * 4096 + 20}[place]] ^= 4
    path.write_bytes(content)
    with pytest.raises(OSError, match="is damaged"):
        MmapReplayBuffer(4, 20, 3, 1, path, keep=True)
    assert path.exists()


def zeroed(content, first, end):
    """The content with zeros from one byte to another."""
    return content[:first] + bytes(end - first) + content[end:]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:4146],
        lambda content: content[: 2 * 4096 + 80],
        lambda content: zeroed(content, 4096, 8192),
        lambda content: zeroed(content, 4096, 12288),
        lambda content: zeroed(content, 12288, len(content)),
    ],
)
@pytest.mark.parametrize("n_flushes", [1, 2])
def test_a_file_without_its_commits_is_damaged(tmp_path, damage, n_flushes):
    """It does not count as an empty store or as that of the previous flush."""
    path = tmp_path / "cold"
    with MmapReplayBuffer(4, 20, 3, 1, path, keep=True) as buffer:
        for turn in range(n_flushes):
            buffer.push_batch(*rows(3 * turn, 3))
            buffer.flush()
    content = path.read_bytes()
    path.write_bytes(damaged := damage(content))
    with pytest.raises(OSError, match="is damaged"):
        MmapReplayBuffer(4, 20, 3, 1, path, keep=True)
    assert path.read_bytes() == damaged


def with_version(content, version):
    """The content of a file with another version in its header."""
    words = content[:8] + version.to_bytes(8, "little") + content[16:80]
    return words + zlib.crc32(words).to_bytes(4, "little") + content[84:]


def test_files_of_the_first_version_open(tmp_path):
    """Those had no commit before the first flush, and one before the second."""
    sizes = (4, 20, 3, 1, tmp_path / "cold", True)
    with MmapReplayBuffer(*sizes) as buffer:
        buffer.push_batch(*rows(0, 30))
    content = with_version(sizes[4].read_bytes(), 1)
    sizes[4].write_bytes(content)
    with MmapReplayBuffer(*sizes) as buffer:
        assert numbers(buffer) == set(range(10, 30))
    # the first flush of a file used the second place
    sizes[4].write_bytes(zeroed(content, 4096, 12288))
    with MmapReplayBuffer(*sizes) as buffer:
        assert len(buffer) == 0
        buffer.push_batch(*rows(0, 3))
    sizes[4].write_bytes(sizes[4].read_bytes()[:4096] + bytes(4096) + sizes[4].read_bytes()[8192:])
    with MmapReplayBuffer(*sizes) as buffer:
        assert numbers(buffer) == {0, 1, 2}
    sizes[4].write_bytes(zeroed(content, 8192, 12288))
    with pytest.raises(OSError, match="is damaged"):
        MmapReplayBuffer(*sizes)


def test_a_file_that_was_not_finished_is_made_anew(tmp_path):
    """Its process was killed before the buffer could be used."""
    sizes = (4, 20, 3, 1, tmp_path / "cold", True)
    MmapReplayBuffer(*sizes).close()
    content = with_version(sizes[4].read_bytes(), 0)
    for end in (0, 84, 8192 + 68, len(content)):
        sizes[4].write_bytes(content[:end])
        with MmapReplayBuffer(*sizes) as buffer:
            assert len(buffer) == 0
            buffer.push_batch(*rows(0, 30))
        with MmapReplayBuffer(*sizes) as buffer:
            assert numbers(buffer) == set(range(10, 30))


def test_a_store_that_was_never_flushed_goes_on_with_its_stream(tmp_path):
    """As after a flush."""
    sizes = (4, 20, 3, 1, tmp_path / "cold", True)
    first = MmapReplayBuffer(*sizes, seed=1)
    first.push_batch(*rows(0, 4))
    expected = first.sample(9)
    del first  # without closing it
    again = MmapReplayBuffer(*sizes, seed=2)
    assert len(again) == 0
    again.push_batch(*rows(0, 4))
    np.testing.assert_array_equal(again.sample(9)["rewards"], expected["rewards"])


def test_damage_under_an_open_buffer_is_detected(tmp_path):
    """A cut file raises an error and ends no process."""
    path = tmp_path / "cold"
    with MmapReplayBuffer(2, 20, 3, 1, path) as buffer:
        buffer.push_batch(*rows(0, 20))
        os.truncate(path, 3 * 4096 + 10)
        with pytest.raises(OSError, match="is damaged: a checksum does not match"):
            buffer.sample(200)


def test_foreign_files_stay_untouched(tmp_path):
    """So does the file of an open buffer, of other sizes, or of the other mode."""
    path = tmp_path / "thesis.txt"
    path.write_text("five years of work" * 99)
    for keep in (False, True):
        with pytest.raises(OSError, match="is not a replay buffer, or is damaged; choose"):
            MmapReplayBuffer(2, 20, 3, 1, path, keep)
    assert path.read_text() == "five years of work" * 99

    path = tmp_path / "cold"
    with MmapReplayBuffer(2, 20, 3, 1, path, keep=True) as buffer:
        buffer.push_batch(*rows(0, 20))
        with pytest.raises(OSError, match="is in use by another buffer"):
            MmapReplayBuffer(2, 20, 3, 1, path, keep=True)
    for sizes in ((3, 20, 3, 1), (2, 21, 3, 1), (2, 20, 4, 1), (2, 20, 3, 2)):
        with pytest.raises(OSError, match="other sizes or types than requested"):
            MmapReplayBuffer(*sizes, path, keep=True)
    with pytest.raises(OSError, match="other value of keep"):
        MmapReplayBuffer(2, 20, 3, 1, path)
    assert numbers(MmapReplayBuffer(2, 20, 3, 1, path, keep=True)) == set(range(20))


def test_what_a_killed_process_left_is_overwritten(tmp_path):
    """A leftover file without keep does not block a new buffer."""
    path = tmp_path / "cold"
    code = (
        "import os, sys; sys.path.insert(0, os.path.dirname(sys.argv[2])); "
        "import test_mmap_replay as t; b = t.MmapReplayBuffer(2, 20, 3, 1, sys.argv[1]); "
        "b.push_batch(*t.rows(0, 20)); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code, path, __file__], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert path.exists()
    with MmapReplayBuffer(3, 10, 3, 1, path) as buffer:
        assert len(buffer) == 0
    assert not path.exists()


@pytest.mark.parametrize("keep", [False, True])
def test_a_full_disk_loses_nothing(tmp_path, keep):
    """Transitions without room are refused, and accepted once there is room."""
    buffer = MmapReplayBuffer(10, 1000, 3, 1, tmp_path / "cold", keep, seed=0)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill():
        while len(buffer) < 1000:
            buffer.push_batch(*rows(len(buffer), 7))

    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (3 * 4096 + 2_000, limit[1]))
        with pytest.raises(OSError, match=r"cannot write to .*cold") as error:
            fill()
        assert error.value.errno
        count = len(buffer)
        assert 10 < count < 1000
        assert numbers(buffer) == set(range(count))
        with pytest.raises(OSError, match="cannot write"):
            buffer.push_batch(*rows(count, 7))
        assert len(buffer) == count
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    buffer.push_batch(*rows(count, 7))
    assert numbers(buffer) == set(range(count + 7))
    buffer.close()


def test_a_closed_buffer_says_so(tmp_path):
    """Closing twice is fine."""
    buffer = MmapReplayBuffer(2, 4, 3, 1, tmp_path / "cold")
    buffer.push_batch(*rows(0, 4))
    buffer.close()
    buffer.close()
    push, sample = (lambda: buffer.push_batch(*rows(0, 1))), (lambda: buffer.sample(1))
    for call in (push, sample, buffer.flush, buffer.__enter__):
        with pytest.raises(RuntimeError, match="the buffer is closed"):
            call()


@pytest.mark.parametrize(
    ("sizes", "options", "error", "message"),
    [
        ((0, 4, 3, 1), {}, ValueError, "hot_capacity must be at least 1"),
        ((5, 4, 3, 1), {}, ValueError, r"hot_capacity must lie in \[1, 4\], got 5"),
        ((2, 4, 3, 1), {"n_step": 3}, TypeError, "there is no option 'n_step'"),
        ((10**9, 10**9, 10**5, 1), {}, MemoryError, "not enough memory for hot_capacity"),
        ((2, 2**64 - 1, 3, 1), {}, ValueError, "total_capacity must lie in .*, got 1.8.*e19"),
    ],
)
def test_impossible_sizes_are_refused(tmp_path, sizes, options, error, message):
    """Before a file is created."""
    path = tmp_path / "cold"
    with pytest.raises(error, match=message):
        MmapReplayBuffer(*sizes, path, **options)
    assert not path.exists()
    with pytest.raises(FileNotFoundError, match="cannot open"):
        MmapReplayBuffer(2, 4, 3, 1, tmp_path / "no" / "such" / "folder")


def test_threads_push_and_sample_one_buffer(tmp_path):
    """Every batch is whole."""
    with MmapReplayBuffer(8, 64, 3, 1, tmp_path / "cold", keep=True) as buffer:
        buffer.push_batch(*rows(0, 64))

        def sample(worker):
            for turn in range(20):
                assert_whole(buffer.sample(32))
                if worker == 0:
                    buffer.push_batch(*rows(64 + 5 * turn, 5))
                    buffer.flush()
            return worker

        with ThreadPoolExecutor(3) as pool:
            assert sorted(pool.map(sample, range(3))) == [0, 1, 2]


WRITER = """
import os, sys
sys.path.insert(0, os.path.dirname(sys.argv[2]))
import test_mmap_replay as t
buffer = t.MmapReplayBuffer(16, 100, 3, 1, sys.argv[1], keep=True)
count = int(buffer.sample(3000)["actions"].max()) + 1 if len(buffer) else 0
while True:
    buffer.push_batch(*t.rows(count, 7))
    count += 7
    if count % 3 == 0:
        buffer.flush()
        os.write(1, b"%d\\n" % count)
"""


KILLS = int(os.environ.get("RLOX_KILLS", "2"))


def test_a_killed_writer_loses_nothing_that_it_flushed(tmp_path):
    """Killed at any moment, repeatedly over one file; ``RLOX_KILLS=200`` is the long form."""
    path, wait = tmp_path / "cold", random.Random(0)
    for _ in range(KILLS):
        command = [sys.executable, "-c", WRITER, path, __file__]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            first = writer.stdout.readline()
            time.sleep(wait.uniform(0.0, 0.03))
            writer.kill()
            flushed = ([first, *writer.stdout.read().splitlines()])[-1]
        with MmapReplayBuffer(16, 100, 3, 1, path, keep=True) as buffer:
            stored = numbers(buffer)
            newest = max(stored)
            assert newest + 1 >= int(flushed)
            assert stored == set(range(max(0, newest - 99), newest + 1))


def test_closing_deletes_the_file_that_was_opened(tmp_path, monkeypatch):
    """In any working directory, and never another file of the same name."""
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    buffer = MmapReplayBuffer(2, 9, 3, 1, "cold")
    buffer.push_batch(*rows(0, 9))
    monkeypatch.chdir(tmp_path / "there")
    Path("cold").write_text("somebody's")
    buffer.close()
    assert Path("cold").exists()
    assert not (tmp_path / "here" / "cold").exists()


def test_a_file_that_took_the_place_stays(tmp_path):
    """It belongs to another buffer."""
    path = tmp_path / "cold"
    first = MmapReplayBuffer(2, 9, 3, 1, path)
    path.unlink()
    second = MmapReplayBuffer(2, 9, 3, 1, path)
    first.close()
    assert path.exists()
    second.close()
    assert not path.exists()


FORKING = """
import os, sys
from rlox_native import MmapReplayBuffer
buffer = MmapReplayBuffer(2, 9, 3, 1, sys.argv[1])
if (child := os.fork()) == 0:
    del buffer
    os._exit(0)
os.waitpid(child, 0)
assert os.path.exists(sys.argv[1])
"""


def test_a_child_deletes_no_file_of_its_parent(tmp_path):
    """A forked child has a copy of the buffer."""
    subprocess.run([sys.executable, "-c", FORKING, tmp_path / "cold"], check=True)
    assert not (tmp_path / "cold").exists()


FORKED = """
import os, sys
from rlox_native import MmapReplayBuffer
sizes = 2, 9, 3, 1, sys.argv[1], True
buffer, (awake, wake) = MmapReplayBuffer(*sizes), os.pipe()
if (child := os.fork()) == 0:
    del buffer
    os._exit(0)
os.waitpid(child, 0)
try:
    MmapReplayBuffer(*sizes)
except OSError as error:
    assert "is in use by another buffer" in str(error)
else:
    sys.exit("the child let go of its parent's lock")
if (child := os.fork()) == 0:
    os.read(awake, 1)
    os._exit(0)
buffer.close()
MmapReplayBuffer(*sizes).close()
os.write(wake, b"x")
os.waitpid(child, 0)
"""


def test_a_child_holds_no_lock(tmp_path):
    """Its copy neither releases the parent's lock nor keeps it after the parent."""
    subprocess.run([sys.executable, "-c", FORKED, tmp_path / "cold"], check=True)


def test_a_path_that_is_refused_stays(tmp_path):
    """For a file of any kind."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match="is not a regular file"):
        MmapReplayBuffer(2, 9, 3, 1, path)
    assert path.exists()
