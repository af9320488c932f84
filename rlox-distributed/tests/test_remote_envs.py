"""Envs of workers: the same steps as locally, faults, refusals, and messages."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import Any

import grpc
import numpy as np
import pytest
import rlox
from gymnasium import spaces
from rlox.envs.make import make_vec_env
from rlox.errors import ConfigError, EnvError, SpaceError, WorkerError, WorkerLostError
from rlox.protocols import VecEnv
from rlox_distributed.link import PROTOCOL_VERSION
from rlox_distributed.options import GrpcOptions
from rlox_distributed.pool import RemoteEnvPool
from rlox_distributed.protocol import workers_pb2 as pb
from rlox_distributed.security import Credentials, is_loopback
from rlox_distributed.spaces import space_from_json, space_to_json
from rlox_distributed.state import PIECE
from rlox_distributed.worker import EnvWorker


@pytest.fixture(name="serve")
def fixture_serve():
    """Return a function that serves envs until the end of the test."""
    workers = []

    def serve(env="CartPole-v1", n_envs=2, bind="127.0.0.1:0"):
        name = env if isinstance(env, str) else env.__name__
        made = env() if isinstance(env, type) and issubclass(env, Counter) else None
        worker = EnvWorker(made or make_vec_env(env, n_envs=n_envs), name, bind)
        worker.start()
        workers.append(worker)
        return worker

    yield serve
    for worker in workers:
        worker.stop(grace=0.1)


def address(worker):
    """Return a worker's address."""
    return f"127.0.0.1:{worker.port}"


def draw_actions(env, n_steps):
    """Return random actions."""
    space = env.action_space
    space.seed(1)
    return [np.stack([space.sample() for _ in range(env.n_envs)]) for _ in range(n_steps)]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_steps_equal_those_of_envs_here(serve, env_id):
    """Bit for bit, with two workers of different size, across ends of episodes."""
    pool = RemoteEnvPool([address(serve(env_id, 2)), address(serve(env_id, 3))])
    here = make_vec_env(env_id, n_envs=5)
    assert isinstance(pool, VecEnv)
    assert (pool.n_envs, pool.observation_space) == (5, here.observation_space)
    assert pool.action_space == here.action_space
    seeds = [3, 4, 5, 6, 7]
    np.testing.assert_array_equal(pool.reset_all(seeds), here.reset_all(seeds))
    for actions in draw_actions(here, 210):
        there, expected = pool.step_all(actions), here.step_all(actions)
        assert set(there) == set(expected)
        for key, value in expected.items():
            np.testing.assert_array_equal(there[key], value)
    pool.close()


class Counter:
    """Two envs that count in nested observations, mask actions, and end after four steps."""

    n_envs = 2
    observation_space: Any = spaces.Dict(
        [("image", spaces.Box(0, 255, (3, 2), np.uint8)), ("count", spaces.Discrete(100))]
    )
    action_space: Any = spaces.Discrete(3)
    raises: BaseException | None = None

    def __init__(self):
        self.count, self.calls = 0, 0
        self.goes_on = threading.Event()
        self.goes_on.set()

    def reset_all(self, seed=None):
        """Begin at 0."""
        self.count = 0
        return self._obs(0)

    def step_all(self, actions):
        """Count."""
        self.calls += 1
        self.goes_on.wait()
        if self.raises is not None:
            raise self.raises
        self.count += 1
        ended = self.count == 4
        final = self._obs(self.count)
        self.count %= 4
        return {
            "obs": self._obs(self.count),
            "rewards": np.ones(2),
            "terminated": np.zeros(2, bool),
            "truncated": np.array([ended, ended]),
            "final_obs": final,
        }

    def action_masks(self):
        """Return masks that depend on the count."""
        return np.array([[True, self.count > 0, False]] * 2)

    def _obs(self, count):
        return {
            "count": np.full(2, count, np.int64),
            "image": np.full((2, 3, 2), 7 * count, np.uint8),
        }

    def close(self):
        """Do nothing."""


