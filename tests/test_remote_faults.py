"""Faults of env workers and their links: no step is lost silently, done twice or torn.

``RLOX_FAULT_SCHEDULES`` sets the number of random schedules and ``RLOX_LEARNER_KILLS`` how often
a learner is killed; ``nox -s faults`` runs 50 and 20.
"""

import os
import random
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import rlox
from rlox.envs.make import make_vec_env
from rlox.errors import WorkerLostError
from rlox_distributed.pool import RemoteEnvPool
from rlox_distributed.worker import EnvWorker

SCHEDULES = int(os.environ.get("RLOX_FAULT_SCHEDULES", "1"))
KILLS = int(os.environ.get("RLOX_LEARNER_KILLS", "2"))
SCRIPT = Path(__file__).with_name("counting_worker.py")
COUNTING = runpy.run_path(str(SCRIPT), run_name="counting_worker")
LENGTH, N_ENVS = COUNTING["LENGTH"], COUNTING["N_ENVS"]


class Worker:
    """A worker process, and a proxy before it that can cut and hold its connections."""

    def __init__(self, *env_id):
        self._env_id = env_id
        self._process = self._begin(0)
        self._hold = threading.Event()
        self._hold.set()
        self._cut_after = None
        self._sockets = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._listen = threading.Thread(target=self._accept, daemon=True)
        self._listen.start()

    def _begin(self, port):
        command = [sys.executable, str(SCRIPT), str(port), *self._env_id]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._port = int(process.stdout.readline())
        return process

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                near.close()
                continue
            self._sockets = [near, far]
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source, target):
        with suppress(OSError):
            while data := source.recv(1 << 12):
                self._hold.wait()
                after, self._cut_after = self._cut_after, None
                if after is not None:
                    target.sendall(data[: after % len(data)])
                    break
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def cut(self, after):
        """End the connection in the middle of the next piece of data."""
        self._cut_after = after

    def link_down(self, seconds):
        """Let nothing through for a while."""
        self._hold.clear()
        time.sleep(seconds)
        self._hold.set()

    def stop_for(self, seconds):
        """Stop the process and let it go on."""
        self.stop()
        time.sleep(seconds)
        os.kill(self._process.pid, signal.SIGCONT)

    def stop(self):
        """Stop the process, and wait until every thread of it has stopped."""
        os.kill(self._process.pid, signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)

    def kill(self):
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def restart(self):
        """Kill the process, and begin again on its port."""
        self.kill()
        self._process = self._begin(self._port)

    def end(self):
        """Free everything."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._listen.join()
        self._hold.set()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self.kill()


@pytest.fixture(name="workers")
def fixture_workers(request):
    """Return two workers, of counting envs or of the id that is the fixture's parameter."""
    env_id = (request.param,) if hasattr(request, "param") else ()
    workers = []
    try:
        workers.append(Worker(*env_id))
        workers.append(Worker(*env_id))
        yield workers
    finally:
        for worker in workers:
            worker.end()


def disturb(workers, seed, done):
    """Do random faults to random workers."""
    rng = random.Random(seed)
    for _ in range(5):
        if done.wait(rng.uniform(0.0, 0.3)):
            return
        worker = rng.choice(workers)
        fault = rng.choice(["restart", "stop", "cut", "cut", "down"])
        if fault == "restart":
            worker.restart()
        elif fault == "stop":
            worker.stop_for(rng.uniform(0.0, 0.5))
        elif fault == "cut":
            worker.cut(rng.randrange(1 << 12))
        else:
            worker.link_down(rng.uniform(0.0, 0.5))


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_every_step_is_done_once_or_lost(workers, seed, caplog):
    """Counters of every env go on by one, or it is a lost env of a process that was restarted."""
    pool = RemoteEnvPool([w.address for w in workers], timeout=120.0, max_restarts=10)
    obs = pool.reset_all(0)
    done = threading.Event()
    faults = threading.Thread(target=disturb, args=(workers, seed, done))
    faults.start()
    steps = after = 0
    try:
        while after < 30:  # some more after the last fault
            after += not faults.is_alive()
            steps += 1
            step = pool.step_all(np.full(pool.n_envs, steps, np.int64))
            lost = step.get("lost", np.zeros(pool.n_envs, bool))
            for i in range(pool.n_envs):
                require_once(obs[i], {key: step[key][i] for key in step}, steps, bool(lost[i]))
            obs = step["obs"]
    finally:
        done.set()
        faults.join()
    assert caplog.text.count("begins again") == pool.supervisor.restarts <= 5
    pool.close()


