"""``rlox film``: films of a checkpoint's policy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rlox.cli.output import print_pairs
from rlox.cli.runs.folder import find_checkpoint
from rlox.cli.runs.options import Best, EnvAgain, Sampled
from rlox.cli.runs.run import restore

from rlox_tools.commands import maker_of
from rlox_tools.video import VideoCallback, VideoFormat


def film_command(
    run: Annotated[
        Path, typer.Argument(help="A run folder: its latest checkpoint; or a checkpoint.")
    ],
    best: Best = False,
    env: EnvAgain = None,
    episodes: Annotated[int, typer.Option(help="Number of films, one episode each.", min=1)] = 1,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder; left out: videos, in the run folder.", metavar="FOLDER"),
    ] = None,
    video_format: Annotated[VideoFormat, typer.Option("--format", help="Kind of file.")] = "mp4",
    seed: Annotated[int, typer.Option(help="Seed of the env.", min=0)] = 0,
    stochastic: Sampled = False,
) -> None:
    """Film a checkpoint's policy, of one agent or of a team, without learning."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # SDL warns without a screen
    path = find_checkpoint(run, best=best)
    camera = VideoCallback(
        out or (run if run.is_dir() else Path()) / "videos",
        n_episodes=episodes,
        format=video_format,
        deterministic=not stochastic,
        seed=seed,
    )
    with restore(path, env, {}) as algorithm:
        written = camera.record(algorithm)
    print_pairs({"checkpoint": str(path), "written": ", ".join(map(str, written))})


make_command = maker_of(film_command)
