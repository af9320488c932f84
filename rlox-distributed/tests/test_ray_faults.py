"""Faults of Ray's actors, nodes and store while a training collects: random schedules.

``RLOX_FAULT_SCHEDULES`` sets their number; ``nox -s faults`` runs 50.
"""

import os
import random
import signal
import time
from contextlib import suppress

import numpy as np
import pytest
import rlox
from rlox.callbacks import Callback
from rlox.errors import WorkerLostError

ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
pytest.importorskip("rlox_onpolicy")

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SCHEDULES = int(os.environ.get("RLOX_FAULT_SCHEDULES", "2"))
NODES = 3
"""Nodes of one CPU each: one more than actors."""
ITERATIONS = 30
PATIENCE = 30.0
"""Seconds in which actors must answer."""
STORE = 100 * 2**20
SLACK = 300.0
"""Seconds that a training takes besides, on a busy machine."""


class Nodes:
    """A cluster of several nodes on this machine, each with its own daemons."""

    def __init__(self):
        from ray.cluster_utils import Cluster

        small = {"object_store_memory": STORE, "include_dashboard": False}
        self._cluster = Cluster(initialize_head=True, head_node_args={**small, "num_cpus": 0})
        ray.init(address=self._cluster.address, logging_level="ERROR")
        self.workers = []
        self.complete()

    def complete(self):
        """Replace lost nodes."""
        while len(self.workers) < NODES:
            self.workers.append(self._cluster.add_node(num_cpus=1, object_store_memory=STORE))
        end = time.monotonic() + SLACK
        while ray.cluster_resources().get("CPU", 0.0) < NODES:
            assert time.monotonic() < end
            time.sleep(0.2)

    def lose(self, node, *, killed):
        """Kill the raylet of a node, or stop the node."""
        self.workers.remove(node)
        if killed:
            node.kill_raylet()
        else:
            self._cluster.remove_node(node, allow_graceful=True)

    def close(self):
        """Stop all."""
        ray.shutdown()
        with suppress(Exception):  # the nodes may be killed
            self._cluster.shutdown()


@pytest.fixture(scope="module", name="nodes")
def fixture_nodes():
    """Start a cluster for all schedules."""
    patch = pytest.MonkeyPatch()
    patch.delenv("RAY_ADDRESS", raising=False)
    found = Nodes()
    yield found
    found.close()
    patch.undo()


class Faults(Callback):
    """Causes faults at the ends of some iterations."""

    def __init__(self, at):
        self._at = at
        self.done = []

    def on_iteration_end(self, **kwargs):
        """Cause the fault that is due."""
        fault = self._at.pop(kwargs["algo"].clock.iterations, None)
        if fault is not None:
            self.done.append(fault(kwargs["algo"]))


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_training_goes_on_or_names_what_is_lost(seed, nodes, record_property):
    """Killed and stopped actors, killed raylets, lost nodes, a full store: no step counted twice.

    Nothing takes longer than its deadline.
    """
    nodes.complete()
    drawn = random.Random(seed)
    stopped = []
    kept = []

    def pid(algorithm):
        return int(drawn.choice(algorithm.actors._pool._actors).pid)

    def kill(algorithm):
        with suppress(ProcessLookupError):  # it went with its node
            os.kill(pid(algorithm), signal.SIGKILL)
        return "killed actor"

    def stop(algorithm):
        with suppress(ProcessLookupError):
            stopped.append(pid(algorithm))
            os.kill(stopped[-1], signal.SIGSTOP)
        return "stopped actor"

    def raylet(_):
        nodes.lose(drawn.choice(nodes.workers), killed=True)
        return "killed raylet"

    def node(_):
        nodes.lose(drawn.choice(nodes.workers), killed=False)
        return "lost node"

    def fill(_):
        kept.extend(ray.put(np.ones(STORE // 40, np.uint8)) for _ in range(36))
        return "full store"

    first, second = drawn.sample([kill, kill, stop, raylet, node, fill], 2)
    if {first, second} == {raylet, node}:
        second = kill  # otherwise fewer nodes than actors remain
    faults = Faults({drawn.randrange(2, 12): first, drawn.randrange(12, 24): second})
    options = {"n_actors": 2, "n_envs": 2, "n_steps": 8, "hidden": 8, "seed": seed}
    began = time.monotonic()
    try:
        with rlox.make(
            "impala", env="CartPole-v1", actor_backend="ray", worker_timeout=PATIENCE,
            max_restarts=4, callbacks=[faults], queue_size=drawn.choice([0, 2]), **options,
        ) as impala:  # fmt: skip
            update = 8 * 2 * impala.config.update_size
            lost = ""
            try:
                restarts = impala.train(update * ITERATIONS)["restarts"]
            except WorkerLostError as error:
                lost = str(error).splitlines()[0]
            outcome = f"error: {lost}" if lost else f"finished after {restarts:.0f} restarts"
            done = impala.clock.iterations
            assert impala.clock.env_steps == update * done
            assert "actor " in lost if lost else done == ITERATIONS and len(faults.done) == 2
            assert impala.optimizer.is_finite()
    finally:
        for number in stopped:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
    record_property("fault", f"{' and '.join(faults.done)}: {outcome}")
    assert time.monotonic() - began < SLACK + 4 * PATIENCE
