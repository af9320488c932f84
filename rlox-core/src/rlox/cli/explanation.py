"""``rlox explain``: what an algorithm does."""

from __future__ import annotations

from typing import Annotated

import typer

from rlox import registry
from rlox.cli.flags import default_text, documentation
from rlox.cli.output import console, print_pairs, print_table

__all__ = ["explain_command"]

WIDE = 140
"""Columns of a terminal from which an option's source gets a column of its own."""


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
