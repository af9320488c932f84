"""Batches of the requests that wait while the policy computes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rlox.deployment import LoadedPolicy
from rlox.spaces import ActionRows, Request, map_leaves

__all__ = ["Batcher", "FullError", "Job"]


class FullError(Exception):
    """Too many requests wait."""


@dataclass
class Job:
    """One request that waits for its actions."""

    request: Request
    state: Mapping[str, Any]
    """What is remembered; empty if episodes begin."""
    starts: npt.NDArray[np.bool_]
    """(B,) where an episode begins."""
    done: asyncio.Future[tuple[Any, dict[str, Any]]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Batcher:
    """Computes what waits together, one batch at a time in a thread.

    Nobody waits for others to come: a batch is what came while the one before was computed.

    Args:
        policy: acts.
        most_rows: observations of a batch.
        most_waiting: requests that may wait.
    """

    def __init__(self, policy: LoadedPolicy, most_rows: int, most_waiting: int) -> None:
        self._policy = policy
        self._most_rows = most_rows
        self._most_waiting = most_waiting
        self._waiting: deque[Job] = deque()
        self._came = asyncio.Event()
        self.batches = 0
        """Batches computed so far."""
        self.jobs = 0
        """Requests in them."""

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    async def act(self, job: Job) -> tuple[Any, dict[str, Any]]:
        """Return the actions of a job, and what is remembered after them.

        Raises:
            FullError: too many wait.
        """
        if len(self._waiting) >= self._most_waiting:
            raise FullError
        self._waiting.append(job)
        self._came.set()
        return await job.done

    async def run(self) -> None:
        """Compute for ever."""
        while True:
            await self._came.wait()
            self._came.clear()
            while self._waiting:
                jobs = self._next()
                results = await asyncio.to_thread(self._compute, jobs)
                self.batches += 1
                self.jobs += len(jobs)
                for job, result in zip(jobs, results, strict=True):
                    if job.done.done():  # its client is gone
                        continue
                    if isinstance(result, Exception):
                        job.done.set_exception(result)
                    else:
                        job.done.set_result(result)

    def _next(self) -> list[Job]:
        jobs = [self._waiting.popleft()]
        rows = jobs[0].request.size
        while self._waiting and rows + self._waiting[0].request.size <= self._most_rows:
            jobs.append(self._waiting.popleft())
            rows += jobs[-1].request.size
        return jobs

    def _compute(self, jobs: Sequence[Job]) -> list[Any]:
        """Return what each job gets; one that fails fails alone."""
        try:
            return self._together(jobs)
        except Exception as error:
            if len(jobs) == 1:
                return [error]
            return [result for job in jobs for result in self._compute([job])]

    def _together(self, jobs: Sequence[Job]) -> list[tuple[Any, dict[str, Any]]]:
        requests = [job.request for job in jobs]
        obs = map_leaves(_joined, *(request.obs for request in requests))
        states = [self._state(job) for job in jobs]
        before = {name: map_leaves(_joined, *(s[name] for s in states)) for name in states[0]}
        starts = np.concatenate([job.starts for job in jobs])
        rows, following = self._policy.act(obs, self._masks(requests), before, starts)
        results = []
        first = 0
        for request in requests:
            part = slice(first, first + request.size)
            first += request.size
            state = {n: map_leaves(lambda a, p=part: a[p].copy(), v) for n, v in following.items()}
            results.append((request.actions(rows[part]), state))
        return results

    def _state(self, job: Job) -> dict[str, Any]:
        """Return a job's state, with numbers in the place of what begins."""
        policy, request = self._policy, job.request
        state: dict[str, Any] = dict(job.state)
        preprocessor = policy.data.preprocessor
        if preprocessor is not None and preprocessor.has_frames:
            state.setdefault("frames", preprocessor.begin(request.obs))
        if policy.state_size:
            state.setdefault("memory", np.zeros((request.size, policy.state_size), np.float32))
        return state

    def _masks(self, requests: Sequence[Request]) -> npt.NDArray[np.bool_] | None:
        """Return the masks of all rows; ``None`` if nobody masks anything."""
        if all(request.masks is None for request in requests):
            return None
        size = ActionRows(self._policy.action_space).mask_size
        masks = [
            np.ones((r.size, size), np.bool_) if r.masks is None else r.masks for r in requests
        ]
        return np.concatenate(masks)


def _joined(*leaves: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.concatenate(leaves)
