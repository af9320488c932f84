"""``rlox list``: installed plugins and registered names."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from rlox.cli.app import hidden_commands, plugin_commands
from rlox.cli.output import print_table, print_warning
from rlox.config.presets import list_presets
from rlox.registry.table import get_registry

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
    """Show what is installed: algorithms, env backends, replay buffers, loggers and so on."""
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
    """Print the presets with the scores to expect, and who measured them."""
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
