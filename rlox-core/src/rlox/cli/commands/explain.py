"""``rlox list`` and ``rlox explain``: installed plugins, and details of one of them."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Annotated

import typer

from rlox import registry
from rlox.cli.app import hidden_commands, plugin_commands
from rlox.cli.output import console, print_pairs, print_table, print_warning
from rlox.errors import ConfigError
from rlox.registry.table import get_registry, resolve

KINDS = {
    "algorithms": "rlox_algorithms",
    "env backends": "rlox_env_backends",
    "replay buffers": "rlox_buffers",
    "learner backends": "rlox_learner_backends",
    "actor backends": "rlox_actor_backends",
    "policy losses": "rlox_policy_losses",
    "preference losses": "rlox_preference_losses",
    "loggers": "rlox_loggers",
    "callbacks": "rlox_callbacks",
    "commands": "rlox_commands",
    "files of presets": "rlox_presets",
}


def list_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    presets: Annotated[
        bool, typer.Option("--presets", help="Show tuned options of algorithms for envs instead.")
    ] = False,
) -> None:
    """List installed algorithms, env backends, replay buffers, loggers and so on."""
    if presets:
        _list_presets(as_json)
        return
    catalogue = {title: _entries(hook) for title, hook in KINDS.items()}
    conflicts = [*get_registry().conflicts(), *hidden_commands()]
    if as_json:
        named = {title.replace(" ", "_"): entries for title, entries in catalogue.items()}
        typer.echo(json.dumps({**named, "conflicts": conflicts}, indent=2))
        return
    rows = [
        (title if i == 0 else "", entry["name"], entry["distribution"], entry["summary"])
        for title, entries in catalogue.items()
        for i, entry in enumerate(entries or [{"name": "none", "distribution": "", "summary": ""}])
    ]
    print_table(("kind", "name", "distribution", "summary"), rows, whole=("kind", "name"))
    for conflict in conflicts:
        print_warning(conflict)


def _entries(hook: str) -> list[dict[str, str]]:
    commands = hook == "rlox_commands"
    return [
        {
            "name": registration.spec.name,
            "distribution": registration.distribution,
            "summary": registration.spec.summary,
        }
        for registration in (plugin_commands() if commands else get_registry().usable(hook))
    ]


def _list_presets(as_json: bool) -> None:
    """Print the presets with their expected scores and the sources of these."""
    from rlox.config.presets import list_presets

    found = list_presets()
    if as_json:
        typer.echo(json.dumps([preset.model_dump() for preset in found], indent=2))
        return
    rows = [
        (
            preset.algorithm,
            preset.env,
            preset.name,
            f"{preset.steps:,}",
            "-" if preset.score is None else f"{preset.score:g} (-{preset.tolerance:g})",
            preset.evidence,
            preset.source,
        )
        for preset in found
    ]
    columns = ("algorithm", "env", "preset", "steps", "score", "evidence", "source")
    print_table(columns, rows, whole=columns[:3])


WIDE = 140
"""Width of a terminal from which options' sources get a column of their own."""


def explain_command(
    algorithm: Annotated[
        str, typer.Argument(help="A name that `rlox list` shows.", metavar="NAME")
    ],
    env: Annotated[
        str | None,
        typer.Option(help="Id of an env: show what would learn there, and why.", metavar="ID"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="With --env, YAML or JSON file with options.", metavar="FILE"),
    ] = None,
) -> None:
    """Show an algorithm's paper, its distribution and all its options; or what a plugin is."""
    if config is not None and env is None:
        raise ConfigError("--config says how to train on an env; pass --env too")
    if algorithm not in registry.list_algorithms() and _explain_others(algorithm):
        return
    spec = registry.spec(algorithm)
    registration = registry.get_registry().get("rlox_algorithms", algorithm)
    print_pairs(
        {
            spec.name: spec.summary,
            "paper": spec.paper or "-",
            "distribution": registration.distribution,
            "needs": ", ".join(spec.needs),
        },
        width=12,
    )
    from rlox.cli.flags import all_fields, default_text, documentation  # slow

    fields = all_fields(registry.config_class(algorithm))
    if env is not None:
        print_pairs(_choices(algorithm, env, config), width=12)
    rows: list[tuple[str, ...]] = []
    for name, (field, owner) in fields.items():
        meaning, unit, source = documentation(field)
        meaning = f"with {owner}: " * bool(owner) + meaning
        rows.append((name, default_text(field), unit, meaning, source))
    if console().width >= WIDE:
        columns: tuple[str, ...] = ("option", "default", "unit", "meaning", "source")
        print_table(columns, rows, whole=columns[:1])
        return
    columns = ("option", "default", "meaning (unit; source)")
    rows = [(name, default, f"{text}\n({unit}; {src})") for name, default, unit, text, src in rows]
    print_table(columns, rows, whole=columns[:2])


def _explain_others(name: str) -> bool:
    """Describe the plugins of other kinds with this name; return whether there are any."""
    found = [
        (title, each)
        for title, hook in KINDS.items()
        for each in registry.get_registry().usable(hook)
        if each.spec.name == name and hook != "rlox_algorithms"
    ]
    for title, each in found:
        factory = getattr(each.spec, "factory", "")
        print_pairs(
            {
                name: each.spec.summary,
                "kind": title,
                "distribution": each.distribution,
                **({"made by": factory.replace(":", ".")} if factory else {}),
            }
        )
        if factory:
            typer.echo(f"\n{_documentation_of(factory)}\n")
        elif title == "commands":
            typer.echo(f"\nrlox {name} --help shows its flags.\n")
    return bool(found)


def _documentation_of(factory: str) -> str:
    """Return the docstring of a plugin's factory, or the name of the missing library."""
    try:
        return inspect.getdoc(resolve(factory)) or ""
    except ModuleNotFoundError as error:
        return f"It needs {error.name}, which is not installed."


def _choices(algorithm: str, env: str, config: Path | None) -> dict[str, str]:
    """Return the backends chosen for a training on ``env``, and the reasons."""
    # `rlox list` imports no gymnasium
    from rlox.algorithm import make
    from rlox.envs.make import choose_backend
    from rlox.envs.teams import choose_team_backend

    with make(algorithm, env, config=config) as made:
        learner = "there is no choice" if made.learner is None else str(made.learner)
        cfg = made.config
        if not hasattr(cfg, "env_backend"):
            return {"learner": learner}
        kwargs = getattr(cfg, "env_kwargs", None)
        chosen, reason = choose_team_backend(
            env, cfg.env_backend, kwargs, getattr(cfg, "vectorization", "sync")
        )
        if chosen is None:
            chosen, reason = choose_backend(env, cfg.env_backend, cfg.vectorization, kwargs)
    return {"env backend": f"{chosen.spec.name}: {reason}", "learner": learner}
