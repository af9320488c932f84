"""The commands, one module each."""

from __future__ import annotations

from collections.abc import Callable

import typer

__all__ = ["maker_of"]


def maker_of(command: Callable[..., None]) -> Callable[[], typer.Typer]:
    """Return a function that makes the app of one command."""

    def make() -> typer.Typer:
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command()(command)
        return app

    return make
