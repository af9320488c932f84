"""Connections to running or new Ray clusters."""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import socket
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from rlox.errors import ConfigError, WorkerError, import_extra

KEPT = 4
"""Kept references to shared arrays: two versions of weights, and some to spare."""

STORE_BYTES = 512 * 2**20
"""Size of the object store of a cluster started here."""


DASHBOARD_NEEDS = ("aiohttp_cors", "opencensus")
"""Packages of ``ray[default]`` that only the dashboard needs."""


def import_ray() -> Any:
    """Return the module ``ray``.

    Under ``uv run`` Ray would rebuild the environment for every worker, from a copy of the folder,
    which fails in a workspace. The variable ``RAY_ENABLE_UV_RUN_RUNTIME_ENV`` is read on first
    import; a process that imports ``ray`` earlier must set it to 0 itself.

    Raises:
        MissingDependencyError: it is not installed.
    """
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    return import_extra("ray", "the backend 'ray'", "ray")


STARTS = 4
"""Attempts to start a cluster here."""

REACHED = 10.0
"""Longest time in seconds for the machine of an address to answer."""


class Cluster:
    """The cluster of this process's connection.

    Args:
        started: whether it was started here and stops with its last user.
        where: its place, in words.
    """

    def __init__(self, started: bool, where: str) -> None:
        self.started = started
        self.where = where
        self.users = 0
        self._shared: OrderedDict[int, tuple[Mapping[str, Any], Any]] = OrderedDict()
        self._lock = threading.Lock()

    def share(self, arrays: Mapping[str, Any]) -> Any:
        """Return a reference to arrays, which are stored once per object.

        Args:
            arrays: must not change afterwards.
        """
        with self._lock:
            if id(arrays) not in self._shared:
                self._shared[id(arrays)] = (arrays, import_ray().put(dict(arrays)))
                while len(self._shared) > KEPT:
                    self._shared.popitem(last=False)
            return self._shared[id(arrays)][1]

    def cpus(self, asked: float) -> float:
        """Return the CPUs that an actor reserves: none on a cluster of only this machine."""
        return 0.0 if self.started else asked

    def leave(self) -> None:
        """Once the last user has left, disconnect and stop a cluster started here."""
        with _LOCK:
            self.users -= 1
            if self.users or _JOINED.get("cluster") is not self:
                return
            del _JOINED["cluster"]
            self._shared.clear()
            if self.started or _JOINED.pop("connected", None):
                with suppress(Exception):  # the cluster may be gone already
                    import_ray().shutdown()


_LOCK = threading.Lock()
_JOINED: dict[str, Any] = {}


def join_cluster(address: str | None) -> Cluster:
    """Return the cluster at an address, connected; every call needs a :meth:`Cluster.leave`.

    Args:
        address: ``host:port`` or ``"auto"``; ``None`` takes the process's connection, the variable
            ``RAY_ADDRESS``, or a new cluster on this machine.

    Raises:
        ConfigError: there is no cluster, or the process is connected to another one.
        WorkerError: no cluster could be started.
    """
    with _LOCK:
        if "cluster" not in _JOINED:
            _JOINED["cluster"] = _connect(address)
        elif address not in (None, "auto"):
            _require_address(address)
        cluster: Cluster = _JOINED["cluster"]
        cluster.users += 1
        return cluster


def _connect(address: str | None) -> Cluster:
    log, ray = logging.getLogger("rlox"), import_ray()
    if ray.is_initialized():  # the caller's own connection, which stays
        if address not in (None, "auto"):
            _require_address(address)
        return Cluster(started=False, where="the cluster that this process is connected to")
    target = address or os.environ.get("RAY_ADDRESS") or "local"
    options: dict[str, Any] = {"logging_level": "WARNING"}
    if target == "local":
        # Ray's workers have low priority by default, but here they are the training
        os.environ.setdefault("RAY_worker_niceness", "0")
        options["object_store_memory"] = STORE_BYTES
        # without these packages Ray would still try to start the dashboard, and fail
        options["include_dashboard"] = all(map(importlib.util.find_spec, DASHBOARD_NEEDS))
    else:
        _require_listener(target)
    for attempt in range(STARTS):
        try:
            with _interrupted_afterwards():
                context = ray.init(address=target, **options)
            break
        except KeyboardInterrupt:
            ray.shutdown()
            raise
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"there is no Ray cluster at '{target}': {first_line(error)}; start one with "
                "`ray start --head`, or leave ray_address out"
            ) from error
        except Exception as error:  # Ray always limits the start of its daemons to half a minute
            ray.shutdown()
            if target != "local" or attempt == STARTS - 1:
                raise WorkerError(
                    f"no Ray cluster could be started: {first_line(error)}"
                ) from error
            log.warning("the Ray cluster did not start in time and is started again")
    if target == "local":
        board = context.dashboard_url
        where = f"http://{board}" if board else 'missing, pip install "ray[default]" brings it'
        notices = logging.getLogger("rlox.notice")
        notices.info("a Ray cluster was started on this machine; its dashboard is %s", where)
        return Cluster(started=True, where="a cluster of this machine")
    _JOINED["connected"] = True
    log.info("connected to the Ray cluster at %s", target)
    return Cluster(started=False, where=f"the cluster at {target}")


@contextmanager
def _interrupted_afterwards() -> Iterator[None]:
    """Delay the first Ctrl-C until the block's end, because Ray would leave a half start behind."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came: list[int] = []

    def note(number: int, frame: Any) -> None:
        came.append(number)
        if len(came) > 1:
            before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        before(came[0], None)


def _require_listener(target: str) -> None:
    """Refuse an address without a listener, which Ray would try for many minutes.

    Raises:
        ConfigError: there is no listener.
    """
    host, _, port = target.rpartition(":")
    if not (host and port.isdecimal()):
        return  # "auto", or a value that Ray refuses
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACHED).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"there is no Ray cluster at '{target}': {first_line(error)}; start one with "
            "`ray start --head`, or leave the address out"
        ) from None


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its kind if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _require_address(address: str | None) -> None:
    here = import_ray().get_runtime_context().gcs_address
    if here != address:
        raise ConfigError(
            f"ray_address is '{address}', but this process is connected to the Ray cluster at "
            f"'{here}'; leave it out, or disconnect with ray.shutdown()"
        )
