"""``rlox export``: a checkpoint's policy, or one of Stable-Baselines3, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rlox.cli.output import print_pairs
from rlox.cli.runs.folder import find_checkpoint
from rlox.cli.runs.options import Best, EnvAgain
from rlox.cli.runs.run import restore
from rlox.errors import ConfigError

from rlox_tools.commands import maker_of

if TYPE_CHECKING:
    from rlox.deployment import LoadedPolicy


def export_command(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            help="A checkpoint, or a run folder: its latest checkpoint; or a model.zip of "
            "Stable-Baselines3, which needs --env."
        ),
    ],
    path: Annotated[
        Path,
        typer.Argument(
            help="The file to write: policy.rlox for rlox.load_policy, policy.onnx for any ONNX "
            "runtime.",
            metavar="FILE",
        ),
    ],
    best: Best = False,
    agent: Annotated[
        str | None,
        typer.Option(
            help="The agent of a team whose policy to write; left out: all, in a file .rlox",
            metavar="NAME",
        ),
    ] = None,
    env: EnvAgain = None,
    moments: Annotated[
        Path | None,
        typer.Option(
            help="For a model.zip whose observations were normalised: a file .npz with the arrays "
            "mean and var of VecNormalize.obs_rms.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Write a checkpoint's policy as one file that acts without torch.

    It holds the network, normalisation, frame stack, memory, action bounds and masks.
    """
    from rlox.deployment import LoadedTeam, export, load_policy

    if checkpoint.suffix == ".zip" and not checkpoint.is_dir():
        found, source = checkpoint, "Stable-Baselines3"
        export(_imported(checkpoint, env, moments), path, agent=agent)
    else:
        if moments is not None:
            raise ConfigError("--moments belongs to a model.zip of Stable-Baselines3")
        found = find_checkpoint(checkpoint, best=best)
        with restore(found, env, {}) as algorithm:
            source = algorithm.name
            export(algorithm, path, agent=agent)
    policy = load_policy(path)
    written = {
        "policy": f"{path} ({path.stat().st_size:,} bytes)",
        "checkpoint": f"{found} ({source})",
    }
    each = policy.agents if isinstance(policy, LoadedTeam) else {"": policy}
    for name, one in each.items():
        of_agent = f" of {name}" if name else ""
        written[f"observations{of_agent}"] = str(one.observation_space)
        written[f"actions{of_agent}"] = str(one.action_space)
    print_pairs(written)


make_command = maker_of(export_command)


def _imported(file: Path, env: str | None, moments: Path | None) -> LoadedPolicy:
    """Return the policy in a file of Stable-Baselines3."""
    from rlox_tools.deployment.stable_baselines3 import from_stable_baselines3, read_moments

    if env is None:
        raise ConfigError(f"'{file}' does not say which env it is for in plain text; pass --env ID")
    given = None if moments is None else read_moments(moments)
    return from_stable_baselines3(file, env, observation_moments=given)
