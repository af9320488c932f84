"""Hostile learners and workers: refused in bounded memory, while the honest learner goes on.

``RLOX_BAD_CONNECTIONS`` and ``RLOX_FUZZ_SECONDS`` make the tests longer; ``nox -s faults`` does.
"""

import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import grpc
import numpy as np
import pytest
import rlox
from google.protobuf.message import DecodeError
from rlox.envs.make import make_vec_env
from rlox.errors import RloxError, WorkerLostError
from rlox_distributed._transport import StreamError
from rlox_distributed.link import PROTOCOL_VERSION, Link
from rlox_distributed.pool import RemoteEnvPool
from rlox_distributed.protocol import workers_pb2 as pb
from rlox_distributed.security import Credentials
from rlox_distributed.spaces import space_from_json, space_to_json
from rlox_distributed.worker import MAX_STREAMS, EnvWorker

BAD_CONNECTIONS = int(os.environ.get("RLOX_BAD_CONNECTIONS", "60"))
FUZZ_SECONDS = float(os.environ.get("RLOX_FUZZ_SECONDS", "0"))
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
MOST_GROWTH = 96 << 20
"""Bytes of memory by which a worker may grow under attack: buffers of gRPC, not of the attacker."""
MOST_THREADS = 64
"""By which it may grow: gRPC's, which are bounded whatever the number of connections."""


PROGRAM = """
import sys
import rlox_distributed.worker as worker
from rlox.envs.make import make_vec_env

worker.HELLO_SECONDS = 0.5
served = worker.EnvWorker(make_vec_env("CartPole-v1", n_envs=2), "CartPole-v1", "127.0.0.1:0")
served.start()
print(served.port, flush=True)
sys.stdin.read()
"""


class Served:
    """A worker of two envs in a process of its own, whose memory and threads are bounded."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        self.port = int(self._process.stdout.readline())
        self.address = f"127.0.0.1:{self.port}"
        self._before = self._usage()

    def _usage(self):
        """Return bytes of resident memory and the number of threads."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text("utf-8").splitlines()
        given = {name: value for name, _, value in (line.partition(":") for line in lines)}
        return int(given["VmRSS"].split()[0]) << 10, int(given["Threads"])

    def require_bounded(self):
        """Require that memory and threads grew by no more than gRPC's own."""
        memory, threads = (
            now - then for now, then in zip(self._usage(), self._before, strict=True)
        )
        assert memory < MOST_GROWTH
        assert threads < MOST_THREADS

    def end(self):
        """End the process."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture(name="served", scope="module")
def fixture_served():
    """Return a worker in a process."""
    served = Served()
    yield served
    served.end()


def bad_bytes(rng):
    """Return what a stranger may send: garbage, truncated frames, and frames too large."""
    kind = rng.randrange(5)
    if kind == 0:
        return rng.randbytes(rng.randrange(200))
    if kind == 1:
        return PREFACE[: rng.randrange(len(PREFACE))]
    if kind == 2:
        return PREFACE + SETTINGS + rng.randbytes(rng.randrange(200))
    if kind == 3:  # a frame of 16 MB is announced and never sent
        return PREFACE + SETTINGS + b"\xff\xff\xff\0\0\0\0\0\1" + rng.randbytes(100)
    return b"GET / HTTP/1.1\r\n\r\n" + rng.randbytes(rng.randrange(200))


def test_bad_connections_change_nothing(served):
    """The honest learner steps all the while, and memory and threads of the worker are bounded."""
    pool = RemoteEnvPool([served.address], timeout=120.0)
    here = make_vec_env("CartPole-v1", n_envs=2)
    np.testing.assert_array_equal(pool.reset_all(0), here.reset_all(0))
    rng = random.Random(0)
    for number in range(BAD_CONNECTIONS):
        with socket.create_connection(("127.0.0.1", served.port)) as stranger, suppress(OSError):
            stranger.sendall(bad_bytes(rng))
        if number % 10 == 0:
            actions = np.array([rng.randrange(2), rng.randrange(2)])
            there, expected = pool.step_all(actions), here.step_all(actions)
            np.testing.assert_array_equal(there["obs"], expected["obs"])
            assert "lost" not in there
            served.require_bounded()
    assert pool.supervisor.restarts == 0
    pool.close()


def test_connections_that_dawdle_do_not_keep_learners_out(served):
    """Half-open connections, and all the streams there are, without a hello."""
    slow = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(200)]
    for number, each in enumerate(slow):
        each.sendall(PREFACE[: 1 + number % len(PREFACE)])
    with grpc.insecure_channel(served.address) as channel:
        method = channel.stream_stream("/rlox.distributed.v1.EnvWorker/Session")
        done = threading.Event()
        silent = [method(never(done)) for _ in range(2 * MAX_STREAMS)]
        pool = RemoteEnvPool([served.address], timeout=120.0)
        pool.reset_all(0)
        for _ in range(20):
            pool.step_all(np.zeros(2, np.int64))
        served.require_bounded()
        pool.close()
        for call in silent:
            call.cancel()
        done.set()
    for each in slow:
        each.close()


def never(done):
    """Send nothing until the test is over."""
    done.wait()
    yield b""


class Aborted(Exception):  # noqa: N818  # no error: the answer to one
    """What ``context.abort`` raises."""


class Context:
    """A stream's context that is aborted by raising."""

    def abort(self, code, details):
        """Refuse."""
        raise Aborted(details)


