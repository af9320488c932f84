"""The policy server's web application."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rlox.cli.serving.batching import Batcher, FullError, Job
from rlox.cli.serving.sessions import Session, Sessions
from rlox.cli.serving.values import observation_from_json, read_json, to_json
from rlox.deployment import LoadedPolicy
from rlox.errors import SpaceError

__all__ = ["Limits", "make_app"]

KEYS = {"obs", "action_masks", "session", "episode_start"}
LONGEST_NAME = 128

BODY_SECONDS = 30
"""Time that a client has to send a request."""


@dataclass(frozen=True)
class Limits:
    """What a server bears."""

    body_bytes: int = 2**23
    rows: int = 1024
    """Observations of a request, and of a batch."""
    waiting: int = 256
    """Requests."""
    session_rows: int = 10_000
    """Episodes that are remembered for all sessions together."""
    session_seconds: float = 3600.0
    """After which an unused session is forgotten."""


class _Refusal(Exception):  # noqa: N818  # an answer
    """A request is answered with a status and a sentence."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def make_app(policy: LoadedPolicy, limits: Limits, token: str | None = None) -> Starlette:
    """Return an application that answers with a policy's actions.

    Args:
        policy: acts.
        limits: of requests and memory.
        token: that clients send as ``Authorization: Bearer``; ``None``: nobody needs one.
    """
    server = _Server(policy, limits, token)
    routes = [
        Route("/health", server.health),
        Route("/policy", server.answering(server.policy)),
        Route("/predict", server.answering(server.predict), methods=["POST"]),
        Route("/sessions/{name}", server.answering(server.end), methods=["DELETE"]),
    ]
    return Starlette(routes=routes, lifespan=server.lifespan)


