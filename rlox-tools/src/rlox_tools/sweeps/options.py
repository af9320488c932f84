"""Options of sweeps, which ``rlox train`` and ``rlox resume`` get by the hook."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rlox.cli.runs.options import RunOptions
from rlox.config.files import read_mapping
from rlox.config.model import Config
from rlox.errors import ConfigError

Jobs = Annotated[
    int | None,
    typer.Option(
        help="Number of a sweep's runs at once; left out: one per core.", min=1, metavar="N"
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        help="Where a sweep's runs are executed: ray or ray:HOST:PORT; left out: on this machine.",
        metavar="PLACE",
    ),
]


def train(
    name: str,
    config: Config,
    options: RunOptions,
    *,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="seeds of a sweep, one run each: 16 for 0 to 15, 0..4, or 0,3,7",
            metavar="SEEDS",
        ),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            help="values of an option, learning_rate=1e-3,3e-4, each for every seed; repeatable: "
            "all combinations",
            metavar="OPTION=VALUES",
        ),
    ] = None,
    jobs: Jobs = None,
    on: On = None,
) -> int | None:
    """Train once per seed and set of options, if any are given; see :class:`RunOptionsSpec`.

    Raises:
        ConfigError: the options contradict each other.
    """
    if seeds is None and not sweep:
        if jobs is not None:
            raise ConfigError("--jobs is for a sweep; pass --seeds too, such as --seeds 5")
        if on is not None:
            raise ConfigError(
                "--on is for a sweep; pass --seeds too, such as --seeds 5, or --ray in its place"
            )
        return None
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("a sweep trains one run per process; start it without torchrun")
    if seeds is not None and "seed" in config.given():
        in_file = options.config is not None and "seed" in read_mapping(options.config)
        where = f"seed in {options.config}" if in_file else "--seed"
        raise ConfigError(f"{where} and --seeds contradict each other; give one of them")
    from rlox_tools.sweeps.sweeping import train_sweep

    return train_sweep(name, config, options, seeds=seeds, sets=sweep or (), jobs=jobs, on=on)


def resume(
    run: Path,
    env: str | None,
    parts: Mapping[str, str],
    quiet: bool,
    *,
    jobs: Jobs = None,
    on: On = None,
) -> int | None:
    """Finish a sweep, if the folder holds one.

    Raises:
        ConfigError: an option does not fit the folder.
    """
    from rlox_tools.sweeps.folder import Sweep

    if Sweep.is_in(run):
        from rlox_tools.sweeps.sweeping import resume_sweep

        return resume_sweep(run, jobs=jobs, env=env, quiet=quiet, parts=parts, on=on)
    if jobs is not None:
        raise ConfigError(f"--jobs is for a sweep, and '{run}' is not one")
    if on is not None:
        raise ConfigError(f"--on is for a sweep, and '{run}' is not one")
    return None
