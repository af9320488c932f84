"""Actor pools: unrolls in a fixed order, or in order of arrival."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal, Protocol

import numpy.typing as npt

from rlox.batches.rollout import (
    Unroll,
    moments_from_arrays,
    moments_to_arrays,
    unroll_from_arrays,
    unroll_to_arrays,
)
from rlox.config.composition import Selection
from rlox.envs.gymnasium import Vectorization
from rlox.errors import CheckpointError, WorkerLostError
from rlox.seeding import SeedStreams

PARAMETERS, BUFFER = "", "buffer:"
"""Names of the weights when they are sent."""


def backend_of_actor(backend: str | Selection, index: int, n_actors: int) -> str | Selection:
    """Return the env backend of one of several actors; see :class:`rlox.EnvBackendSpec`."""
    if not isinstance(backend, Selection) or not hasattr(backend.options, "for_actor"):
        return backend
    options: Any = backend.options
    return Selection(backend.name, options.for_actor(index, n_actors))


@dataclass(frozen=True)
class Weights:
    """The weights that an actor acts with; never changed after creation."""

    version: int
    """Number of updates that the learner had taken."""
    parameters: npt.NDArray[Any]
    """(P,) the optimiser's flat parameters."""
    moments: Mapping[str, Mapping[str, Any]] | None = None
    """Moments of all observations by leaf, if they are normalised."""
    buffers: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    """The policy's buffers by name, for example of batch normalisation."""

    @cached_property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All arrays by name, to send; the same object on every access."""
        given = {PARAMETERS: self.parameters}
        given |= {f"{BUFFER}{name}": buffer for name, buffer in self.buffers.items()}
        return given | moments_to_arrays(self.moments)

    @staticmethod
    def of_arrays(version: int, arrays: Mapping[str, npt.NDArray[Any]]) -> Weights:
        """Return the weights with these :attr:`arrays`."""
        given = {name: array for name, array in arrays.items() if name.startswith(BUFFER)}
        buffers = {name.removeprefix(BUFFER): array for name, array in given.items()}
        return Weights(version, arrays[PARAMETERS], moments_from_arrays(arrays), buffers)


class Actor(Protocol):
    """Steps its own envs with a copy of the policy; one call at a time, from any thread."""

    @property
    def restarts(self) -> int:
        """Number of restarts."""

    def collect(self, weights: Weights) -> Unroll:
        """Return the next unroll of newly allocated arrays, acted with ``weights``."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state of its envs and random streams."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a :meth:`state_dict`."""

    def interrupt(self) -> None:
        """Make a running :meth:`collect` end soon, if need be by failing; none follows."""

    def close(self) -> None:
        """Free envs and processes."""


@dataclass(frozen=True)
class ActorPlan:
    """Common options of all actors in a training."""

    env: Any
    """An id, a callable that makes an env, or a sequence of vector envs, one per actor."""
    policy: Any
    """Policy that each actor copies; on the CPU, and without a generator."""
    n_actors: int
    n_envs: int
    """Number of envs N per actor."""
    n_steps: int
    """Number of steps T per unroll."""
    seed: int
    """Seed of all actors' streams."""
    backend: str = "auto"
    """Learner backend that acts."""
    env_backend: str | Selection = "auto"
    """Env backend with its options; its workers are divided among the actors."""
    vectorization: Vectorization = "sync"
    env_kwargs: Mapping[str, Any] | None = None
    normalize_observations: bool = False
    frame_stack: int = 1
    torch_threads: int | None = 1
    deadline: float = 60.0
    """Seconds allowed to a remote actor for one step of its envs."""
    max_restarts: int = 3
    """Number of restarts per remote actor."""

    def streams(self, index: int, attempt: int = 0) -> SeedStreams:
        """Return the random streams of actor ``index`` at its n-th start."""
        name = f"actors, attempt {attempt}" if attempt else "actors"
        return SeedStreams(SeedStreams(self.seed).seeds(name, self.n_actors)[index])

    def env_of(self, index: int) -> Any:
        """Return the env of actor ``index``."""
        return self.env[index] if isinstance(self.env, (list, tuple)) else self.env


Order = Literal["fixed", "arrival"]
"""Order of the weights that collect the unrolls: ``"fixed"`` by the unroll's number alone,
``"arrival"`` by the actor that is ready first."""


@dataclass(frozen=True)
class Taken:
    """The unrolls of one update, and the pool's counts at that time."""

    unrolls: list[Unroll]
    waiting: int
    """Number of unrolls that were ready and stay for later updates."""
    dropped: int
    """Number of unrolls so far that came too late to learn from."""