def test_nested_observations_and_masks_go_over_the_wire(serve):
    """With the true final observations at the ends of episodes."""
    pool = RemoteEnvPool([address(serve(Counter))], env_id="Counter")
    assert pool.reset_all()["image"].shape == (2, 3, 2)
    masks = pool.action_masks()
    assert masks.tolist() == [[True, False, False]] * 2
    for _ in range(4):
        step = pool.step_all(np.zeros(2, np.int64))
    assert step["obs"]["count"].tolist() == [0, 0]
    assert step["final_obs"]["count"].tolist() == [4, 4]
    assert step["final_obs"]["image"].max() == 28
    pool.close()


@pytest.mark.parametrize(
    ("masks", "text"), [(None, "none"), (np.ones((2, 4), bool), "masks of 4")], ids=["none", "4"]
)
def test_masks_of_several_sizes_are_refused(serve, masks, text):
    """The error names every worker and its masks."""
    workers = [serve(Counter), serve(Counter)]
    env = workers[1]._env
    env.action_masks = lambda: masks
    addresses = [address(worker) for worker in workers]
    pool = RemoteEnvPool(addresses, env_id="Counter")
    with pytest.raises(EnvError, match=f"{addresses[0]} masks of 3, {addresses[1]} {text}; start"):
        pool.reset_all()
    pool.close()


def test_a_broken_stream_is_opened_again_and_nothing_is_stepped_twice(serve):
    """A request whose answer was lost is answered from memory."""
    worker = serve(Counter)
    pool = RemoteEnvPool([address(worker)])
    pool.reset_all()
    env = worker._env
    link = pool._links[0]
    for step in range(1, 8):
        if step % 2:
            link._call.close()  # before the request
        else:
            send = link._call.send

            def send_and_break(data, send=send, call=link._call):
                send(data)
                call.receive(120)  # the step is done, its answer lost
                call.close()

            link._call.send = send_and_break
        assert pool.step_all(np.zeros(2, np.int64))["obs"]["count"].tolist() == [step % 4] * 2
        assert env.calls == step
    pool.close()


def test_envs_of_a_restarted_worker_are_lost(serve):
    """They begin a new episode; the other worker's continue."""
    one, other = serve("CartPole-v1", 1), serve("CartPole-v1", 2)
    pool = RemoteEnvPool([address(one), address(other)])
    before = pool.reset_all(3)
    other.stop(grace=0.1)
    serve("CartPole-v1", 2, address(other))
    step = pool.step_all(np.zeros(3, np.int64))
    assert step["lost"].tolist() == [False, True, True]
    assert step["truncated"].tolist() == [False, True, True]
    assert step["rewards"].tolist() == [1, 0, 0]
    np.testing.assert_array_equal(step["final_obs"][1:], before[1:])
    assert not np.array_equal(step["obs"][1:], before[1:])
    assert "lost" not in pool.step_all(np.zeros(3, np.int64))
    pool.close()


class Restorable(Counter):
    """Counting envs with a large state that can be saved."""

    def state(self):
        """Return the count, and numbers that take several pieces."""
        return {"count": np.array(self.count), "more": np.arange(20_000), "flag": np.array([True])}

    def set_state(self, state):
        """Go on from it."""
        assert set(state) == {"count", "more", "flag"}
        assert np.array_equal(state["more"], np.arange(20_000))
        assert state["flag"].dtype == np.bool_
        self.count = int(state["count"])


def test_a_state_goes_in_pieces_through_streams_that_break(serve):
    """The stream breaks at every second piece, in both directions."""
    pools = [RemoteEnvPool([address(serve(Restorable))]) for _ in range(2)]
    for pool in pools:
        pool.reset_all(0)
        (link,) = pool._links

        def send(request, link=link, send=link.send):
            if link._sent % 2 and link._call is not None:
                link._call.close()
            send(request)

        link.send = send
    pools[0].step_all(np.zeros(2, np.int64))
    state = pools[0].state()
    assert len(state["worker 0"]) > 4 * PIECE
    pools[1].set_state(state)
    assert pools[1].action_masks() is not None
    np.testing.assert_array_equal(pools[1].action_masks(), pools[0].action_masks())
    for pool in pools:
        assert pool.step_all(np.zeros(2, np.int64))["obs"]["count"].tolist() == [2, 2]
        pool.close()


