"""Web servers of the command line: listening sockets and uvicorn."""

from __future__ import annotations

import socket
from typing import Any

from rlox.errors import ConfigError, import_extra

__all__ = ["WebServer", "listen"]

BACKLOG = 128

GRACE = 3
"""Seconds that answers under way are given after a signal."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one.

    Raises:
        ConfigError: the address cannot be used.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, socket.SOCK_STREAM)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            found.listen(BACKLOG)
        except BaseException:
            found.close()
            raise
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error}; name another --port") from None
    return found


class WebServer:
    """Answers requests until a signal comes.

    Args:
        extra: that brings uvicorn, named after the command.
        options: of ``uvicorn.Config``.

    Raises:
        MissingDependencyError: uvicorn is not installed.
    """

    def __init__(self, extra: str, **options: Any) -> None:
        self._uvicorn = import_extra("uvicorn", f"rlox {extra}", extra)
        self._options = options
        self._server: Any = None

    @property
    def is_ending(self) -> bool:
        """Whether a signal came: streams without an end should end now."""
        return self._server is not None and bool(self._server.should_exit)

    def run(self, app: Any, listener: socket.socket) -> None:
        """Answer with an ASGI application on what :func:`listen` returned, and close it."""
        config = self._uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,  # addresses may hold secrets
            server_header=False,
            timeout_graceful_shutdown=GRACE,
            ws="none",
            **self._options,
        )
        self._server = self._uvicorn.Server(config)
        with listener:
            self._server.run(sockets=[listener])
