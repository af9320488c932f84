"""The token of workers: in no log, error, run folder, process list or ``repr``.

Learner and worker are processes of their own, as they are in use.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rlox
from rlox.envs.make import make_vec_env
from rlox.errors import EnvError, WorkerError
from rlox_distributed.options import GrpcOptions
from rlox_distributed.pool import RemoteEnvPool
from rlox_distributed.security import Credentials
from rlox_distributed.worker import EnvWorker

TOKEN, OTHER = "sentinel-of-the-token-5f2c", "sentinel-of-another-91ab"  # made up
COUNTING = Path(__file__).with_name("counting_worker.py")
FAIL = -1_000_001
"""The action at which counting envs raise."""
GUARD = 120.0
"""Seconds after which a process that should have come to something is a failure."""


@contextmanager
def running(command: list[str], log: Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that writes all its output to a file; it is killed if it still runs."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **variables},
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def wait_for_line(log: Path, process: subprocess.Popen[bytes]) -> str:
    """Return the first whole line that a process writes."""
    end = time.monotonic() + GUARD
    while b"\n" not in (content := log.read_bytes()):
        assert process.poll() is None, content
        assert time.monotonic() < end, content
        time.sleep(0.05)
    return content.decode().splitlines()[0]


def holds(folder: Path, text: str) -> bool:
    """Whether a file of a folder, or its name, has a text."""
    data = text.encode()
    for path in folder.rglob("*"):
        if data in str(path).encode() or (path.is_file() and data in path.read_bytes()):
            return True
    return False


def process_list() -> bytes:
    """Return the command lines of all processes, as ``ps`` reads them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes())
    return b"\n".join(found)


def variables_of(process: subprocess.Popen[bytes]) -> bytes:
    """Return the variables that a process was started with; its user alone may read them."""
    return Path(f"/proc/{process.pid}/environ").read_bytes()


@pytest.mark.parametrize("where", ["file", "variable"])
def test_no_process_shows_its_token(where: str, tmp_path: Path) -> None:
    """A worker and a learner that trains, saves and ends; then a learner with another token."""
    secret, wrong, run = (tmp_path / name for name in ("secret", "wrong", "run"))
    logs = tmp_path / "logs"
    logs.mkdir()
    secret.write_text(TOKEN, "utf-8")
    wrong.write_text(OTHER, "utf-8")
    given = [f"--token-file={secret}"] if where == "file" else []
    variables = {"RLOX_WORKER_TOKEN": TOKEN} if where == "variable" else {}
    command = [sys.executable, "-m", "rlox"]
    with ExitStack() as stack:
        worker = stack.enter_context(running(
            [*command, "worker", "--env=CartPole-v1", "--n-envs=2", *given], logs / "worker",
            **variables,
        ))  # fmt: skip
        address = wait_for_line(logs / "worker", worker).split()[-1]
        train = [
            *command, "train", "a2c", "--env=CartPole-v1", "--n-envs=2", "--n-steps=8",
            "--env-backend=grpc", f"--worker-addresses={address}",
        ]  # fmt: skip
        learner = stack.enter_context(running(
            [*train, *given, "--total-timesteps=100000000", "--checkpoint-freq=2048",
             f"--run-dir={run}"], logs / "learner", **variables,
        ))  # fmt: skip
        end = time.monotonic() + GUARD
        while not list(run.glob("checkpoints/step-*")):
            assert learner.poll() is None, (logs / "learner").read_text("utf-8")
            assert time.monotonic() < end
            time.sleep(0.05)
        processes = process_list()
        assert address.encode() in processes, "the learner's command line is among them"
        assert TOKEN.encode() not in processes
        if where == "file":
            assert TOKEN.encode() not in variables_of(worker) + variables_of(learner)
        learner.send_signal(signal.SIGINT)
        learner.wait(GUARD)
        stranger = stack.enter_context(running(
            [*train, f"--token-file={wrong}", f"--run-dir={tmp_path / 'refused'}"],
            logs / "stranger",
        ))  # fmt: skip
        assert stranger.wait(GUARD)
        worker.terminate()
        assert worker.wait(GUARD) == 0
    assert "the token is wrong or missing" in (logs / "stranger").read_text("utf-8")
    secret.unlink()
    wrong.unlink()
    assert holds(run / "checkpoints", "CartPole-v1"), "what checkpoints have is found"
    assert holds(run, address), "the run folder says where the workers were"
    for text in (TOKEN, OTHER):
        assert not holds(tmp_path, text), "a log or a file of the run has the token"


def test_no_error_has_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an env that raises at the worker, and of a refused learner; with their tracebacks."""
    log = tmp_path / "log"
    with running([sys.executable, str(COUNTING), "0"], log, RLOX_WORKER_TOKEN=TOKEN) as worker:
        address = f"127.0.0.1:{wait_for_line(log, worker)}"
        monkeypatch.setenv("RLOX_WORKER_TOKEN", OTHER)
        with pytest.raises(EnvError, match="the token is wrong or missing") as refused:
            RemoteEnvPool([address]).connect()
        monkeypatch.setenv("RLOX_WORKER_TOKEN", TOKEN)
        pool = RemoteEnvPool([address], timeout=GUARD)
        pool.reset_all(0)
        with pytest.raises(WorkerError, match="raised ZeroDivisionError") as raised:
            pool.step_all(np.array([1, FAIL]))
        shown = repr(pool) + repr(vars(pool)) + repr([vars(link) for link in pool._links])
        pool.close()
    errors = [*traceback.format_exception(refused.value), *traceback.format_exception(raised.value)]
    text = "".join(errors) + shown + log.read_text("utf-8")
    assert "ZeroDivisionError" in text
    assert TOKEN not in text
    assert OTHER not in text


def test_no_object_shows_the_token(tmp_path: Path) -> None:
    """Neither credentials and options, nor a worker, nor a config that names the file."""
    secret = tmp_path / "secret"
    secret.write_text(TOKEN, "utf-8")
    credentials = Credentials(token_file=secret)
    worker = EnvWorker(
        make_vec_env("CartPole-v1", n_envs=2), "CartPole-v1", "127.0.0.1:0", credentials
    )
    worker.start()
    options: dict[str, Any] = {
        "env_backend": "grpc", "worker_addresses": [f"127.0.0.1:{worker.port}"],
        "token_file": str(secret), "n_envs": 2,
    }  # fmt: skip
    with rlox.make("a2c", env="CartPole-v1", **options) as a2c:
        a2c.train(16)
        config = a2c.config
        shown = [
            repr(config), str(config.to_dict()), repr(a2c), repr(a2c.state_dict()),
            repr(credentials), repr(worker),
            repr(GrpcOptions(worker_addresses=options["worker_addresses"], token_file=str(secret))),
        ]  # fmt: skip
    worker.stop(grace=0.1)
    assert str(secret) in shown[0], "where the token is may be seen"
    assert TOKEN not in "".join(shown)
