"""The command ``rlox marl``: matches of trained policies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rlox.cli.runs.options import Sampled


def marl_app() -> typer.Typer:
    """Return the command's application."""
    app = typer.Typer(
        add_completion=False, rich_markup_mode=None, no_args_is_help=True,
        help="Play trained policies of several agents.",
    )  # fmt: skip
    app.command("match")(match_command)
    app.callback()(lambda: None)  # keeps the name of the only command
    return app


def match_command(
    first: Annotated[Path, typer.Argument(help="A checkpoint, or a run folder: its latest one.")],
    second: Annotated[
        Path, typer.Argument(help="A checkpoint or a run folder; it plays the other side.")
    ],
    env: Annotated[
        str | None, typer.Option(help="Id of the game; left out: the first's.", metavar="ID")
    ] = None,
    games: Annotated[int, typer.Option(help="Number of games; sides alternate.", min=1)] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the games.", min=0)] = 0,
    stochastic: Sampled = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Let the policies of two runs play each other, and print how many games each has won."""
    from rlox_marl.matches import play_match

    one, other = _load(first, env), _load(second, env)
    game = one.env_source
    if env is None and other.env_source != game:
        raise typer.BadParameter(
            f"{first} was trained on {game} and {second} on {other.env_source}; name the "
            "game with --env"
        )
    result = play_match(
        one, other, game, n_games=games, seed=seed, deterministic=not stochastic,
        env_kwargs=one.env_arguments().get("env_kwargs"),
    )  # fmt: skip
    one.close()
    other.close()
    values = {
        "first": str(first), "second": str(second), "env": str(game), "games": games,
        "wins": result.wins, "draws": result.draws, "losses": result.losses,
        "score": result.score,
    }  # fmt: skip
    if as_json:
        typer.echo(json.dumps(values, indent=2))
        return
    typer.echo(f"{first} against {second}, {games} games of {game}")
    typer.echo(f"  won {result.wins}, drawn {result.draws}, lost {result.losses}")
    typer.echo(f"  score {result.score:.3f}, {result.elo_difference:+.0f} Elo")


def _load(path: Path, env: str | None) -> Any:
    from rlox.cli.runs.folder import find_checkpoint
    from rlox.cli.runs.run import restore

    found: Any = restore(find_checkpoint(path), env, {})
    if not hasattr(found, "predict_team"):
        raise typer.BadParameter(f"{path} holds '{found.name}', which acts for one agent")
    return found
