"""``rlox verify``: a published training, replayed in part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rlox.cli.commands.doctor import processor
from rlox.cli.output import print_pairs
from rlox.errors import RunError
from rlox.files import read_text

from rlox_tools.commands import maker_of


def verify_command(
    cell: Annotated[Path, typer.Argument(help="JSON file of a task in scores/evidence.")],
    seed: Annotated[int, typer.Option(help="Which of its runs.")] = 0,
    segment: Annotated[
        int, typer.Option(help="Which tenth; later ones than the first need --run.", min=1, max=10)
    ] = 1,
    run: Annotated[
        Path | None, typer.Option(help="Folder of the run's checkpoints.", metavar="FOLDER")
    ] = None,
) -> None:
    """Train a tenth of a published run again, and compare the parameters' hash and the curve."""
    from rlox_tools.evidence import train

    try:
        known = json.loads(read_text(cell))
        kept = {each["seed"]: each for each in known["runs"]}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise RunError(
            f"'{cell}' is not a task's file, such as scores/evidence/ppo-Hopper-v5.json: {error!r}"
        ) from None
    if seed not in kept:
        raise RunError(f"'{cell}' has no run of seed {seed}; it has {', '.join(map(str, kept))}")
    ends, start = kept[seed]["segments"], None
    if segment > 1:
        if run is None:
            raise RunError(f"segment {segment} begins at a checkpoint; name its folder by --run")
        start = run / f"step-{ends['env_steps'][segment - 2]}.safetensors"
    found = train(known, seed, until=segment, start=start)
    here = found["curve"]["mean_return"]
    curves = np.array([each["curve"]["mean_return"][: len(here)] for each in known["runs"]])
    outside = np.maximum(curves.min(0) - here, here - curves.max(0)).max(initial=0.0)
    hashes = found["segments"]["hash"][segment - 1], ends["hash"][segment - 1]
    cpu = kept[seed]["machine"]["cpu"]
    same = cpu == processor()
    print_pairs(
        {
            "hash": f"{hashes[0]}, published {hashes[1]}",
            "processor": "of the same type" if same else f"not {cpu}",
            "curve": f"at most {outside:.1f} outside the range of the {len(curves)} seeds",
        }
    )
    if same and hashes[0] != hashes[1]:
        raise RunError(
            "the hashes differ on one type of processor; compare versions and commit in the file"
        )


make_command = maker_of(verify_command)
