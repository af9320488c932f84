"""An env worker in a network namespace of its own, behind a link that goes down.

Linux, root and ``ip`` are needed to make one. Both sides speak TLS, as between machines.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rlox.envs.make import make_vec_env
from rlox.errors import WorkerLostError
from rlox_distributed.pool import RemoteEnvPool

pytestmark = pytest.mark.skipif(
    shutil.which("ip") is None or os.geteuid() != 0, reason="needs root and ip to make a namespace"
)

N_ENVS = 2
NUMBER = os.getpid() % 250
NAMESPACE, LINK = f"rlox-{NUMBER}", f"rlox{NUMBER}"
LEARNER, WORKER = f"198.18.{NUMBER}.1", f"198.18.{NUMBER}.2"
"""Addresses of both ends of the link, of a network for tests of devices (RFC 2544)."""


def ip(*words: str) -> None:
    """Run ``ip``."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


def set_link(state: str) -> None:
    """Set the worker's end of the link ``up`` or ``down``."""
    ip("-n", NAMESPACE, "link", "set", "eth0", state)


@pytest.fixture(name="namespace")
def fixture_namespace() -> Iterator[None]:
    """Make a namespace with a link to this one."""
    with ExitStack() as stack:
        try:
            ip("netns", "add", NAMESPACE)
            stack.callback(ip, "netns", "del", NAMESPACE)
            ip("link", "add", LINK, "type", "veth", "peer", "name", "eth0", "netns", NAMESPACE)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no namespaces here: {error.stderr.decode()}")
        stack.callback(ip, "link", "del", LINK)  # a namespace's own goes some time after it
        ip("addr", "add", f"{LEARNER}/30", "dev", LINK)
        ip("link", "set", LINK, "up")
        ip("-n", NAMESPACE, "addr", "add", f"{WORKER}/30", "dev", "eth0")
        set_link("up")
        yield


@pytest.fixture(name="pool")
def fixture_pool(namespace: None, tmp_path: Path) -> Iterator[Any]:
    """Return a function that makes a pool of a worker in the namespace."""
    key, cert, token = (str(tmp_path / name) for name in ("key.pem", "cert.pem", "token"))
    Path(token).write_text("a secret", "ascii")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=worker", "-addext", f"subjectAltName=IP:{WORKER}", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    process = subprocess.Popen(
        ["ip", "netns", "exec", NAMESPACE, sys.executable, "-m", "rlox", "worker",
         "--env", "CartPole-v1", "--n-envs", str(N_ENVS), "--bind", f"{WORKER}:0",
         "--tls-cert", cert, "--tls-key", key, "--token-file", token],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    address = process.stdout.readline().split()[-1]
    pools: list[RemoteEnvPool] = []

    def make(timeout: float) -> RemoteEnvPool:
        pools.append(RemoteEnvPool([address], timeout, tls_ca=cert, token_file=token))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()
    process.kill()
    process.communicate()


def test_a_link_that_goes_down_and_up_loses_no_step(pool: Any) -> None:
    """At random moments for up to a second; all steps are those of envs here, bit for bit."""
    here, there = make_vec_env("CartPole-v1", n_envs=N_ENVS), pool(120.0)
    np.testing.assert_array_equal(here.reset_all(3), there.reset_all(3))
    rng = random.Random(0)
    done = threading.Event()

    def disturb() -> None:
        for _ in range(4):
            time.sleep(rng.uniform(0.0, 0.5))
            set_link("down")
            time.sleep(rng.uniform(0.0, 1.0))
            set_link("up")
        done.set()

    disturber = threading.Thread(target=disturb)
    disturber.start()
    steps = after = 0
    while after < 30:  # some more after the last fault
        after += done.is_set()
        steps += 1
        actions = np.array([steps % 2, steps // 2 % 2])
        one, other = here.step_all(actions), there.step_all(actions)
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])  # type: ignore[literal-required]
    disturber.join()
    assert steps > 30
    assert not there.supervisor.events


def test_a_link_that_stays_down_is_an_error_that_names_the_worker(pool: Any) -> None:
    """Within the deadline of the step."""
    envs = pool(1.0)
    envs.reset_all(0)
    set_link("down")
    with pytest.raises(WorkerLostError, match=f"the worker {WORKER}:[0-9]+ has not answered"):
        envs.step_all(np.zeros(N_ENVS, np.int64))
