"""The dashboard's web application."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from rlox.analysis.runs import FILMS, open_in_run
from rlox.cli.dashboard.events import Subscription
from rlox.cli.dashboard.watching import WatchedRun, Watcher

__all__ = ["make_app"]

ASSETS = {
    "": ("index.html", "text/html; charset=utf-8"),
    "dashboard.js": ("dashboard.js", "text/javascript; charset=utf-8"),
    "chart.js": ("chart.js", "text/javascript; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
    "style.css": ("style.css", "text/css; charset=utf-8"),
}
"""From each path, the file in the package and its media type."""

INTERVAL = 0.2
"""Seconds between two looks at the runs."""

GATHERED = 0.05
"""Seconds for which changes are gathered before they are sent."""

QUIET = 15.0
"""Seconds after which a stream without news sends a comment, to notice who is gone."""

MOST_COMPARED = 64


def make_app(roots: Sequence[Path], is_ending: Callable[[], bool]) -> Starlette:
    """Return the application for the runs in folders, to be put behind a guard.

    Args:
        roots: the folders.
        is_ending: whether streams should end.
    """
    watcher = Watcher(roots)
    news = asyncio.Event()

    @asynccontextmanager
    async def following(_app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(_follow(watcher, news, is_ending))
        task.add_done_callback(_report)
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    def run_of(request: Request) -> WatchedRun:
        found = watcher.runs.get(request.path_params["number"])
        if found is None:
            raise HTTPException(404)
        return found

    async def asset(request: Request) -> Response:
        name, kind = ASSETS[request.path_params.get("name", "")]
        return Response((Path(__file__).parent / "assets" / name).read_bytes(), media_type=kind)

    async def events(request: Request) -> Response:
        metric = request.query_params.get("metric", "mean_reward")
        stream = _stream(Subscription(watcher, metric), news, is_ending)
        return StreamingResponse(stream, media_type="text/event-stream")

    async def details(request: Request) -> Response:
        try:
            return JSONResponse(run_of(request).details())
        except OSError as error:
            return JSONResponse({"problem": str(error)}, status_code=500)

    async def film(request: Request) -> Response:
        run, name = run_of(request), request.path_params["name"]
        kind = FILMS.get(Path(name).suffix)
        try:
            open_in_run(run.path, name).close()
        except (OSError, ValueError):
            kind = None
        if kind is None:
            raise HTTPException(404)
        return FileResponse(run.path / name, media_type=kind)

    async def compare(request: Request) -> Response:
        texts = request.query_params.getlist("run")[:MOST_COMPARED]
        return JSONResponse(watcher.compare([int(text) for text in texts if text.isdecimal()]))

    assets = [Route(f"/{name}", _asset_named(asset, name)) for name in ASSETS]
    routes = [
        *assets,
        Route("/events", events),
        Route("/compare", compare),
        Route("/runs/{number:int}", details),
        Route("/runs/{number:int}/films/{name:path}", film),
    ]
    return Starlette(routes=routes, lifespan=following)


def _asset_named(answer: Any, name: str) -> Any:
    async def asset(request: Request) -> Response:
        request.path_params["name"] = name
        response: Response = await answer(request)
        return response

    return asset


def _report(task: asyncio.Task[None]) -> None:
    """Print why nothing is followed any more."""
    if not task.cancelled() and task.exception() is not None:
        traceback.print_exception(task.exception())


async def _follow(watcher: Watcher, news: asyncio.Event, is_ending: Callable[[], bool]) -> None:
    """Read what changes for ever, and wake the streams."""
    seen = 0
    while True:
        for _ in watcher.steps():
            if watcher.version != seen:
                seen = watcher.version
                news.set()
            await asyncio.sleep(0)
        await asyncio.sleep(INTERVAL)
        if is_ending():
            news.set()


async def _stream(
    subscription: Subscription, news: asyncio.Event, is_ending: Callable[[], bool]
) -> AsyncIterator[bytes]:
    yield b": open\n\n"
    while not is_ending():
        for each in subscription.news():
            yield each
        await asyncio.sleep(GATHERED)
        if subscription.is_behind:
            continue
        news.clear()
        try:
            await asyncio.wait_for(news.wait(), QUIET)
        except asyncio.TimeoutError:
            yield b": still here\n\n"
