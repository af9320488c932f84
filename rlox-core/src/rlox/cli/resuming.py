"""``rlox resume``: finish what was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["resume_command"]


def resume_command(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run folder, or one of its checkpoints to go back to; of a folder the latest "
            "checkpoint that is not damaged."
        ),
    ],
    env: Annotated[
        str | None,
        typer.Option(help="Id of the env; left out: the one trained on.", metavar="ID"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Finish an interrupted training in its run folder, as if nothing had happened."""
    from rlox.cli.session import resume_in_folder

    raise typer.Exit(resume_in_folder(run, env=env, quiet=quiet))
