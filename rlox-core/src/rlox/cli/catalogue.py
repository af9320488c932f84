"""``rlox list`` and ``rlox explain``: what is installed and what it does."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from rlox import registry
from rlox.cli.flags import default_text, documentation
from rlox.cli.output import console, print_pairs, print_table, print_warning
from rlox.errors import PluginConflictError

__all__ = ["explain_command", "list_command"]

KINDS = {
    "algorithms": "rlox_algorithms",
    "env backends": "rlox_env_backends",
    "loggers": "rlox_loggers",
    "callbacks": "rlox_callbacks",
}

WIDE = 140
"""Columns of a terminal from which an option's source gets a column of its own."""


def list_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the installed algorithms, env backends, loggers and callbacks."""
    catalogue = {title: _entries(hook) for title, hook in KINDS.items()}
    conflicts = registry.get_registry().conflicts()
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
    found, entries = registry.get_registry(), []
    for name in found.names(hook):
        try:
            registration = found.get(hook, name)
        except PluginConflictError:
            continue
        entries.append(
            {
                "name": name,
                "distribution": registration.distribution,
                "summary": registration.spec.summary,
            }
        )
    return entries


def explain_command(
    algorithm: Annotated[str, typer.Argument(help="A name that `rlox list` shows.")],
) -> None:
    """Show an algorithm's paper, its distribution and all its options."""
    spec = registry.spec(algorithm)
    registration = registry.get_registry().get("rlox_algorithms", algorithm)
    print_pairs(
        {
            spec.name: spec.summary,
            "paper": spec.paper or "-",
            "distribution": registration.distribution,
            "needs": ", ".join(spec.needs),
        }
    )
    options = {
        name: (default_text(field), *documentation(field))
        for name, field in registry.config_class(algorithm).model_fields.items()
    }
    if console().width >= WIDE:
        print_table(
            ("option", "default", "unit", "meaning", "source"),
            [
                (name, default, unit, description, source)
                for name, (default, description, unit, source) in options.items()
            ],
            whole=("option",),
        )
    else:
        print_table(
            ("option", "default", "meaning (unit; source)"),
            [
                (name, default, f"{description}\n({unit}; {source})")
                for name, (default, description, unit, source) in options.items()
            ],
            whole=("option", "default"),
        )
