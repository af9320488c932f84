"""Registers the commands, the options of sweeps and the callback ``video`` with rlox."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rlox.registry.specs import CallbackSpec, CommandSpec, RunOptionsSpec, hookimpl

if TYPE_CHECKING:
    from rlox_tools.video import VideoCallback


@hookimpl
def rlox_commands() -> Iterable[CommandSpec]:
    """Register the modules of :mod:`rlox_tools.commands`."""
    for name, summary in (
        ("export", "Write a checkpoint's policy as a file that acts without torch."),
        ("film", "Film a checkpoint's policy, of one agent or of a team."),
        ("plot", "Draw learning curves of runs and sweeps."),
        ("report", "Write one page about runs: curves, evaluations, options, timing, films."),
        ("tune", "Search for good options."),
        ("verify", "Train a tenth of a published run again, and compare."),
    ):
        yield CommandSpec(name, summary, f"rlox_tools.commands.{name}:make_command")


@hookimpl
def rlox_run_options() -> Iterable[RunOptionsSpec]:
    """Register the options of sweeps."""
    yield RunOptionsSpec(
        name="sweeps",
        summary="Many runs of one training: --seeds, --sweep, --jobs, --on.",
        train="rlox_tools.sweeps.options:train",
        resume="rlox_tools.sweeps.options:resume",
    )


def video_callback(log_dir: str | Path) -> VideoCallback:
    """Return a callback that films into the folder's ``videos``."""
    from rlox_tools.video import VideoCallback

    return VideoCallback(Path(log_dir, "videos"))


@hookimpl
def rlox_callbacks() -> Iterable[CallbackSpec]:
    """Register ``video``."""
    yield CallbackSpec(
        "video",
        "Films episodes of the policy every N env steps, as MP4.",
        "rlox_tools.plugin:video_callback",
        in_folder=True,
    )
