"""``rlox export``: a checkpoint's policy as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlox.cli.output import print_pairs
from rlox.cli.runs.folder import find_checkpoint
from rlox.cli.runs.restoring import restore

__all__ = ["export_command"]


def export_command(
    checkpoint: Annotated[
        Path,
        typer.Argument(help="A checkpoint, or a run folder: its latest checkpoint."),
    ],
    path: Annotated[
        Path,
        typer.Argument(
            help="The file to write: policy.rlox for rlox.load_policy, policy.onnx for any ONNX "
            "runtime.",
            metavar="FILE",
        ),
    ],
    best: Annotated[
        bool,
        typer.Option("--best", help="Of a run folder, take the best checkpoint by --eval-freq."),
    ] = False,
    env: Annotated[
        str | None,
        typer.Option(help="Id of the env; left out: the one trained on.", metavar="ID"),
    ] = None,
) -> None:
    """Write a checkpoint's policy as one file that acts without torch.

    It holds the network, normalisation, frame stack, memory, action bounds and masks.
    """
    from rlox.deployment import export, load_policy

    found = find_checkpoint(checkpoint, best=best)
    algorithm = restore(found, env, {})
    try:
        export(algorithm, path)
    finally:
        algorithm.close()
    policy = load_policy(path)
    print_pairs(
        {
            "policy": f"{path} ({path.stat().st_size:,} bytes)",
            "checkpoint": f"{found} ({algorithm.name})",
            "observations": str(policy.observation_space),
            "actions": str(policy.action_space),
        }
    )
