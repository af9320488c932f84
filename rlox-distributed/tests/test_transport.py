"""Streams of bytes in Rust: with grpcio's client and server, and with each other."""

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from rlox.errors import EnvError
from rlox_distributed._transport import ClientStream, Server, ServerStream, StreamError
from rlox_distributed.link import PASSING, Link
from rlox_distributed.protocol import workers_pb2 as pb
from rlox_distributed.security import Credentials

SERVICE = "rlox.distributed.v1.EnvWorker"
LARGEST = 64 << 20
GUARD = 120.0
"""Seconds after which what should have come is a failure."""


def echo(stream):
    """Echo each request; some words are commands."""
    request = stream.receive(GUARD)
    while request is not None:
        if request.startswith(b"abort "):
            code, _, details = request[6:].decode().partition(" ")
            stream.abort(code, details)
        if request == b"raise":
            raise ZeroDivisionError("the wheel came off")
        if request == b"return":
            return
        request = stream.exchange(request)


@contextmanager
def serving(
    handler: Callable[[ServerStream], object] = echo, address: str = "127.0.0.1:0", **options: Any
) -> Iterator[Server]:
    """Serve in this process."""
    given = {"largest": LARGEST, "most_streams": 4, **options}
    server = Server(address, handler, **given)
    server.start()
    try:
        yield server
    finally:
        server.stop(0.1)


def connect(server, **options):
    """Open a stream to a server of this machine."""
    port = server if isinstance(server, int) else server.port
    given = {"largest": LARGEST, "seconds": GUARD, **options}
    return ClientStream(f"127.0.0.1:{port}", **given)


def status(stream):
    """Return how a stream ends."""
    with pytest.raises(StreamError) as caught:
        stream.receive(GUARD)
    code, details = caught.value.args
    return code, details


def ending(stream):
    """Return the code that ends a stream that should echo; empty if it echoes."""
    try:
        stream.send(b"x")
        answer = stream.receive(GUARD)
    except StreamError as error:
        return str(error.args[0])
    return "" if answer == b"x" else f"another answer: {answer!r}"


def reach(server, **options):
    """Like :func:`ending`, also if there is no connection."""
    try:
        stream = connect(server, **options)
    except StreamError as error:
        return str(error.args[0])
    return ending(stream)


