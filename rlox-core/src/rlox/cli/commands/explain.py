"""``rlox explain``: description of an algorithm, its sources and config."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlox import api, registry
from rlox.cli.flags import all_fields, default_text, documentation
from rlox.cli.output import console, print_pairs, print_table
from rlox.envs.make import choose_backend
from rlox.envs.teams import choose_team_backend
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
    fields = all_fields(registry.config_class(algorithm))
    print_pairs(
        {
            spec.name: spec.summary,
            "paper": spec.paper or "-",
            "distribution": registration.distribution,
            "needs": ", ".join(spec.needs),
            **({} if env is None else _choices(algorithm, env, config)),
        }
    )
    options = {
        name: (default_text(field), f"with {owner}: " * bool(owner) + meaning, unit, source)
        for name, (field, owner) in fields.items()
        for meaning, unit, source in [documentation(field)]
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


def _choices(algorithm: str, env: str, config: Path | None) -> dict[str, str]:
    """Return the backends that a training on ``env`` takes, and the reasons."""
    with api.make(algorithm, env, config=config) as made:
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
