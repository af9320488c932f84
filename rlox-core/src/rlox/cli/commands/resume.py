"""``rlox resume``: continuation of interrupted runs."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from rlox.cli.runs.options import (
    Added,
    EnvAgain,
    PreferenceAgain,
    RewardAgain,
    added_to,
    code_given,
    exit_code_of,
    with_options,
)
from rlox.errors import missing_extra
from rlox.registry.families import ELSEWHERE


def resume_app() -> typer.Typer:
    """Return the command, with the options that plugins add."""
    of_call = inspect.signature(_resume, eval_str=True).parameters.values()
    own = [p.replace(kind=p.KEYWORD_ONLY) for p in of_call if p.kind is p.POSITIONAL_OR_KEYWORD]
    functions = added_to("resume", (p.name for p in own))
    added = [p for _, options in functions for p in options]

    def command(**arguments: Any) -> None:
        _resume(functions=functions, **arguments)

    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(help=_resume.__doc__)(with_options(command, [*own, *added]))
    return app


def _resume(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run folder, one of its checkpoints to go back to, or the folder of a sweep; "
            "of a run folder the latest checkpoint that is not damaged."
        ),
    ],
    env: EnvAgain = None,
    reward: RewardAgain = None,
    preference: PreferenceAgain = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    *,
    functions: Added,
    **added: Any,
) -> None:
    """Finish an interrupted training in its run folder, as if nothing had happened."""
    from rlox.cli.runs.run import resume_in_folder

    parts = code_given(reward, preference)
    code = exit_code_of(functions, added, run, env, parts, quiet)
    if code is not None:
        raise typer.Exit(code)
    if (run / "sweep.json").is_file():
        raise missing_extra(f"the sweep '{run}'", ELSEWHERE["rlox_run_options", "sweeps"])
    raise typer.Exit(resume_in_folder(run, env=env, quiet=quiet, parts=parts))
