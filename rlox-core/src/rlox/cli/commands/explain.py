"""``rlox explain``: description of an algorithm, its sources and config."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlox import api, registry
from rlox.cli.flags import default_text, documentation
from rlox.cli.output import console, print_pairs, print_table
from rlox.errors import ConfigError

__all__ = ["explain_command"]

WIDE = 140
"""Columns of a terminal from which an option's source gets a column of its own."""


def explain_command(
    algorithm: Annotated[str, typer.Argument(help="A name that `rlox list` shows.")],
    env: Annotated[
        str | None,
        typer.Option(help="Id of an env: show what would learn there, and why.", metavar="ID"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="With --env, YAML or JSON file with options.", metavar="FILE"),
    ] = None,
) -> None:
    """Show an algorithm's paper, its distribution and all its options."""
    if config is not None and env is None:
        raise ConfigError("--config says how to train on an env; pass --env too")
    spec = registry.spec(algorithm)
    registration = registry.get_registry().get("rlox_algorithms", algorithm)
    fields = registry.config_class(algorithm).model_fields
    print_pairs(
        {
            spec.name: spec.summary,
            "paper": spec.paper or "-",
            "distribution": registration.distribution,
            "needs": ", ".join(spec.needs),
            **({} if env is None else {"learner": _learner(algorithm, env, config)}),
        }
    )
    options = {name: (default_text(field), *documentation(field)) for name, field in fields.items()}
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


def _learner(algorithm: str, env: str, config: Path | None) -> str:
    """Return the learner backend that a training on ``env`` takes, and the reason."""
    with api.make(algorithm, env, config=config) as made:
        return "there is no choice" if made.learner is None else str(made.learner)