SERVED = EnvWorker(make_vec_env("CartPole-v1", n_envs=2), "CartPole-v1", "127.0.0.1:0")
"""Not started: its methods are called as a stream would."""


def answer_once(data):
    """Let the worker decode and answer a request: an answer, or a refusal."""
    holder = SERVED._holder = object()
    before = SERVED._done
    try:
        reply = pb.Reply.FromString(SERVED._answer(data, holder, Context()))
    except (Aborted, StreamError):
        assert SERVED._done == before
    else:
        assert reply.sequence == pb.Request.FromString(data).sequence == SERVED._done
    SERVED._done, SERVED._last = 0, b""


def greet_once(data):
    """Let the worker read a first request: a welcome, or a refusal that leaves it as it was."""
    with suppress(DecodeError):
        request = pb.Request.FromString(data)
        SERVED._holder, before = None, SERVED._session
        try:
            reply = pb.Reply.FromString(SERVED._welcome(request, object(), Context()))
        except Aborted:
            assert SERVED._session == before
        else:
            assert reply.welcome.session == SERVED._session
    SERVED._holder = None


class Script:
    """A stream on which an answer comes, and then no other."""

    def __init__(self, data):
        self._answers = [data]

    def receive(self, seconds):
        """Return the answer once."""
        if not self._answers:
            raise TimeoutError
        return self._answers.pop()

    def close(self):
        """Do nothing."""


def receive_once(data):
    """Let the learner take an answer: one to its request, or an error of rlox."""
    link = Link("127.0.0.1:1", pb.Hello(), Credentials())
    call = Script(data)
    link._sent, link._call = 1, call
    link.connect = no_connection
    with suppress(RloxError):
        reply = link.receive(1.0)
        assert reply.sequence == 1
        assert reply.WhichOneof("answer") != "failure"


def no_connection(seconds):
    """Stand for a worker that cannot be reached."""
    raise WorkerLostError(f"not in {seconds:g} s")


def connect_once(data):
    """Let the learner read a welcome: envs whose spaces are known, or an error of rlox."""
    try:
        welcome = pb.Welcome.FromString(data)
    except DecodeError:
        return
    pool = RemoteEnvPool(["127.0.0.1:1"])
    (link,) = pool._links
    some = link
    some._greet = lambda _: welcome
    with suppress(RloxError):
        assert pool.n_envs == welcome.n_envs >= 1
        assert pool.action_space is not None


def describe_once(text):
    """Let the learner read a space: a space, or an error of rlox."""
    with suppress(RloxError):
        space_to_json(space_from_json(text))


def decode_once(pool, data):
    """Let the learner decode a step's answer: rows of the spaces' shapes, or an error of rlox."""
    (link,) = pool._links
    some = link
    stream, some._sent, some._call = link._call, 1, Script(data)
    connect, some.connect = link.connect, no_connection
    with suppress(RloxError):
        step, _ = link.receive(1.0, link.codec.decode_outcome)
        assert step["obs"].shape == step["final_obs"].shape == (2, 4)
    some._call, some.connect = stream, connect