class _Server:
    def __init__(self, policy: LoadedPolicy, limits: Limits, token: str | None) -> None:
        self._policy = policy
        self._limits = limits
        self._token = token
        self._batcher = Batcher(policy, limits.rows, limits.waiting)
        self._sessions = Sessions(limits.session_rows, limits.session_seconds)
        self._began = time.monotonic()
        self._remembers = policy.remembers
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        """Compute batches while the server runs."""
        self._task = asyncio.create_task(self._batcher.run())
        yield
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def answering(self, answer: Any) -> Any:
        """Return an endpoint that checks who asks, and turns refusals into answers."""

        async def endpoint(request: Request) -> Response:
            try:
                self._check(request)
                found: Response = await answer(request)
                return found
            except _Refusal as refusal:
                headers = {"retry-after": "1"} if refusal.status == 503 else None
                body = {"error": str(refusal)}
                return JSONResponse(body, status_code=refusal.status, headers=headers)

        return endpoint

    async def health(self, request: Request) -> Response:
        """Answer whether actions are computed."""
        alive = self._task is not None and not self._task.done()
        body = {
            "status": "ok" if alive else "failed",
            "algorithm": self._policy.data.algorithm,
            "seconds": round(time.monotonic() - self._began, 1),
            "requests": self._batcher.jobs,
            "batches": self._batcher.batches,
            "waiting": self._batcher.waiting,
            "sessions": len(self._sessions),
        }
        return JSONResponse(body, status_code=200 if alive else 503)

    async def policy(self, request: Request) -> Response:
        """Answer what the policy takes and returns."""
        policy = self._policy
        return JSONResponse(
            {
                "algorithm": policy.data.algorithm,
                "observation_space": str(policy.observation_space),
                "action_space": str(policy.action_space),
                "takes_masks": policy.data.takes_masks,
                "remembers": self._remembers,
                "limits": {"rows": self._limits.rows, "body_bytes": self._limits.body_bytes},
            }
        )

    async def predict(self, request: Request) -> Response:
        """Answer with the actions for the observations in the body."""
        given = await self._body(request)
        name = given.get("session")
        job, session = self._job(given, name)
        if session is not None:
            session.busy = True
        try:
            actions, state = await self._act(job)
        except BaseException:
            if session is not None and not session.state:
                self._sessions.drop(str(name))  # it has not begun
            raise
        finally:
            if session is not None:
                session.busy = False
        if session is not None and self._remembers:
            session.state = state
            self._sessions.put(str(name), session)
        return JSONResponse({"actions": to_json(actions)})

    async def _act(self, job: Job) -> tuple[Any, dict[str, Any]]:
        try:
            return await self._batcher.act(job)
        except FullError:
            text = f"{self._limits.waiting} requests wait already; try again"
            raise _Refusal(503, text) from None
        except (ValueError, SpaceError) as error:
            raise _Refusal(422, str(error)) from None

    async def end(self, request: Request) -> Response:
        """Forget a session."""
        if not self._sessions.drop(request.path_params["name"]):
            raise _Refusal(404, "there is no such session")
        return Response(status_code=204)

    def _check(self, request: Request) -> None:
        if "origin" in request.headers:  # the page of some site, in somebody's browser
            raise _Refusal(403, "requests of web pages are not answered")
        given = request.headers.get("authorization", "").encode()
        if self._token and not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            raise _Refusal(401, "the token is wrong or missing")

    async def _body(self, request: Request) -> dict[str, Any]:
        """Return the object in the body."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise _Refusal(415, "the body must be application/json")
        most = self._limits.body_bytes
        try:
            found = read_json(await asyncio.wait_for(_bytes_of(request, most), BODY_SECONDS))
        except asyncio.TimeoutError:
            raise _Refusal(408, f"the body took longer than {BODY_SECONDS} seconds") from None
        except ClientDisconnect:
            raise _Refusal(400, "the client is gone") from None
        except ValueError as error:
            raise _Refusal(400, str(error)) from None
        if unknown := sorted(set(found) - KEYS):
            raise _Refusal(422, f"unknown key '{unknown[0]}'; there are {', '.join(sorted(KEYS))}")
        if "obs" not in found:
            raise _Refusal(422, "the key 'obs' is missing")
        return found

    def _job(self, given: dict[str, Any], name: Any) -> tuple[Job, Session | None]:
        """Return what is to be computed, and the session that it is a part of."""
        try:
            obs = observation_from_json(self._policy.observation_space, given["obs"])
            asked = self._policy.read(obs, given.get("action_masks"))
        except (ValueError, SpaceError, OverflowError, TypeError) as error:
            raise _Refusal(422, str(error)) from None
        if asked.size > self._limits.rows:
            text = f"a request must have at most {self._limits.rows} observations, got {asked.size}"
            raise _Refusal(413, text)
        starts = given.get("episode_start", name is None)
        starts = self._starts(starts, asked.size)
        if name is None:
            return Job(asked, {}, starts | True), None
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
            raise _Refusal(422, f"session must be a text of 1 to {LONGEST_NAME} characters")
        session = self._sessions.get(name)
        if session is None:
            if not starts.all():
                raise _Refusal(
                    404, f"session '{name}' is unknown or forgotten; begin with episode_start: true"
                )
            session = Session(asked.size, {}, time.monotonic())
            self._sessions.put(name, session)
        if session.busy:
            raise _Refusal(409, f"a request of session '{name}' is under way")
        if session.rows != asked.size:
            text = f"session '{name}' has {session.rows} episodes, got {asked.size} observations"
            raise _Refusal(422, text)
        return Job(asked, session.state, starts), session

    def _starts(self, given: Any, size: int) -> Any:
        flags = given if isinstance(given, list) else [given] * size
        if len(flags) != size or not all(isinstance(flag, bool) for flag in flags):
            raise _Refusal(422, f"episode_start must be true, false, or a list of {size} of them")
        return np.array(flags, np.bool_)


async def _bytes_of(request: Request, most: int) -> bytes:
    """Return the body of a request, of which no more is read than may be there."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise _Refusal(413, f"the body must have at most {most:,} bytes")
    return bytes(body)
