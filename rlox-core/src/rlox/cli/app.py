"""Lazily imported commands of the ``rlox`` command line."""

from __future__ import annotations

import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import rlox
from rlox.errors import PluginWarning, UnknownNameError, suggest
from rlox.registry.families import extra_of
from rlox.registry.table import Registration, get_registry, resolve

COMMANDS = {
    "train": ("rlox.cli.commands.train:train_app", "Train an algorithm on an env."),
    "resume": ("rlox.cli.commands.resume:resume_app", "Finish an interrupted training."),
    "eval": (
        "rlox.cli.commands.evaluate:eval_command",
        "Run a checkpoint's policy without learning.",
    ),
    "list": ("rlox.cli.commands.explain:list_command", "List algorithms and plugins."),
    "explain": (
        "rlox.cli.commands.explain:explain_command",
        "Show an algorithm and all its options.",
    ),
    "doctor": (
        "rlox.cli.commands.doctor:doctor_command",
        "Show versions, backends, devices and missing parts, to paste into an issue.",
    ),
}
"""Location and summary of each command of core, in order of use.

``train`` and ``resume``, which plugins add options to, are functions returning the command. Other
distributions add theirs through the hook ``rlox_commands``.
"""

EXAMPLES = """\b
Examples:
  rlox list
  rlox explain ppo
  rlox train ppo --env CartPole-v1
  rlox resume runs/<run folder>
  rlox eval runs/<run folder>"""


class CommandGroup(TyperGroup):
    """The commands of :data:`COMMANDS` and of plugins, which are only loaded if needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands' names."""
        return [*COMMANDS, *(each.spec.name for each in plugin_commands())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command ``cmd_name``.

        Raises:
            UnknownNameError: there is no such command; the text has the nearest names.
            MissingDependencyError: it is one of rlox's own, and its distribution is not installed.
        """
        if cmd_name in ("train", "resume"):
            app = resolve(COMMANDS[cmd_name][0])()
        elif cmd_name in COMMANDS:
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            app.command(cmd_name)(resolve(COMMANDS[cmd_name][0]))
        elif (
            cmd_name in get_registry().names("rlox_commands")
            or extra_of("rlox_commands", cmd_name) is not None
        ):
            app = get_registry().get("rlox_commands", cmd_name).build()
        else:
            near = suggest(cmd_name, self.list_commands(ctx))
            if cmd_name.lower() in get_registry().names("rlox_algorithms"):
                near = f"; did you mean 'rlox train {cmd_name.lower()}'?"
            raise UnknownNameError(f"no such command '{cmd_name}'{near}")
        command = typer.main.get_command(app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands' summaries, without importing them."""
        with formatter.section("Commands"):
            rows = [(name, summary) for name, (_, summary) in COMMANDS.items()]
            rows += [(each.spec.name, each.spec.summary) for each in plugin_commands()]
            formatter.write_dl(rows)
        for sentence in hidden_commands():
            warnings.warn(sentence, PluginWarning, stacklevel=1)


def plugin_commands() -> list[Registration]:
    """Return the commands of plugins, without conflicting ones and ones hidden by core's."""
    found = get_registry().usable("rlox_commands")
    return [each for each in found if each.spec.name not in COMMANDS]


def hidden_commands() -> list[str]:
    """Return one sentence for every command of a plugin that a command of core hides."""
    return [
        f"the command '{each.spec.name}' of the distribution '{each.distribution}' is left out: "
        "rlox has one of that name; give it another"
        for each in get_registry().usable("rlox_commands")
        if each.spec.name in COMMANDS
    ]


def build_app() -> typer.Typer:
    """Return the command line."""
    app = typer.Typer(
        cls=CommandGroup,
        help="Train and evaluate reinforcement-learning agents.",
        epilog=EXAMPLES,
        add_completion=True,
        # panels truncate long flags at 80 columns
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