def test_a_worker_that_is_restarted_while_its_state_is_asked_for(serve):
    """The state is then empty, and the next step reports lost envs."""
    worker = serve(Restorable)
    pool = RemoteEnvPool([address(worker)])
    pool.reset_all(0)
    state = pool.state()
    worker.stop(grace=0.1)
    serve(Restorable, bind=address(worker))
    assert pool.state() == pool.state() == {}
    assert pool.step_all(np.zeros(2, np.int64))["lost"].tolist() == [True, True]
    assert "lost" not in pool.step_all(np.zeros(2, np.int64))
    assert pool.state()
    pool.set_state(state)
    assert pool.step_all(np.zeros(2, np.int64))["obs"]["count"].tolist() == [1, 1]
    with pytest.raises(EnvError, match=r"expected the state of envs of workers, \[2\]"):
        pool.set_state({"physics": np.zeros(2)})
    pool.close()


@pytest.mark.parametrize(
    "piece",
    [pb.Load(size=9, offset=3, data=b"abc"), pb.Load(size=1 << 40, data=b"abc"),
     pb.Load(size=3), pb.Load(size=3, data=b"abc")],
    ids=["not the next", "endless", "empty", "no state"],
)  # fmt: skip
def test_pieces_of_no_state_are_refused(serve, piece):
    """Before they reach the env."""
    worker = serve(Restorable)
    with pytest.raises(grpc.RpcError) as caught:
        raw(worker, hello(), pb.Request(sequence=1, load=piece).SerializeToString())
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "saved",
    [pb.Saved(size=1 << 40, data=b"abc"), pb.Saved(size=9), pb.Saved(size=2, data=b"abc")],
    ids=["endless", "empty", "too much"],
)
def test_a_worker_with_no_honest_state_is_refused(serve, saved):
    """Before memory is allocated for it."""
    pool = RemoteEnvPool([address(serve(Restorable))])
    pool.reset_all(0)
    (link,) = pool._links
    link.receive = lambda _: pb.Reply(saved=saved)
    with pytest.raises(EnvError, match=r"sent .* bytes of a state of"):
        pool.state()
    pool.close()


@pytest.mark.parametrize("kind", [ZeroDivisionError, SystemExit])
def test_an_env_that_raises_is_stepped_once(serve, kind):
    """The learner gets the traceback and does not repeat the request; the worker continues."""
    worker = serve(Counter)
    pool = RemoteEnvPool([address(worker)], timeout=5.0)
    pool.reset_all()
    env = worker._env
    env.raises = kind("no licence")
    with pytest.raises(WorkerError, match=f"raised {kind.__name__}: no licence\\nTraceback") as got:
        pool.step_all(np.zeros(2, np.int64))
    assert "in step_all" in str(got.value)
    assert env.calls == 1
    env.raises = None
    pool.step_all(np.zeros(2, np.int64))
    assert env.calls == 2
    pool.close()


def test_a_worker_is_named_once(serve):
    """Otherwise two links would step its envs, under one address or two."""
    where = address(serve())
    with pytest.raises(EnvError, match=f"each worker once, got '{where}' 2 times"):
        RemoteEnvPool([where, where])
    alias = where.replace("127.0.0.1", "localhost")
    pool = RemoteEnvPool([where, alias])
    with pytest.raises(EnvError, match=f"{where} and {alias} are the same worker"):
        pool.connect()
    pool.close()
    with pytest.raises(ConfigError, match="worker_addresses: expected each worker once"):
        GrpcOptions(worker_addresses=[where, where])


