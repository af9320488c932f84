"""``rlox serve``: a policy's actions over HTTP."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated

import typer

from rlox.cli.output import print_progress
from rlox.errors import ConfigError, import_extra
from rlox.files import read_text

__all__ = ["serve_command"]

SHORTEST_TOKEN = 16

BESIDE = 16
"""Connections beside those that wait, such as of /health."""


def serve_command(
    policy: Annotated[
        Path, typer.Argument(help="A file of `rlox export`, policy.rlox or policy.onnx.")
    ],
    host: Annotated[
        str,
        typer.Option(help="Address to listen on; others than this machine's need --token-file."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0: a free one.", min=0, max=65535)] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with a secret that clients send as Authorization: Bearer.", metavar="FILE"
        ),
    ] = None,
    max_rows: Annotated[
        int, typer.Option(help="Most observations of a request, and of a batch.", min=1)
    ] = 1024,
    max_bytes: Annotated[int, typer.Option(help="Most bytes of a request.", min=1)] = 2**23,
    max_waiting: Annotated[int, typer.Option(help="Most requests that wait.", min=1)] = 256,
    sessions: Annotated[
        int, typer.Option(help="Most episodes that are remembered at once.", min=1)
    ] = 10_000,
    session_seconds: Annotated[
        float, typer.Option(help="Time after which an unused session is forgotten.", min=1)
    ] = 3600.0,
) -> None:
    """Answer with a policy's actions over HTTP, until Ctrl-C.

    Requests that come while others are computed are computed together.
    """
    import_extra("starlette", "rlox serve", "serve")
    from rlox.cli.serving.app import Limits, make_app
    from rlox.cli.web import WebServer, listen
    from rlox.deployment import LoadedTeam, load_policy

    token = None if token_file is None else _token(token_file)
    if token is None and not _is_loopback(host):
        raise ConfigError(
            f"on {host} other machines reach the policy: name a file with a secret with "
            "--token-file, or listen on 127.0.0.1"
        )
    loaded = load_policy(policy)
    if isinstance(loaded, LoadedTeam):
        raise ConfigError(
            f"'{policy}' holds the policies of {', '.join(loaded.agents)}, and one is served; "
            "write one with rlox export --agent NAME"
        )
    if sessions < max_rows:
        raise ConfigError(f"sessions {sessions} must be at least max_rows {max_rows}")
    limits = Limits(max_bytes, max_rows, max_waiting, sessions, session_seconds)
    server = WebServer("serve", limit_concurrency=max_waiting + BESIDE)
    listener = listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listener.getsockname()[1]}"
    print_progress(f"serving {policy} ({loaded.data.algorithm}): {address}  (Ctrl-C ends it)")
    server.run(make_app(loaded, limits, token), listener)


def _token(path: Path) -> str:
    try:
        token = read_text(path).strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"token file '{path}' cannot be read: {error}") from None
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise ConfigError(
            f"token file '{path}' must hold at least {SHORTEST_TOKEN} printable ASCII characters"
        )
    return token


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
