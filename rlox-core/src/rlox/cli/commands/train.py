"""``rlox train <algorithm>``: training commands with config flags."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import typer
from typer.core import TyperGroup

from rlox import registry
from rlox.cli.flags import GroupedCommand, flags_of, given_options
from rlox.cli.runs.options import RunOptions, added_to, exit_code_of, part_parameters, with_options
from rlox.config.model import Config, resolve_config
from rlox.config.presets import full_name, list_presets
from rlox.errors import ConfigError, RloxError

RUN_PARAMETERS = {
    p.name: p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
    for p in inspect.signature(RunOptions).parameters.values()
    if p.name != "parts"
}


CONTEXT = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
"""The parser's context, with the flags that were given."""


class AlgorithmGroup(TyperGroup):
    """The training commands, each made when it is used: making all takes a second."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the algorithms' names."""
        return [each.spec.name for each in registry.get_registry().usable("rlox_algorithms")]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of the algorithm ``cmd_name``; errors: see :func:`train_function`."""
        try:
            function = train_function(cmd_name)
        except RloxError:
            if ctx.resilient_parsing:  # the shell completes
                return None
            raise
        spec = registry.spec(cmd_name)
        epilog = f"Paper: {spec.paper or '-'}"
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(cmd_name, cls=GroupedCommand, help=spec.summary, epilog=epilog)(function)
        return typer.main.get_command(app)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the algorithms' summaries, without importing them."""
        rows = [(name, registry.spec(name).summary) for name in self.list_commands(ctx)]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def train_app() -> typer.Typer:
    """Return the group of training commands; it imports one algorithm's config, never torch."""
    app = typer.Typer(
        cls=AlgorithmGroup,
        add_completion=False,
        rich_markup_mode=None,
        help="Train an algorithm on an env and keep the results in a run folder.",
        invoke_without_command=True,
        subcommand_metavar="ALGORITHM [OPTIONS]",
    )
    app.callback()(_show_help)
    return app


def _show_help(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def train_function(name: str) -> Callable[..., None]:
    """Return a function whose signature has a flag for every option of the algorithm ``name``.

    A field with the name of one of the run's own flags, or of a part of the algorithm, gets no
    flag; ``--config`` can set it.

    Raises:
        RloxError: the algorithm is unknown, not installed, claimed twice or broken.
    """
    config_class = registry.config_class(name)
    spec = registry.spec(name)
    added = added_to("train", RUN_PARAMETERS)
    added_parameters = [p for _, options in added for p in options]
    taken = {*RUN_PARAMETERS, *(p.name for p in added_parameters), *spec.needs, *spec.takes}
    flags = [parameter for parameter in flags_of(config_class) if parameter.name not in taken]
    run_parameters = list(RUN_PARAMETERS.values())
    if "env" in spec.needs:
        run_parameters[0] = run_parameters[0].replace(default=inspect.Parameter.empty)
    elif not spec.env:
        del run_parameters[0]
    parts = list(part_parameters(spec.needs, spec.takes))

    def command(ctx: typer.Context, **arguments: Any) -> None:
        of_plugins = {p.name: arguments.pop(p.name) for p in added_parameters}
        given = {p.name: arguments.pop(p.name) for p in parts}
        options = RunOptions(
            **{p.name: arguments.pop(p.name) for p in run_parameters},
            parts={name: text for name, text in given.items() if text is not None},
        )
        if options.eval_freq and spec.env and options.env is None:
            raise ConfigError("--eval-freq evaluates in an env; pass --env too")
        if options.ray:
            arguments |= _on_ray(config_class, arguments)
        given_flags = given_options(config_class, arguments)
        if options.preset is not None:
            given_flags["preset"] = full_name(name, options.env, options.preset)
        config = resolve_config(config_class, options.config, **given_flags)
        if getattr(ctx.get_parameter_source("total_timesteps"), "name", "") == "DEFAULT":
            options = dataclasses.replace(options, total_timesteps=_steps(name, config, options))
        code = exit_code_of(added, of_plugins, name, config, options)
        if code is None:
            options.begin(name)
            from rlox.cli.runs.run import train_in_folder  # slow, as it imports gymnasium

            code = train_in_folder(name, config, options)
        raise typer.Exit(code)

    return with_options(command, [CONTEXT, *run_parameters, *added_parameters, *parts, *flags])


def _on_ray(config_class: type[Config], arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the option that ``--ray`` stands for.

    Raises:
        ConfigError: there is no such option, or it is also given with another value.
    """
    found = [n for n in ("actor_backend", "env_backend") if n in config_class.model_fields]
    if not found:
        raise ConfigError("--ray is for algorithms that step envs; leave it out")
    name, given = found[0], arguments.get(found[0])
    if given not in (None, "ray"):
        flag = f"--{name.replace('_', '-')}"
        raise ConfigError(f"--ray is {flag} ray, got {flag} {given} too; give one of them")
    return {name: "ray"}


def _steps(name: str, config: Config, options: RunOptions) -> int:
    """Return the steps of the config's preset; the default if there is none or it is gone."""
    full = getattr(config, "preset", None)
    found = (preset.steps for preset in list_presets(name) if preset.full_name == full)
    return next(found, options.total_timesteps)
