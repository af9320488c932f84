"""A Ray cluster as the place of a sweep's runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlox.cli.places import Job
from rlox.errors import ConfigError
from rlox.files import open_regular

from rlox_distributed.ray_cluster import Cluster, first_line, import_ray, join_cluster

MOST_LOSSES = 3
"""Largest number of times that a run may be lost with its node."""

UNLOCKING = 120.0
"""Seconds that a lost run has to end before it continues elsewhere."""


class RayPlace:
    """The nodes of a Ray cluster; a :class:`rlox.cli.places.Place`.

    A run takes one CPU. The working folder and the sweep's must be the same on all nodes.

    Args:
        address: the cluster's, see :func:`rlox_distributed.ray_cluster.join_cluster`.

    Raises:
        ConfigError: there is no cluster.
    """

    def __init__(self, address: str | None) -> None:
        self._cluster = join_cluster(address)
        self.slots = max(1, int(import_ray().cluster_resources().get("CPU", 1.0)))
        self.description = f"on Ray, {self._cluster.where}"

    def start(self, job: Job, threads: int, /) -> RayRun:
        """Start a job on the node with the most room; it may use one thread for Rust kernels."""
        return RayRun(job, self._cluster)

    def close(self) -> None:
        """Leave the cluster, and stop it if it was started here."""
        self._cluster.leave()


class RayRun:
    """A job on a cluster; a :class:`rlox.cli.places.RunningJob`.

    If its node or its Ray actor is lost, the job restarts on another one and continues from its
    last checkpoint.

    Args:
        job: the job to run.
        cluster: the cluster to run it on.
    """

    def __init__(self, job: Job, cluster: Cluster) -> None:
        self._job, self._cluster = job, cluster
        self._ray = import_ray()
        self._signals: list[int] = []
        """Signals to pass on at the next poll, as a handler must not wait for the cluster."""
        self._asked_to_end = 0
        """The last signal; 0 for none."""
        self._losses = 0
        self._again_until = 0.0
        """End of the time in which it may restart after a loss; 0 if it was not lost."""
        self._code: int | None = None
        self._begin(job.arguments)

    def _begin(self, arguments: Sequence[str]) -> None:
        options = {"max_restarts": 0, "max_task_retries": 0, "max_concurrency": 2}
        self._remote: Any = (
            self._ray.remote(_Host)
            .options(num_cpus=self._cluster.cpus(1.0), scheduling_strategy="SPREAD", **options)
            .remote()
        )
        self._ready: Any = self._remote.ready.remote()
        paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        self._end: Any = self._remote.run.remote(
            list(arguments), str(self._job.output.absolute()), str(Path.cwd()),
            {"PYTHONPATH": paths, "RLOX_NUM_THREADS": os.environ.get("RLOX_NUM_THREADS", "1")},
        )  # fmt: skip

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or ``None`` while it runs or waits."""
        if self._code is None and self._again_until:
            self._begin_again()
        elif self._code is None:
            self._code = self._ask()
        return self._code

    def _ask(self) -> int | None:
        errors = self._ray.exceptions
        try:
            while self._signals:
                number = self._signals.pop(0)
                if not self._ray.wait([self._ready], timeout=0)[0]:  # no node has room yet
                    self._kill_host()
                    return -number
                self._remote.signal.remote(number)
            if not self._ray.wait([self._end], timeout=0)[0]:
                return None
            code = int(self._ray.get(self._end))
        except errors.RayTaskError as error:
            self._note(f"error: {error.cause}")
            code = 2
        except errors.RayError as error:
            return self._lose(first_line(error))
        self._kill_host()
        return code

    def _lose(self, reason: str) -> int | None:
        """Prepare a restart on another node, or return the exit code if the run ends."""
        self._losses += 1
        self._kill_host()
        if self._asked_to_end:
            return -self._asked_to_end
        if self._losses > MOST_LOSSES or self._job.again is None:
            self._note(f"error: the run was lost on Ray {self._losses} times: {reason}")
            return 2
        self._note(f"the run was lost on Ray and goes on elsewhere: {reason}")
        self._again_until = time.monotonic() + UNLOCKING
        return None

    def _begin_again(self) -> None:
        if self._asked_to_end:
            self._code = -self._asked_to_end
            return
        try:
            again = self._job.again
            self._begin(again() if again is not None else self._job.arguments)
            self._again_until = 0.0
        except ConfigError as error:  # the lost run has not ended yet
            if time.monotonic() > self._again_until:
                self._note(f"error: {error}")
                self._code = 2

    def send_signal(self, sig: int, /) -> None:
        """Pass a signal on, at the next poll."""
        self._asked_to_end = sig
        self._signals.append(sig)

    def kill(self) -> None:
        """End the run and its Ray actor at once."""
        if self._code is None:
            with suppress(Exception):  # the cluster may be gone
                self._ray.get(self._remote.signal.remote(signal.SIGKILL), timeout=5.0)
            self._kill_host()
            self._code = -signal.SIGKILL

    def wait(self) -> int:
        """Return the exit code once there is one."""
        while (code := self.poll()) is None:
            time.sleep(0.05)
        return code

    def _kill_host(self) -> None:
        with suppress(Exception):  # it may be gone, and the cluster too
            self._ray.kill(self._remote, no_restart=True)

    def _note(self, text: str) -> None:
        with open_regular(self._job.output, "a") as file:
            print(text, file=file)


class _Host:
    """The object in the Ray actor: it starts the run's process, which ends with it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ready(self) -> None:
        """Return once the actor has a node."""

    def run(
        self, arguments: list[str], output: str, folder: str, environment: Mapping[str, str]
    ) -> int:
        """Run the command line and return its exit code.

        Raises:
            ConfigError: the folders are missing on this node.
        """
        for path in (folder, str(Path(output).parent)):
            if not Path(path).is_dir():
                raise ConfigError(
                    f"the folder '{path}' is not on the node '{os.uname().nodename}'; with --on "
                    "ray, all nodes must see the working folder and the sweep's"
                )
        with open_regular(Path(output), "ab") as file:
            self._process = subprocess.Popen(  # noqa: S603  # our own command line
                [sys.executable, "-m", "rlox_distributed.ray_run", *arguments],
                cwd=folder,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,  # closed when this process ends in any way
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self._process.wait()

    def signal(self, number: int) -> None:
        """Pass a signal on to the run."""
        while self._process is None:  # it is about to be started
            time.sleep(0.01)
        self._process.send_signal(number)
