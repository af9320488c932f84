"""The commands, put together."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import rlox
from rlox.cli.catalogue import explain_command, list_command
from rlox.cli.evaluation import eval_command
from rlox.cli.training import train_app

__all__ = ["build_app"]

EXAMPLES = """\b
Examples:
  rlox list
  rlox explain ppo
  rlox train ppo --env CartPole-v1
  rlox eval runs/<run folder>"""


class CommandGroup(TyperGroup):
    """Lists the commands in the order in which they are used."""

    def list_commands(self, _ctx: Any) -> list[str]:
        """Return the commands' names."""
        return ["train", "eval", "list", "explain"]


def build_app() -> typer.Typer:
    """Return the command line with one training command per registered algorithm."""
    app = typer.Typer(
        cls=CommandGroup,
        help="Train and evaluate reinforcement-learning agents.",
        epilog=EXAMPLES,
        add_completion=False,
        # panels cut long flags off at 80 columns
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    app.add_typer(train_app(), name="train")
    app.command("eval")(eval_command)
    app.command("list")(list_command)
    app.command("explain")(explain_command)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rlox {rlox.__version__}")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass
