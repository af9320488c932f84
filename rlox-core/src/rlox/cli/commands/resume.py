"""``rlox resume``: continuation of interrupted runs and sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlox.errors import ConfigError

__all__ = ["resume_command"]


def resume_command(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run folder, one of its checkpoints to go back to, or the folder of a sweep or "
            "of `rlox tune`; of a run folder the latest checkpoint that is not damaged."
        ),
    ],
    env: Annotated[
        str | None,
        typer.Option(help="Id of the env; left out: the one trained on.", metavar="ID"),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Of several runs, how many at once; left out: one per core.", min=1, metavar="N"
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            help="Of several runs, where they are executed: ray or ray:HOST:PORT; left out: on "
            "this machine.",
            metavar="PLACE",
        ),
    ] = None,
    reward: Annotated[
        str | None,
        typer.Option(
            help="Function that rewards completions, given again.", metavar="MODULE:FUNCTION"
        ),
    ] = None,
    preference: Annotated[
        str | None,
        typer.Option(
            help="Function that picks the better completion, given again.",
            metavar="MODULE:FUNCTION",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Finish an interrupted training in its run folder, as if nothing had happened."""
    from rlox.cli.runs.run import resume_in_folder
    from rlox.cli.sweeps.folder import Sweep
    from rlox.cli.sweeps.sweeping import resume_sweep
    from rlox.cli.tuning.folder import TuningFolder
    from rlox.cli.tuning.trials import resume_tuning

    given = {"reward_fn": reward, "preference_fn": preference}
    parts = {name: text for name, text in given.items() if text is not None}
    if Sweep.is_in(run):
        raise typer.Exit(resume_sweep(run, jobs=jobs, env=env, quiet=quiet, parts=parts, on=on))
    if TuningFolder.is_in(run):
        if env is not None or parts:
            raise ConfigError("the trials go on as they began; leave --env and functions out")
        raise typer.Exit(resume_tuning(run, jobs=jobs, quiet=quiet, on=on))
    if jobs is not None:
        raise ConfigError(f"--jobs is for a sweep, and '{run}' is none")
    if on is not None:
        raise ConfigError(f"--on is for a sweep, and '{run}' is none")
    raise typer.Exit(resume_in_folder(run, env=env, quiet=quiet, parts=parts))