@pytest.mark.parametrize("size", [0, 70_000, 20_000_000])
def test_messages_come_back_as_they_were(size):
    """For any number of frames and windows, one after the other and several at once."""
    message = bytes(range(256)) * (size // 256 + 1)
    message = message[:size]
    with serving() as server:
        stream = connect(server)
        for _ in range(2):
            stream.send(message)
            assert stream.receive(GUARD) == message
        stream.send(b"one")
        stream.send(b"two")
        assert [stream.receive(GUARD), stream.receive(GUARD)] == [b"one", b"two"]
        stream.end()
        assert stream.receive(GUARD) is None
        stream.close()


@pytest.mark.parametrize("details", ["", "100 % of 'é'\n\U0001f980", "x" * 1500])
def test_a_status_arrives_as_it_was_given(details):
    """As a stream's first answer and after others; grpcio reads the same."""
    with serving() as server:
        for before in (0, 2):
            stream = connect(server)
            for _ in range(before):
                stream.send(b"x")
                assert stream.receive(GUARD) == b"x"
            stream.send(f"abort ABORTED {details}".encode())
            assert status(stream) == ("ABORTED", details)
            assert status(stream) == ("ABORTED", details), "it is kept"
            with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                requests = [b"x"] * before + [f"abort ABORTED {details}".encode()]
                call = channel.stream_stream(f"/{SERVICE}/Session")(iter(requests), timeout=GUARD)
                answers = []
                with pytest.raises(grpc.RpcError) as caught:
                    answers.extend(call)
                found = (caught.value.code(), caught.value.details())
                assert found == (grpc.StatusCode.ABORTED, details)


def test_a_handler_that_raises_or_returns_ends_the_stream(recwarn, monkeypatch):
    """With a status that names the error, or cleanly."""
    seen = []
    monkeypatch.setattr("sys.unraisablehook", seen.append)
    with serving() as server:
        stream = connect(server)
        stream.send(b"raise")
        assert status(stream) == (
            "UNKNOWN", "the worker failed: ZeroDivisionError: the wheel came off"
        )  # fmt: skip
        assert seen[0].exc_type is ZeroDivisionError
        stream = connect(server)
        stream.send(b"return")
        assert stream.receive(GUARD) is None


def test_messages_that_are_too_large_are_refused():
    """By either side, before they have arrived."""
    with serving(largest=100) as server:
        stream = connect(server)
        stream.send(bytes(100))
        assert stream.receive(GUARD) == bytes(100)
        stream.send(bytes(101))
        code, details = status(stream)
        assert code == "OUT_OF_RANGE"
        assert "found 101 bytes, the limit is: 100" in details
        stream = connect(server, largest=10)
        stream.send(bytes(11))
        assert status(stream)[0] == "OUT_OF_RANGE"


def test_a_wait_ends_at_its_deadline_and_may_be_repeated():
    """No message is lost."""
    goes_on = threading.Event()

    def slow(stream):
        request = stream.receive(GUARD)
        goes_on.wait(GUARD)
        stream.exchange(request)

    with serving(slow) as server:
        stream = connect(server)
        stream.send(b"x")
        begun = time.monotonic()
        for seconds in (0.0, 0.2, -1.0, float("nan")):
            with pytest.raises(TimeoutError):
                stream.receive(seconds)
        assert time.monotonic() - begun >= 0.2
        goes_on.set()
        assert stream.receive(GUARD) == b"x"
        stream.close()


def test_a_stream_that_sends_nothing_is_ended():
    """After the handler's time limit."""
    with serving(lambda stream: stream.receive(0.1)) as server:
        assert status(connect(server))[0] == "CANCELLED"


def test_closing_ends_a_wait_of_another_thread():
    """And all later waits."""
    with serving() as server:
        stream = connect(server)
        threading.Timer(0.2, stream.close).start()
        assert status(stream)[0] == "CANCELLED"
        assert status(stream)[0] == "CANCELLED"
        with pytest.raises(StreamError):
            stream.send(b"x")
        stream.close()


def test_a_handler_notices_that_its_learner_has_gone():
    """By a close, without waiting for a ping."""
    gone = threading.Event()

    def watch(stream):
        try:
            stream.exchange(stream.receive(GUARD) or b"")
        except StreamError:
            gone.set()

    with serving(watch) as server:
        stream = connect(server)
        stream.send(b"x")
        assert stream.receive(GUARD) == b"x"
        stream.close()
        assert gone.wait(GUARD)


@pytest.fixture
def interrupts():
    """Raise KeyboardInterrupt at SIGINT, which a shell's '&' ignores."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_a_signal_ends_a_wait():
    """As Ctrl-C does."""
    with serving() as server:
        stream = connect(server)
        main = threading.get_ident()
        threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            stream.receive(GUARD)


def listens(port):
    """Whether connections to a port of this machine are accepted."""
    with socket.socket() as stranger:
        return stranger.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_has_streams_of_its_own():
    """The parent's streams continue."""
    with serving() as server:
        stream = connect(server)
        assert ending(stream) == ""
        child = os.fork()
        if not child:
            os._exit(0 if ending(connect(server)) == "" else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert ending(stream) == ""


def test_a_server_that_is_dropped_closes_its_connections():
    """And its port is free again."""
    server = Server("127.0.0.1:0", echo, largest=9, most_streams=1)
    server.start()
    stream, port = connect(server), server.port
    assert ending(stream) == ""
    del server
    with suppress(StreamError):
        assert stream.receive(GUARD) is None
    end = time.monotonic() + GUARD
    while listens(port):
        assert time.monotonic() < end
        time.sleep(0.01)
    with serving(address=f"127.0.0.1:{port}") as again:
        assert ending(connect(again)) == ""


def test_stopping_lets_the_request_under_way_end():
    """Its answer arrives, the stream ends cleanly, and new ones are refused."""
    entered, opened = threading.Event(), threading.Semaphore(0)

    def slow(stream):
        opened.release()
        request = stream.receive(GUARD)
        while request is not None:
            entered.set()
            time.sleep(0.3)
            request = stream.exchange(request)

    with serving(slow) as server:
        stream, idle = connect(server), connect(server)
        stream.send(b"x")
        assert entered.wait(GUARD)
        assert all(opened.acquire(timeout=GUARD) for _ in (stream, idle))
        begun = time.monotonic()
        server.stop(GUARD)
        assert time.monotonic() - begun < GUARD / 2
        assert stream.receive(GUARD) == b"x"
        assert stream.receive(GUARD) is None
        assert idle.receive(GUARD) is None
        with pytest.raises(StreamError) as caught:
            connect(server, seconds=1.0)
        assert caught.value.args[0] == "UNAVAILABLE"


def test_streams_beyond_their_number_are_refused():
    """Until one of the others ends."""
    with serving(most_streams=2) as server:
        kept = [connect(server) for _ in range(2)]
        for stream in kept:
            stream.send(b"x")
            assert stream.receive(GUARD) == b"x"
        assert status(connect(server))[0] == "RESOURCE_EXHAUSTED"
        kept[0].end()
        assert kept[0].receive(GUARD) is None
        end = time.monotonic() + GUARD
        while (code := ending(connect(server))) != "":  # until the other thread has ended
            assert code == "RESOURCE_EXHAUSTED"
            assert time.monotonic() < end


def test_tokens_are_compared():
    """Wrong, partial and missing tokens are refused before any handler is called."""
    called = []

    def count(stream):
        called.append(1)
        echo(stream)

    with serving(count, token="a secret") as server:
        for wrong in (None, "", "a secre", "a secret ", "A secret", "a secret2"):
            assert status(connect(server, token=wrong)) == (
                "UNAUTHENTICATED", "the token is wrong or missing"
            )  # fmt: skip
        assert not called
        stream = connect(server, token="a secret")
        stream.send(b"x")
        assert stream.receive(GUARD) == b"x"


def test_health_is_answered_while_a_handler_is_busy():
    """For the service and the server; others are unknown. A watch sees the end."""
    entered, goes_on = threading.Event(), threading.Event()

    def busy(stream):
        stream.receive(GUARD)
        entered.set()
        goes_on.wait(GUARD)

    with serving(busy) as server:
        stream = connect(server)
        stream.send(b"x")
        assert entered.wait(GUARD)
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for name in (SERVICE, ""):
                request = health_pb2.HealthCheckRequest(service=name)
                assert stub.Check(request, timeout=GUARD).status == 1
            with pytest.raises(grpc.RpcError) as caught:
                stub.Check(health_pb2.HealthCheckRequest(service="other"), timeout=GUARD)
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND
            watched = stub.Watch(health_pb2.HealthCheckRequest(service=SERVICE), timeout=GUARD)
            assert next(watched).status == 1
            stopping = threading.Thread(target=server.stop, args=(GUARD,))
            stopping.start()
            assert next(watched).status == 2
            goes_on.set()
            stopping.join(GUARD)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NO_SETTINGS = b"\0\0\0\4\0\0\0\0\0"
ACKNOWLEDGED = b"\0\0\0\4\1\0\0\0\0"
PING = 6
"""The type of HTTP/2's frames that ask whether the other side is there."""


def frame_types(stranger, before=b""):
    """Return the types of received HTTP/2 frames, until the connection is closed."""
    with stranger.makefile("rb") as file, suppress(ConnectionError):
        assert file.read(len(before)) == before
        while len(head := file.read(9)) == 9:
            file.read(int.from_bytes(head[:3], "big"))
            yield head[3]


def test_a_learner_that_says_nothing_more_is_hung_up_on():
    """After one unanswered ping."""
    with (
        serving(ping_every=0.1, ping_patience=0.1) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=GUARD) as stranger,
    ):
        stranger.sendall(PREFACE + NO_SETTINGS + ACKNOWLEDGED)
        assert list(frame_types(stranger)).count(PING) == 1


def test_a_worker_that_says_nothing_more_is_hung_up_on():
    """The stream breaks with a status after which another attempt may succeed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        asked = []

        def greet():
            accepted = listener.accept()[0]
            with accepted:
                accepted.sendall(NO_SETTINGS + ACKNOWLEDGED)
                asked.extend(frame_types(accepted, PREFACE))

        silent = threading.Thread(target=greet)
        silent.start()
        stream = connect(listener.getsockname()[1], ping_every=0.1, ping_patience=0.1)
        assert status(stream)[0] in PASSING
        silent.join(GUARD)
        assert asked.count(PING) == 1


def test_those_who_answer_pings_stay():
    """Through any silence; later messages arrive."""
    with serving(ping_every=0.05, ping_patience=GUARD, unused=0.2) as server:
        stream = connect(server, ping_every=0.05, ping_patience=GUARD)
        assert ending(stream) == ""
        with pytest.raises(TimeoutError):
            stream.receive(0.5)
        assert ending(stream) == ""


def test_connections_that_have_no_stream_are_closed():
    """Without pings before that."""
    with (
        serving(unused=0.1) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=GUARD) as stranger,
    ):
        stranger.sendall(PREFACE + NO_SETTINGS + ACKNOWLEDGED)
        assert PING not in list(frame_types(stranger))


def openssl(*arguments):
    """Run openssl."""
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def make_certificates(folder):
    """Write a CA, a certificate of this machine that it signed, and two that signed themselves.

    The first of those, ``self``, is a CA's, and ``alone`` is not. Also ``own`` and ``alone`` after
    their time, and a certificate of another machine.
    """
    key = ["-newkey", "rsa:2048", "-nodes"]
    names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
    ca, own, alone, self_signed, elsewhere = (
        str(folder / name) for name in ("ca", "own", "alone", "self", "elsewhere")
    )
    openssl("req", "-x509", *key, "-days", "2", "-subj", "/CN=ca", "-keyout", f"{ca}.key",
            "-out", f"{ca}.pem")  # fmt: skip
    for name, alternative in (
        (own, names), (alone, names), (elsewhere, "subjectAltName=DNS:elsewhere.example")
    ):  # fmt: skip
        openssl("req", *key, "-subj", "/CN=own", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        Path(f"{name}.ext").write_text(alternative, "ascii")
        signer = ["-signkey", f"{name}.key"] if name == alone else [
            "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial"
        ]  # fmt: skip
        for days, kind in (("2", ""), ("-1", "-past")):
            openssl("x509", "-req", "-in", f"{name}.csr", *signer, "-days", days,
                    "-extfile", f"{name}.ext", "-out", f"{name}{kind}.pem")  # fmt: skip
    openssl("req", "-x509", *key, "-days", "2", "-subj", "/CN=self", "-addext", names,
            "-keyout", f"{self_signed}.key", "-out", f"{self_signed}.pem")  # fmt: skip


@pytest.fixture(name="pem", scope="module")
def fixture_pem(tmp_path_factory):
    """Return a function that reads a certificate or a key."""
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return lambda name: (folder / name).read_bytes()


def test_a_learner_trusts_what_its_ca_signed_or_has(pem):
    """For the worker's own name; not for another CA or name, and never without TLS."""
    for name, trusted in (("own", "ca.pem"), ("self", "self.pem"), ("alone", "alone.pem")):
        with serving(cert=pem(f"{name}.pem"), key=pem(f"{name}.key")) as server:
            assert reach(server, ca=pem(trusted)) == ""
            wrong = "self.pem" if name == "own" else "ca.pem"
            with pytest.raises(StreamError, match="certificate"):
                connect(server, ca=pem(wrong))
            assert reach(server) in PASSING
    with (
        serving(cert=pem("elsewhere.pem"), key=pem("elsewhere.key")) as server,
        pytest.raises(StreamError, match="not valid for name"),
    ):
        connect(server, ca=pem("ca.pem"))


def test_certificates_after_their_time_are_refused(pem):
    """On both sides, both CA-signed and self-signed ones."""
    own = {"cert": pem("own.pem"), "key": pem("own.key")}
    for name, trusted in (("own", "ca.pem"), ("alone", "alone-past.pem")):
        past = {"cert": pem(f"{name}-past.pem"), "key": pem(f"{name}.key")}
        with serving(**past) as server, pytest.raises(StreamError, match="certificate: Expired"):
            connect(server, ca=pem(trusted))
        with serving(ca=pem(trusted), **own) as server:
            assert reach(server, ca=pem("ca.pem"), **past) in PASSING


def test_a_certificate_that_cannot_heal_is_not_tried_again(pem, tmp_path):
    """The learner gets the error at once, not after all attempts to connect."""
    (tmp_path / "ca.pem").write_bytes(pem("ca.pem"))
    credentials = Credentials(tls_ca=tmp_path / "ca.pem")
    with serving(cert=pem("self.pem"), key=pem("self.key")) as server:
        link = Link(f"127.0.0.1:{server.port}", pb.Hello(), credentials)
        with pytest.raises(EnvError, match=r"no TLS with the worker .* certificate"):
            link.connect(GUARD)


def test_a_worker_with_a_ca_asks_for_certificates(pem):
    """From learners: signed by it or itself; also from grpcio's client."""
    shown = {"cert": pem("own.pem"), "key": pem("own.key")}
    for trusted, good, bad in (("ca.pem", "own", "self"), ("alone.pem", "alone", "own")):
        with serving(ca=pem(trusted), **shown) as server:
            for name in (good, bad, None):
                mine = {"cert": pem(f"{name}.pem"), "key": pem(f"{name}.key")} if name else {}
                expected = [""] if name == good else PASSING
                assert reach(server, ca=pem("ca.pem"), **mine) in expected
            credentials = grpc.ssl_channel_credentials(
                pem("ca.pem"), pem(f"{good}.key"), pem(f"{good}.pem")
            )
            with grpc.secure_channel(f"127.0.0.1:{server.port}", credentials) as channel:
                call = channel.stream_stream(f"/{SERVICE}/Session")(iter([b"x"]), timeout=GUARD)
                assert list(call) == [b"x"]


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"ca": b"none"}, "tls_ca must hold certificates"),
        ({"cert": b"none", "key": b"none"}, "tls_cert must hold certificates"),
        ({"cert": b"none"}, "belong together"),
        ({"key": b"none"}, "belong together"),
    ],
    ids=str,
)
def test_files_that_hold_something_else_are_named(files, text):
    """And the error shows nothing of their content."""
    with pytest.raises(ValueError, match=text):
        ClientStream("127.0.0.1:1", largest=1, seconds=1.0, **{"ca": b"-", **files})
    if "cert" in files or "key" in files:
        with pytest.raises(ValueError, match=text):
            Server("127.0.0.1:0", echo, largest=1, most_streams=1, **files)


def test_a_worker_with_a_ca_and_no_certificate_is_refused(pem):
    """It would serve without TLS. Another certificate's key is refused too."""
    with pytest.raises(ValueError, match="give tls_cert and tls_key too"):
        Server("127.0.0.1:0", echo, largest=1, most_streams=1, ca=pem("ca.pem"))
    with pytest.raises(ValueError, match="do not fit each other"):
        Server("127.0.0.1:0", echo, largest=1, most_streams=1,
               cert=pem("own.pem"), key=pem("self.key"))  # fmt: skip


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this system has no such sockets")
def test_paths_are_served_too(tmp_path):
    """Sockets of only this machine."""
    with serving(address=f"unix:{tmp_path}/socket"):
        stream = ClientStream(f"unix:{tmp_path}/socket", largest=LARGEST, seconds=GUARD)
        assert ending(stream) == ""


@pytest.mark.parametrize("address", ["nowhere", "192.0.2.1:1"])
def test_what_cannot_be_bound_or_reached_is_refused(address):
    """With the system's reason."""
    with pytest.raises(OSError, match=r"."):
        Server(address, echo, largest=1, most_streams=1)
    with pytest.raises((StreamError, TimeoutError)):
        ClientStream(address, largest=1, seconds=0.3)