def require_once(before, step, action, lost):
    """Check a row of a step against the row before it."""
    obs, final = step["obs"], step["final_obs"]
    for row in (obs, final):  # torn rows have other sums
        assert (row[4:] == row[:4].sum()).all()
    if lost:
        assert (step["rewards"], step["truncated"], step["terminated"]) == (0.0, True, False)
        np.testing.assert_array_equal(final, before)
        assert obs[0] != before[0]
        assert obs[2] == 0
        return
    assert step["rewards"] == action == final[3]
    assert (final[0], final[1], final[2]) == (before[0], before[1], before[2] + 1)
    assert bool(step["terminated"]) == (final[2] == LENGTH)
    assert obs[2] == final[2] % LENGTH


@pytest.mark.parametrize("workers", ["CartPole-v1"], indirect=True)
def test_fewer_workers_than_needed_are_named(workers):
    """One of two may go; when both have gone, the error names them."""
    options = {
        "env_backend": "grpc", "worker_addresses": [w.address for w in workers],
        "step_timeout": 1.0, "reset_timeout": 120.0, "n_actors": 2, "n_envs": N_ENVS,
        "n_steps": 4, "unrolls_per_update": 1, "min_workers": 1, "hidden": 8,
    }  # fmt: skip
    with rlox.make("impala", env="CartPole-v1", **options) as impala:
        impala.train(16)
        workers[0].stop()
        impala.train(64)
        workers[1].stop()
        both = "0 of 2 actors live, fewer than min_workers = 1"
        with pytest.raises(WorkerLostError, match=both) as caught:
            impala.train(10_000)
        for worker in workers:
            assert worker.address in str(caught.value)


LEARNER = """
import sys
from pathlib import Path
import rlox

where, folder = sys.argv[1], Path(sys.argv[2])
options = {"env_backend": "grpc", "worker_addresses": where}
found = sorted(folder.glob("*.rlox"), key=lambda path: int(path.stem))
if found:
    a2c = rlox.algorithms.A2C.from_checkpoint(found[-1], "CartPole-v1", **options)
else:
    sizes = {"n_envs": 2, "n_steps": 8, "hidden": 8, "seed": 3, "backend": "torch"}
    a2c = rlox.make("a2c", env="CartPole-v1", **sizes, **options)
print("began", a2c.clock.env_steps, flush=True)
while True:
    a2c.train(64)
    a2c.save(folder / f"{a2c.clock.env_steps}.rlox")
    print("trained", a2c.clock.env_steps, flush=True)
"""


@pytest.mark.slow
def test_a_killed_learner_resumes_on_its_workers(tmp_path):
    """At random moments; the worker waits for the next, which goes on from the last checkpoint.

    The envs go on with it, so the parameters in the end are those of a training that was never
    disturbed, bit for bit.
    """
    worker = EnvWorker(make_vec_env("CartPole-v1", n_envs=2), "CartPole-v1", "127.0.0.1:0")
    worker.start()
    command = [sys.executable, "-c", LEARNER, f"127.0.0.1:{worker.port}", str(tmp_path)]
    reached, rng = 0, random.Random(0)
    for _ in range(KILLS):
        learner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        began = int(learner.stdout.readline().split()[1])
        assert began >= reached, "it goes on from the last checkpoint that was reported"
        for _ in range(3):
            reached = int(learner.stdout.readline().split()[1])
        time.sleep(rng.uniform(0.0, 0.5))  # in the midst of a step, an update or a checkpoint
        learner.kill()
        learner.wait()
        learner.stdout.close()
    assert reached >= KILLS * 3 * 64
    worker.stop(grace=0.1)
    last = max(tmp_path.glob("*.rlox"), key=lambda path: int(path.stem))
    sizes = {"n_envs": 2, "n_steps": 8, "hidden": 8, "seed": 3, "backend": "torch"}
    with rlox.make("a2c", env="CartPole-v1", **sizes) as a2c:
        while a2c.clock.env_steps < int(last.stem):
            a2c.train(64)
        expected = a2c.optimizers["policy"].parameters
        with type(a2c).from_checkpoint(last) as resumed:
            assert resumed.clock.env_steps == a2c.clock.env_steps
            assert resumed.optimizers["policy"].parameters.equal(expected)