@pytest.fixture(name="pool", scope="module")
def fixture_pool():
    """Return a pool that was connected once."""
    served = EnvWorker(make_vec_env("CartPole-v1", n_envs=2), "CartPole-v1", "127.0.0.1:0")
    served.start()
    pool = RemoteEnvPool([f"127.0.0.1:{served.port}"])
    pool.connect()
    yield pool
    pool.close()
    served.stop(grace=0.1)


def test_deep_and_endless_spaces_are_refused():
    """Nested beyond the interpreter's stack, or larger than any memory."""
    code = '{"kind": "discrete", "n": 2, "start": 0, "dtype": "<i8,)"}'  # NumPy would parse it
    deep = '{"kind": "tuple", "spaces": [' * 50_000
    for text in (code, "[" * 100_000, deep, '{"kind": "multi_binary", "shape": [999999999999]}'):
        describe_once(text)


def test_the_decoders_stand_mutations(pool, record_property):
    """Random changes of true messages and of none, some hundreds or for as long as asked for."""
    rounds = 0
    rng, end = random.Random(0), time.monotonic() + FUZZ_SECONDS
    array = pb.Array(name="physics", dtype="<f8", shape=[2, 2], data=bytes(32))
    state = pb.EnvState(arrays=[array]).SerializeToString()
    calls = [
        pb.Request(sequence=1, reset=pb.Reset(seeds=[1, 2])),
        pb.Request(sequence=1, step=pb.Step(actions=[bytes(16)])),
        pb.Request(sequence=1, load=pb.Load(size=len(state), data=state)),
        pb.Request(sequence=1, save=pb.Save(offset=3)),
    ]
    outcome = pb.Reply(sequence=1, outcome=pb.Outcome(
        next=pb.Observations(obs=[bytes(32)]), rewards=bytes(16), terminated=b"\1\0",
        truncated=bytes(2), ended=[0], final_obs=[bytes(16)],
    ))  # fmt: skip
    space = space_to_json(make_vec_env("CartPole-v1", n_envs=1).observation_space)
    hello = pb.Request(hello=pb.Hello(
        protocol_version=PROTOCOL_VERSION, library_version=rlox.__version__, learner="a",
    ))  # fmt: skip
    welcome = pb.Welcome(session="a", n_envs=2, observation_space=space, action_space=space)
    failure = pb.Reply(sequence=1, failure=pb.Failure(kind="a", message="b", traceback="c"))
    while time.monotonic() < end or rounds < 100:
        for message in calls:
            answer_once(mutate(message.SerializeToString(), rng))
        for once, data in (
            (answer_once, b""), (greet_once, hello.SerializeToString()),
            (connect_once, welcome.SerializeToString()),
            (receive_once, failure.SerializeToString()),
            (partial(decode_once, pool), outcome.SerializeToString()),
        ):  # fmt: skip
            once(mutate(data, rng))
        describe_once(mutate(space.encode(), rng).decode("utf-8", "replace"))
        rounds += 1
    record_property("mutated messages", 10 * rounds)


def mutate(data, rng):
    """Return bytes with some changed, left out or put in."""
    changed = bytearray(data or rng.randbytes(rng.randrange(300)))
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(changed) + 1)
        changed[at : at + rng.randrange(4)] = rng.randbytes(rng.randrange(4))
    return bytes(changed)


def test_the_size_of_answers_is_bounded_by_the_spaces():
    """A worker that claims huge spaces or numbers of envs is refused before anything is held."""
    link = Link("127.0.0.1:1", pb.Hello(library_version=rlox.__version__), Credentials())
    nested = json.dumps(
        {"kind": "multi_discrete", "nvec": [[2**62, 1], [1, 1]], "start": [[0, 0], [0, 0]]}
    )
    small = json.dumps({"kind": "discrete", "n": 2, "start": 0})
    bounded = link._largest_answer(
        pb.Welcome(n_envs=2, observation_space=small, action_space=nested)
    )
    assert bounded < 1 << 23
    endless = json.dumps({"kind": "multi_binary", "shape": [1 << 27]})
    with pytest.raises(RloxError, match=r"gRPC takes < 2 GiB"):
        link._largest_answer(
            pb.Welcome(n_envs=1 << 16, observation_space=small, action_space=endless)
        )
    for count in (0, 1 << 31):
        with pytest.raises(RloxError, match="says it has"):
            link._largest_answer(
                pb.Welcome(n_envs=count, observation_space=small, action_space=small)
            )