class ActorPool:
    """Actors that collect during the learning, each in its own thread.

    Unroll k belongs to update k // U. In the fixed order actor k mod A collects it, with the
    weights of update max(0, ⌈(k + 1 - Q) / U⌉ - 1); with a queue of Q = 0 these are the weights of
    its own update, and actors wait during learning. So one seed gives the same unrolls, whatever
    the speed of threads and processes. By arrival, the next ready actor collects with the newest
    weights at its start; the number of unrolls under way is the same.

    Args:
        actors: the A actors; the pool closes them.
        per_update: number of unrolls U per update.
        queue_size: number of unrolls Q that are collected ahead of their update.
        order: see above.
        max_lag: unrolls older than this number of updates when they are taken are dropped;
            ``None`` drops none. The fixed order has a lag of at most ⌈Q / U⌉ and drops none.
        min_actors: by arrival, the required number of live actors; fewer are an error.
    """

    def __init__(
        self,
        actors: Sequence[Actor],
        *,
        per_update: int,
        queue_size: int = 0,
        order: Order = "fixed",
        max_lag: int | None = None,
        min_actors: int | None = None,
    ) -> None:
        self._actors = list(actors)
        self._per_update, self._queue_size, self.order = per_update, queue_size, order
        self._max_lag = max_lag
        self._min_actors = len(self._actors) if min_actors is None else min_actors
        self._threads = [
            ThreadPoolExecutor(1, thread_name_prefix=f"rlox-actor-{i}")
            for i in range(len(self._actors))
        ]
        self._pending: deque[tuple[int, Future[Unroll]]] = deque()
        self._restored: deque[Unroll] = deque()
        self._dispatched = self._dropped = 0
        self._newest: list[Weights] = []
        """The current weights, for collections that begin later."""
        self._lost: dict[int, str] = {}
        """Reasons for losses, by actor."""
        self.close = weakref.finalize(self, _close, self._threads, self._actors)
        """Ends all actors; also when the pool is garbage-collected, and when Python exits."""

    @property
    def restarts(self) -> int:
        """Total number of restarts so far."""
        return sum(actor.restarts for actor in self._actors)

    def take(self, weights: Weights) -> Taken:
        """Let actors continue with new weights, and return the unrolls of the next update.

        Args:
            weights: current weights.

        Raises:
            WorkerLostError: too few actors are left.
            Exception: an actor failed; its own error is raised, with its traceback.
        """
        self._newest[:] = [weights]
        unrolls: list[Unroll] = []
        while len(unrolls) < self._per_update:
            self._dispatch(len(unrolls))
            unroll = self._next()
            if unroll is None:
                continue
            behind = weights.version - unroll.weights_version
            if self._max_lag is not None and behind > self._max_lag:
                self._dropped += 1
                continue
            unrolls.append(unroll)
        waiting = len(self._restored) + sum(future.done() for _, future in self._pending)
        return Taken(unrolls, waiting, self._dropped)

    def _dispatch(self, taken_now: int) -> None:
        """Hand out tasks up to the number that this update and the queue allow."""
        missing = self._per_update - taken_now + self._queue_size
        for _ in range(missing - len(self._pending) - len(self._restored)):
            if self.order == "fixed":
                actor = self._dispatched % len(self._actors)
                task = partial(self._actors[actor].collect, self._newest[0])
            else:
                actor = self._least_busy()
                task = partial(_collect_with_newest, self._actors[actor], self._newest)
            self._pending.append((actor, self._threads[actor].submit(task)))
            self._dispatched += 1

    def _least_busy(self) -> int:
        busy = [actor for actor, future in self._pending if not future.done()]
        living = [actor for actor in range(len(self._actors)) if actor not in self._lost]
        return min(living, key=lambda actor: (busy.count(actor), actor))

    def _next(self) -> Unroll | None:
        """Return the next unroll; ``None`` if an actor was lost that the others replace."""
        if self._restored:
            return self._restored.popleft()
        if self.order == "arrival":
            wait([future for _, future in self._pending], return_when=FIRST_COMPLETED)
            self._pending = deque(sorted(self._pending, key=lambda task: not task[1].done()))
        actor, future = self._pending[0]
        try:
            return future.result()
        except WorkerLostError as error:
            self._give_up(actor, error)
            return None
        finally:
            if future.done() and self._pending and self._pending[0][1] is future:
                self._pending.popleft()

    def _give_up(self, actor: int, error: WorkerLostError) -> None:
        """Continue without an actor.

        Raises:
            WorkerLostError: too few actors are left.
        """
        self._lost[actor] = str(error)
        self._pending = deque(task for task in self._pending if task[0] != actor)
        alive = len(self._actors) - len(self._lost)
        if self.order == "fixed" or alive < self._min_actors:
            raise WorkerLostError(
                f"{alive} of {len(self._actors)} actors live, fewer than min_workers = "
                f"{self._min_actors}: {'; '.join(self._lost.values())}"
            ) from error

    def state_dict(self) -> dict[str, Any]:
        """Return the actors and the collected unrolls, after those under way have arrived."""
        wait([future for _, future in self._pending])
        self._restored.extend(future.result() for _, future in self._pending)
        self._pending.clear()
        return {
            "order": self.order,
            "dispatched": self._dispatched,
            "dropped": self._dropped,
            "unrolls": [unroll_to_arrays(unroll) for unroll in self._restored],
            "actors": [actor.state_dict() for actor in self._actors],
        }

    def load_state_dict(self, state: Mapping[str, Any], *, keep_unrolls: bool) -> None:
        """Restore actors and unrolls; unrolls under way are dropped.

        Args:
            state: see :meth:`state_dict`.
            keep_unrolls: whether the collected unrolls have the same number of envs.

        Raises:
            CheckpointError: the number of actors differs.
        """
        if len(state["actors"]) != len(self._actors):
            raise CheckpointError(
                f"it has {len(state['actors'])} actors, got n_actors={len(self._actors)}"
            )
        wait([future for _, future in self._pending])
        self._pending.clear()
        unrolls = state["unrolls"] if keep_unrolls else []
        self._restored = deque(unroll_from_arrays(arrays) for arrays in unrolls)
        self._dispatched, self._dropped = int(state["dispatched"]), int(state["dropped"])
        for actor, saved in zip(self._actors, state["actors"], strict=True):
            actor.load_state_dict(saved)


def _close(threads: Sequence[ThreadPoolExecutor], actors: Sequence[Actor]) -> None:
    for thread in threads:
        thread.shutdown(wait=False, cancel_futures=True)
    for actor in actors:
        actor.interrupt()
    for thread, actor in zip(threads, actors, strict=True):
        thread.shutdown(wait=True)
        actor.close()


def _collect_with_newest(actor: Actor, newest: Sequence[Weights]) -> Unroll:
    return actor.collect(newest[0])