@pytest.mark.parametrize(
    ("seed", "text"),
    [
        ([1, 2], "seed has 2 seeds for 4 envs"),
        (-1, "seed must be integers from 0 to .*, got -1"),
        ([0, 1, 2.5, 3], "got 2.5"),
    ],
    ids=str,
)
def test_wrong_seeds_are_refused_before_they_are_sent(serve, seed, text):
    """So that the pool stays usable."""
    pool = RemoteEnvPool([address(serve(n_envs=4))])
    with pytest.raises(EnvError, match=text):
        pool.reset_all(seed)
    assert pool.reset_all(3).shape == (4, 4)
    pool.close()


def test_calls_in_the_wrong_order_are_refused(serve):
    """A step needs a reset, a closed pool takes neither, and its worker is free again."""
    where = address(serve())
    pool, idle = RemoteEnvPool([where]), RemoteEnvPool([where])
    actions = np.zeros(2, np.int64)
    with pytest.raises(EnvError, match="step_all was called before reset_all"):
        pool.step_all(actions)
    pool.reset_all(0)
    assert pool.step_all(actions)["rewards"].tolist() == [1, 1]
    pool.close()
    idle.close()
    for call in (lambda: pool.step_all(actions), pool.reset_all, idle.connect):
        with pytest.raises(EnvError, match="the pool is closed"):
            call()


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("127.0.0.1", "'127.0.0.1' must be host:port; the port is missing"),
        (":50051", "the host is missing"),
        ("127.0.0.1:99999", "a number from 1 to 65535, got '99999'"),
        ("127.0.0.1:0", "a number from 1 to 65535, got '0'"),
    ],
)
def test_what_is_no_address_is_refused(where, text):
    """For the address, not for lack of TLS; port 0 can only be bound."""
    with pytest.raises(ConfigError, match=re.escape(text)):
        RemoteEnvPool([where])
    Credentials().require_for("127.0.0.1:0", serving=True)
    with pytest.raises(ConfigError, match="a number from 0 to 65535"):
        Credentials().require_for("127.0.0.1:65536", serving=True)


def test_a_worker_that_stalls_misses_its_deadline(serve):
    """The error names it and the seconds."""
    worker = serve(Counter)
    pool = RemoteEnvPool([address(worker)], timeout=0.5)
    pool.reset_all()
    env = worker._env
    env.goes_on.clear()
    with pytest.raises(WorkerLostError, match=r"127.0.0.1:\d+ has not answered in 0.5 s"):
        pool.step_all(np.zeros(2, np.int64))
    pool.close()
    env.goes_on.set()


