"""Actors in their own processes, over shared memory."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from rlox.batches.rollout import Unroll, unroll_from_arrays, unroll_to_arrays
from rlox.envs.workers.arena import register_here, spec_to_send
from rlox.envs.workers.process import MakeWorker, Supervisor, Worker, WorkerProcess
from rlox.errors import WorkerLostError
from rlox.learners.rollouts import RolloutTask
from rlox.learners.tasks import find_learner
from rlox.losses import PolicyGradient
from rlox.nn import FlatOptimizer, torch_threads
from rlox.rollouts.actors.pool import ActorPlan, Weights, backend_of_actor
from rlox.rollouts.collector import RolloutCollector


class LocalActor:
    """Acts in the calling process and thread.

    Args:
        plan: options of all actors.
        index: number of this actor.
        attempt: number of restarts so far; each attempt has its own random streams.
        on_step: called after every vector step.
    """

    restarts = 0

    def __init__(
        self,
        plan: ActorPlan,
        index: int,
        *,
        attempt: int = 0,
        on_step: Callable[[], None] | None = None,
    ) -> None:
        self._index, self._n_steps = index, plan.n_steps
        self._torch_threads = plan.torch_threads
        self._streams = plan.streams(index, attempt)
        self._hooks: Any = _Unheard(on_step)
        self._collector = RolloutCollector(
            plan.env_of(index),
            plan.n_envs,
            self._streams.seeds("envs", 1)[0],
            backend=backend_of_actor(plan.env_backend, index, plan.n_actors),
            vectorization=plan.vectorization,
            env_kwargs=plan.env_kwargs,
            normalize_observations=plan.normalize_observations,
            frame_stack=plan.frame_stack,
        )
        self._policy = policy = copy.deepcopy(plan.policy)
        if hasattr(policy, "generator"):
            policy.generator = self._streams.torch("policy")
        # never steps: it gives the parameters the same layout as the learner's
        self._weights = FlatOptimizer(policy, partial(torch.optim.RMSprop))
        task = RolloutTask(
            PolicyGradient(0.5),
            policy,
            self._weights,
            self._collector,
            _refuse_to_update,
            actions=self._streams.numpy("native actions"),
            acts_only=True,
        )
        self._acting, self.backend, _ = find_learner(plan.backend, task, role=f"actor {index}")
        self._sequence = 0

    @torch.no_grad()
    def collect(self, weights: Weights) -> Unroll:
        """Return the next unroll; see :class:`rlox.rollouts.actors.pool.Actor`."""
        self._weights.parameters.copy_(torch.from_numpy(weights.parameters))
        for name, buffer in weights.buffers.items():
            self._policy.get_buffer(name).copy_(torch.from_numpy(buffer))
        preprocessor = self._collector.preprocessor
        if weights.moments is not None and preprocessor is not None:
            preprocessor.load_state_dict(weights.moments)
            preprocessor.record()
        resets = not self._collector.envs.started
        with torch_threads(self._torch_threads):  # for this thread
            unroll: Unroll = self._acting.collect(self._n_steps, self._hooks)
        self._sequence += 1
        return replace(
            unroll,
            values=None,
            final_values=None,
            weights_version=weights.version,
            actor=self._index,
            sequence=self._sequence - 1,
            resets=resets,
            moments=preprocessor.recorded() if preprocessor is not None else None,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return envs, streams, and the number of unrolls."""
        return {
            "collector": self._collector.state_dict(),
            "streams": self._streams.state_dict(),
            "sequence": self._sequence,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore envs, streams, and the number of unrolls."""
        self._collector.load_state_dict(state["collector"])
        self._streams.load_state_dict(state["streams"])
        self._sequence = int(state["sequence"])

    def interrupt(self) -> None:
        """Let the unroll under way finish."""

    def close(self) -> None:
        """Close the envs that were created here."""
        self._collector.close()


class _Unheard:
    """Hooks without callbacks: steps are reported when their unroll arrives."""

    step_listened = train_batch_listened = False

    def __init__(self, on_step: Callable[[], None] | None) -> None:
        self._on_step = on_step

    def env_step(self, count: int) -> None:
        """Pass a vector step on."""
        if self._on_step is not None:
            self._on_step()


def _refuse_to_update(*_: Any) -> dict[str, float]:
    raise NotImplementedError("an actor does not learn")


Arrays = dict[str, npt.NDArray[Any]]

FIRST_DEADLINE = 120.0
"""Lower bound of the time limit for the first step, which also resets the envs."""


class ProcessActor:
    """An actor in a process, which is restarted if it dies or stalls.

    Args:
        plan: options of all actors.
        index: number of this actor.
        make_worker: makes the process, on this machine or elsewhere.
    """

    def __init__(
        self, plan: ActorPlan, index: int, make_worker: MakeWorker = WorkerProcess
    ) -> None:
        self._plan, self._index, self._make_worker = plan, index, make_worker
        self.name = f"actor {index}"
        """Name in errors."""
        self._supervisor = Supervisor(plan.max_restarts)
        self._sequence = 0
        self._closed = False
        self._start(0)

    @property
    def restarts(self) -> int:
        """Number of restarts of the process."""
        return self._supervisor.restarts

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def _start(self, attempt: int) -> None:
        self._process: Worker = self._make_worker(
            f"{__name__}:serve",
            (self._plan, self._index, attempt, spec_to_send(self._plan.env)),
            name=self.name,
        )
        self._deadline = max(self._plan.deadline, FIRST_DEADLINE)

    def collect(self, weights: Weights) -> Unroll:
        """Return the next unroll; see :class:`rlox.rollouts.actors.pool.Actor`.

        Raises:
            WorkerLostError: the process was lost and no restart is left.
        """
        asked = "collect", weights.version, weights.arrays
        while True:
            try:
                _, arrays = self._process.call(*asked, deadline=self._deadline)
                break
            except WorkerLostError as error:
                if self._closed:
                    raise
                attempt, before = self._supervisor.lost(self.name, error), self._process
                self._start(attempt)
                before.close()
        self._deadline = self._plan.deadline
        self._sequence += 1
        return replace(unroll_from_arrays(arrays), sequence=self._sequence - 1)

    def state_dict(self) -> dict[str, Any]:
        """Return envs, streams, and the number of unrolls."""
        _, arrays = self._process.call("state", deadline=FIRST_DEADLINE)
        # pickled by our own process
        state: dict[str, Any] = pickle.loads(arrays["state"].tobytes())  # noqa: S301
        return {**state, "sequence": self._sequence}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore envs, streams, and the number of unrolls."""
        self._sequence = int(state["sequence"])
        data = np.frombuffer(pickle.dumps(state), np.uint8)
        self._process.call("load", None, {"state": data}, deadline=FIRST_DEADLINE)

    def interrupt(self) -> None:
        """Kill the process at once."""
        self._closed = True
        self._process.kill()

    def close(self) -> None:
        """End the process."""
        self._closed = True
        self._process.close()


class _Server:
    """Serves an actor in its process."""

    def __init__(self, actor: LocalActor) -> None:
        self._actor = actor
        self.close = actor.close

    def collect(self, version: int, arrays: Arrays) -> tuple[None, Arrays]:
        unroll = self._actor.collect(Weights.of_arrays(version, arrays))
        return None, unroll_to_arrays(unroll)

    def state(self, _: None, arrays: Arrays) -> tuple[None, Arrays]:
        state = pickle.dumps(self._actor.state_dict())
        return None, {"state": np.frombuffer(state, np.uint8)}

    def load(self, _: None, arrays: Arrays) -> tuple[None, Arrays]:
        # pickled by our own parent
        self._actor.load_state_dict(pickle.loads(arrays["state"].tobytes()))  # noqa: S301
        return None, {}


def serve(
    plan: ActorPlan, index: int, attempt: int, spec: Any, beat: Callable[[], None]
) -> _Server:
    """Return the object that answers the calls of a :class:`ProcessActor`, in its process."""
    register_here(spec)
    return _Server(LocalActor(plan, index, attempt=attempt, on_step=beat))
