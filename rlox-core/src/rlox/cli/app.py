"""The commands, each imported when it is called, so that looking around costs little."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

import rlox
from rlox.registry import get_registry
from rlox.specs import CommandSpec, resolve

__all__ = ["COMMANDS", "build_app"]

COMMANDS = {
    "train": ("rlox.cli.training:train_app", "Train an algorithm on an env."),
    "resume": ("rlox.cli.resuming:resume_command", "Finish an interrupted training."),
    "eval": ("rlox.cli.evaluation:eval_command", "Run a checkpoint's policy without learning."),
    "plot": ("rlox.cli.plotting:plot_command", "Draw learning curves of runs and sweeps."),
    "bench": ("rlox.cli.benching:bench_command", "Measure speed next to other libraries."),
    "list": ("rlox.cli.catalogue:list_command", "Show what is installed."),
    "explain": ("rlox.cli.explanation:explain_command", "Show an algorithm and all its options."),
}
"""From each command of core, in the order in which they are used, where it is and what it does.

Other distributions add theirs through the hook ``rlox_commands``.
"""

EXAMPLES = """\b
Examples:
  rlox list
  rlox explain ppo
  rlox train ppo --env CartPole-v1
  rlox resume runs/<run folder>
  rlox eval runs/<run folder>
  rlox plot runs/<run or sweep folder>"""


class CommandGroup(TyperGroup):
    """The commands of :data:`COMMANDS` and of plugins, which are asked only if need be."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands' names."""
        return [*COMMANDS, *plugin_commands()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command ``cmd_name``, or none."""
        if cmd_name not in COMMANDS and cmd_name not in plugin_commands():
            return None
        own = cmd_name in COMMANDS
        found = resolve(COMMANDS[cmd_name][0] if own else plugin_commands()[cmd_name].factory)
        if not own or cmd_name == "train":
            command = typer.main.get_command(found())
        else:
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            app.command(cmd_name)(found)
            command = typer.main.get_command(app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write what the commands do, without importing them."""
        with formatter.section("Commands"):
            rows = [(name, summary) for name, (_, summary) in COMMANDS.items()]
            rows += [(spec.name, spec.summary) for spec in plugin_commands().values()]
            formatter.write_dl(rows)


def plugin_commands() -> dict[str, CommandSpec]:
    """Return the commands of plugins by name, without those that a command of core hides."""
    registry = get_registry()
    return {
        name: cast("CommandSpec", registry.get("rlox_commands", name).spec)
        for name in registry.names("rlox_commands")
        if name not in COMMANDS
    }


def build_app() -> typer.Typer:
    """Return the command line."""
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