def test_a_worker_that_is_not_there_is_named():
    """After the attempts that the timeout allows."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nothing listens
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        pool = RemoteEnvPool([where], reset_timeout=0.5)
        with pytest.raises(WorkerLostError, match=f"{where} cannot be reached in 0.5 s"):
            pool.connect()


def connect_once_free(pool):
    """Connect to a worker that may not have noticed yet that its last learner left."""
    deadline = time.monotonic() + 120
    connected = False
    while not connected:
        assert time.monotonic() < deadline
        with suppress(EnvError):
            pool.connect()
            connected = True
        time.sleep(0.01)


def test_a_second_learner_is_refused_until_the_first_has_gone(serve):
    """While the honest one continues."""
    worker = serve("CartPole-v1")
    first, second = (RemoteEnvPool([address(worker)], reset_timeout=120) for _ in range(2))
    first.reset_all(0)
    with pytest.raises(EnvError, match="refuses: another learner has this worker"):
        RemoteEnvPool([address(worker)], reset_timeout=0.5).connect()
    first.step_all(np.zeros(2, np.int64))
    first.close()
    connect_once_free(second)
    second.reset_all(0)
    second.close()


def test_another_env_is_refused(serve):
    """By the worker, or by the pool if workers differ."""
    with pytest.raises(EnvError, match="the worker has the env 'CartPole-v1'"):
        RemoteEnvPool([address(serve())], env_id="Acrobot-v1").connect()
    pool = RemoteEnvPool([address(serve()), address(serve("Pendulum-v1"))])
    with pytest.raises(EnvError, match="all workers must serve one env"):
        pool.connect()


def test_another_protocol_is_refused(serve, monkeypatch):
    """So is another version of the library."""
    where = address(serve())
    monkeypatch.setattr("rlox_distributed.pool.PROTOCOL_VERSION", 9)
    with pytest.raises(EnvError, match="the worker has the protocol version 3"):
        RemoteEnvPool([where]).connect()


def raw(worker, *requests):
    """Send raw requests and return the answers until the stream breaks."""
    with grpc.insecure_channel(address(worker)) as channel:
        method = channel.stream_stream("/rlox.distributed.v1.EnvWorker/Session")
        return list(method(iter(requests), timeout=120))


def hello(learner="stranger"):
    """Return a first request."""
    greeting = pb.Hello(
        protocol_version=PROTOCOL_VERSION, library_version=rlox.__version__, learner=learner
    )
    return pb.Request(hello=greeting).SerializeToString()


@pytest.mark.parametrize(
    ("requests", "code"),
    [
        ([b"\xff\xff\xff garbage"], grpc.StatusCode.INTERNAL),
        ([pb.Request(sequence=1).SerializeToString()], grpc.StatusCode.FAILED_PRECONDITION),
        ([hello(), pb.Request(sequence=1).SerializeToString()], grpc.StatusCode.INVALID_ARGUMENT),
        (
            [hello(), pb.Request(sequence=1, step=pb.Step(actions=[b"1"])).SerializeToString()],
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (
            [hello(), pb.Request(sequence=1, reset=pb.Reset(seeds=[1])).SerializeToString()],
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (
            [hello(), pb.Request(sequence=7, reset=pb.Reset()).SerializeToString()],
            grpc.StatusCode.FAILED_PRECONDITION,
        ),
        ([hello() + b"\0" * (1 << 20)], grpc.StatusCode.OUT_OF_RANGE),
    ],
    ids=["garbage", "no hello", "no call", "short", "seeds", "replayed", "oversized"],
)
def test_bad_requests_are_refused(serve, requests, code):
    """They do not affect an honest learner."""
    worker = serve()
    for _ in range(2):
        with pytest.raises(grpc.RpcError) as caught:
            raw(worker, *requests)
        assert caught.value.code() is code
    pool = RemoteEnvPool([address(worker)])
    connect_once_free(pool)
    pool.reset_all(0)
    pool.close()


def test_a_token_is_asked_for(serve, tmp_path, monkeypatch):
    """A wrong one is refused, and no message contains it; surrounding white space is ignored."""
    token = tmp_path / "token"
    token.write_text("a secret\n", encoding="utf-8")
    monkeypatch.setenv("RLOX_WORKER_TOKEN", " a secret\n")
    where = address(serve())
    monkeypatch.setenv("RLOX_WORKER_TOKEN", "another")
    with pytest.raises(EnvError, match="the token is wrong or missing") as caught:
        RemoteEnvPool([where]).connect()
    assert "secret" not in str(caught.value)
    pool = RemoteEnvPool([where], token_file=token)
    pool.connect()
    pool.close()


@pytest.mark.parametrize(
    "content", [b"s3cret\xff\xfe", b"s3cret\nsecond", b" \n", "geheım".encode()]
)
def test_what_is_no_token_is_refused_without_its_content(content, tmp_path, monkeypatch, caplog):
    """In a file and in the variable, before anything is sent; errors never contain it."""
    token = tmp_path / "token"
    token.write_bytes(content)
    monkeypatch.setenv("RLOX_WORKER_TOKEN", os.fsdecode(content))
    for file, where in ((token, "the token file"), (None, "the variable RLOX_WORKER_TOKEN")):
        with pytest.raises(ConfigError, match=f"{where}.* must hold one line of ASCII") as caught:
            RemoteEnvPool(["127.0.0.1:1"], token_file=file).connect()
        text = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + caplog.text
        assert "s3cret" not in text
        assert caught.value.__cause__ is None


@pytest.mark.parametrize("where", ["0.0.0.0:50051", "worker.example:50051", "[::]:50051"])
def test_open_addresses_need_tls_and_a_token(where):
    """For serving and for connecting; this machine's own addresses need neither."""
    assert not is_loopback(where)
    for serving in (True, False):
        with pytest.raises(ConfigError, match=r"needs TLS .*and a token"):
            Credentials().require_for(where, serving=serving)
    assert all(map(is_loopback, ("127.0.0.1:1", "localhost:1", "[::1]:1", "unix:/run/rlox")))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-np.inf, 3.5, (2, 3), np.float32),
        spaces.Discrete(5, start=-2),
        spaces.MultiDiscrete([2, 3], start=[1, 0]),
        spaces.MultiBinary([2, 2]),
        spaces.Dict([("b", spaces.Discrete(2)), ("a", spaces.Tuple([spaces.Box(0, 1, (1,))]))]),
    ],
    ids=str,
)
def test_spaces_come_back_from_json(space):
    """Bounds bit for bit, and keys in order, which is that of the sent leaves."""
    again = space_from_json(space_to_json(space))
    assert again == space
    assert repr(again) == repr(space)
    assert again.dtype == space.dtype


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"kind": "box", "low": 0, "high": [], "dtype": "O"}',
     '{"kind": "box", "low": {"dtype": "|u1", "shape": [9999999999], "data": "AA=="}, '
     '"high": 0, "dtype": "|u1"}',
     '{"kind": "box", "low": {"dtype": "O", "shape": [1], "data": "AAAAAAAAAAA="}, '
     '"high": 0, "dtype": "|u1"}',
     # infinities of float32, which no int32 has
     '{"kind": "box", "low": {"dtype": "<f4", "shape": [1], "data": "AACA/w=="}, '
     '"high": {"dtype": "<f4", "shape": [1], "data": "AACAfw=="}, "dtype": "<i4"}',
     '{"kind": "discrete", "n": 0, "start": 0}',
     '{"kind": "discrete", "n": 2, "start": 0, "dtype": "O"}',
     '{"kind": "multi_binary", "shape": [99999, 99999]}'],
)  # fmt: skip
def test_what_is_no_space_is_refused(text):
    """Without building anything large."""
    with pytest.raises(SpaceError, match="describes no space"):
        space_from_json(text)


