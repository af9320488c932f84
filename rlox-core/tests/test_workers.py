"""Worker processes: calls, deadlines, errors, and that nothing is left of them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from rlox.envs import Supervisor, WorkerProcess
from rlox.errors import EnvError, WorkerError, WorkerLostError


class Worker:
    """Answers a few calls."""

    def __init__(self, factor, beat):
        self.factor, self.beat = factor, beat

    def scale(self, message, arrays):
        """Return the message, and the arrays scaled."""
        return message, {name: array * self.factor for name, array in arrays.items()}

    def sleep(self, seconds, arrays):
        """Sleep in silence."""
        time.sleep(seconds)
        return "slept", {}

    def work(self, seconds, arrays):
        """Sleep with a sign now and then."""
        for _ in range(100):
            time.sleep(seconds / 100)
            self.beat()
        return "worked", {}

    def fail(self, text, arrays):
        """Raise."""
        raise EnvError(text)

    def close(self):
        """Do nothing."""


class UnpicklableError(Exception):
    """An error that cannot be made again from its arguments."""

    def __init__(self, one, other):
        super().__init__("text")


def make_worker(factor, beat):
    """Return a worker."""
    if factor < 0:
        raise UnpicklableError(1, 2)
    return Worker(factor, beat)


FACTORY = "test_workers:make_worker"


def started():
    """Yield a worker that doubles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parent)
        worker = WorkerProcess(FACTORY, (2.0,), name="worker 0")
    yield worker
    worker.close()


worker = pytest.fixture(started, name="worker")
lasting = pytest.fixture(started, name="lasting", scope="module")


def test_arrays_and_answers_come_back(lasting):
    """Of any dtype and shape, larger from call to call; a result is the caller's to keep."""
    kept = []
    for size in (0, 3, 5_000, 2):
        arrays = {
            "floats": np.arange(size, dtype=np.float32).reshape(size, 1),
            "number": np.array(size, np.int64),
            "bytes": np.full(size % 7, 3, np.uint8),
        }
        answer, got = lasting.call("scale", {"size": size}, arrays, deadline=120)
        assert answer == {"size": size}
        kept.append((arrays, got))
    for arrays, got in kept:
        for name, array in arrays.items():
            np.testing.assert_array_equal(got[name], array * 2)
            assert got[name].shape == array.shape


def test_an_error_comes_with_its_class_and_traceback(lasting):
    """And the lasting goes on."""
    with pytest.raises(EnvError, match="the wheel came off") as caught:
        lasting.call("fail", "the wheel came off", deadline=120)
    assert isinstance(caught.value.__cause__, WorkerError)
    assert "in fail" in str(caught.value.__cause__)
    assert lasting.call("scale", 1, deadline=120)[0] == 1


def test_an_error_that_cannot_be_pickled_comes_as_text(monkeypatch):
    """So does one of the factory, with the first call."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    worker = WorkerProcess(FACTORY, (-1.0,), name="worker 1")
    with pytest.raises(RuntimeError, match="UnpicklableError: text"):
        worker.call("scale", deadline=120)
    worker.close()


def test_a_killed_worker_is_lost_at_once(worker):
    """The error names it and the signal."""
    worker.call("scale", deadline=120)
    worker.send("sleep", 60)
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerLostError, match=r"worker 0 has died \(signal 9\)"):
        worker.receive(120)


def test_a_stopped_worker_misses_its_deadline(worker):
    """And is killed, although it takes no other signal."""
    worker.call("scale", deadline=120)
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(WorkerLostError, match=r"worker 0 has not answered in 0.3 s"):
        worker.call("scale", deadline=0.3)
    assert not Path(f"/proc/{worker.pid}").exists()


def test_signs_of_life_extend_the_deadline(lasting):
    """It is of a step, not of the call."""
    lasting.call("scale", deadline=120)
    assert lasting.call("work", 4.0, deadline=3.0)[0] == "worked"


def test_an_answer_that_nobody_took_is_no_answer_to_the_next_call(lasting):
    """As where Ctrl-C interrupts the wait."""
    lasting.send("scale", "first")
    lasting.send("scale", "second")
    assert lasting.receive(120)[0] == "second"


def test_an_error_that_nobody_took_is_no_answer_to_the_next_call(lasting):
    """It belongs to a call that was given up."""
    lasting.send("fail", "the wheel came off")
    assert lasting.call("scale", "second", deadline=120)[0] == "second"


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    """Even in the midst of a call; and no file is left in shared memory."""
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path; from rlox.envs.workers import process\n"
        "process.IN_MEMORY = Path(sys.argv[2])\n"
        "worker = process.WorkerProcess('test_workers:make_worker', (1.0,), name='worker')\n"
        "worker.call('scale', deadline=120)\n"
        "worker.send('sleep', 600)\n"
        "print(worker.pid, flush=True); time.sleep(600)\n"
    )
    memory = tmp_path / "memory"
    memory.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(Path(__file__).parent), str(memory)],
        stdout=subprocess.PIPE,
        text=True,
    )
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in range(2_400):
        if not _runs(pid):
            break
        time.sleep(0.05)
    assert not _runs(pid)
    assert not list(memory.iterdir())


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_supervisor_gives_up_after_so_many_restarts(caplog):
    """Of each worker; the log says why each began again."""
    supervisor = Supervisor(max_restarts=2)
    lost = WorkerLostError("a has died (signal 9)")
    assert [supervisor.lost("a", lost), supervisor.lost("a", lost)] == [1, 2]
    assert supervisor.lost("b", lost) == 1
    with pytest.raises(WorkerLostError, match=r"a has died \(signal 9\) after 2 restarts"):
        supervisor.lost("a", lost)
    assert supervisor.restarts == 3
    words = [record.getMessage().split() for record in caplog.records]
    assert [(worker, what) for worker, what, *_ in words] == [
        ("a", "begins"), ("a", "begins"), ("b", "begins"), ("a", "given"),
    ]  # fmt: skip
