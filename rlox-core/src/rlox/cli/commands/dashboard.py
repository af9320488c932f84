"""``rlox dashboard``: runs under way in the browser."""

from __future__ import annotations

import secrets
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from rlox.cli.output import print_progress
from rlox.errors import ConfigError, import_extra

__all__ = ["dashboard_command"]


def dashboard_command(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Folders of runs, of which new ones are found as they begin.  [default: runs]"
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(help="Port on this machine; 0: a free one.", min=0, max=65535)
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--open", help="Open the page in the default browser.")
    ] = False,
) -> None:
    """Show runs in the browser as they go on, until Ctrl-C.

    Only this machine can reach the page, by the address that is printed: it holds a secret.
    """
    import_extra("starlette", "rlox dashboard", "dashboard")
    from rlox.cli.dashboard.app import make_app
    from rlox.cli.dashboard.guard import Guard
    from rlox.cli.web import WebServer, listen

    roots = runs or [Path("runs")]
    for root in roots:
        if not root.is_dir():
            raise ConfigError(f"'{root}' is no folder; name a folder of runs")
    server = WebServer("dashboard")
    listener = listen("127.0.0.1", port)
    port = listener.getsockname()[1]
    token = secrets.token_urlsafe(24)
    address = f"http://127.0.0.1:{port}/{token}/"
    print_progress(f"dashboard: {address}  (Ctrl-C ends it)")
    if browser:
        webbrowser.open(address)
    app = make_app(roots, lambda: server.is_ending)
    server.run(Guard(app, token, port), listener)