def start_worker(*options):
    """Start ``rlox worker`` in a process; return it and its address."""
    command = [sys.executable, "-m", "rlox", "worker", "--env", "CartPole-v1", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    return process, line.split()[-1]


def test_the_command_serves_and_drains(tmp_path):
    """A worker is frozen, killed and restarted on its port; SIGTERM ends it cleanly."""
    process, where = start_worker("--n-envs", "2")
    pool = RemoteEnvPool([where], timeout=240)
    pool.reset_all(0)
    pool.step_all(np.zeros(2, np.int64))
    os.kill(process.pid, signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)  # until every thread of it has stopped
    started = []

    def kill_and_restart():
        time.sleep(0.5)  # into the step
        process.kill()
        process.wait()
        started.append(start_worker("--n-envs", "2", "--bind", where))

    restart = threading.Thread(target=kill_and_restart)
    restart.start()
    step = pool.step_all(np.zeros(2, np.int64))
    assert step["lost"].all()
    restart.join()
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    again, _ = started[0]
    again.terminate()
    assert again.wait(120) == 0
    again.stdout.close()
    pool.close()


def test_worker_needs_an_env_it_can_describe():
    """A space of an unsupported kind is refused before anything is served."""

    class Words(Counter):
        observation_space: Any = spaces.Sequence(spaces.Discrete(2))

    with pytest.raises(SpaceError):
        EnvWorker(Words(), "Words", "127.0.0.1:0")
