"""``rlox tune``: search for good options with Optuna."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlox import registry
from rlox.config.model import resolve_config
from rlox.config.presets import full_name, list_presets
from rlox.errors import ConfigError, import_extra
from rlox.seeding import parse_seeds

__all__ = ["tune_command"]

STEPS = 100_000


def tune_command(
    algorithm: Annotated[str, typer.Argument(help="A name that `rlox list` shows.")],
    env: Annotated[
        str | None,
        typer.Option(help="Env to train on; with a dataset, to evaluate in.", metavar="ID"),
    ] = None,
    space: Annotated[
        list[str] | None,
        typer.Option(
            help="What to search; repeatable: learning_rate=log:1e-5:1e-2, gamma=0.9:0.999, "
            "hidden=64,128, or an option alone, around its present value.",
            metavar="OPTION[=VALUES]",
        ),
    ] = None,
    trials: Annotated[int, typer.Option(help="Sets of options to try.", min=1)] = 30,
    seeds: Annotated[
        str, typer.Option(help="Seeds of every trial: 3 for 0 to 2, or 0,3,7.", metavar="SEEDS")
    ] = "2",
    jobs: Annotated[
        int | None,
        typer.Option(help="Runs at once; left out: one per core.", min=1, metavar="N"),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            help="Where the runs are executed: ray or ray:HOST:PORT; left out: on this machine.",
            metavar="PLACE",
        ),
    ] = None,
    total_timesteps: Annotated[
        int | None,
        typer.Option(
            help="Steps of every run; left out: the preset's, else 100000.", min=1, metavar="STEPS"
        ),
    ] = None,
    eval_freq: Annotated[
        int | None,
        typer.Option(
            help="Steps between the evaluations that trials are pruned on; left out: a tenth of "
            "the run.",
            min=1,
            metavar="STEPS",
        ),
    ] = None,
    eval_episodes: Annotated[
        int, typer.Option(help="Episodes per evaluation.", min=1, metavar="N")
    ] = 20,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune/--no-prune",
            help="End trials early that are worse than the median at the same step.",
        ),
    ] = True,
    config: Annotated[
        Path | None,
        typer.Option(help="YAML or JSON file with the other options.", metavar="FILE"),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Tuned options to begin with.", metavar="NAME")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Dataset of an offline algorithm.", metavar="NAME")
    ] = None,
    save_preset: Annotated[
        str | None,
        typer.Option(help="Keep the best options as your preset of this name.", metavar="NAME"),
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(
            help="New or empty folder; left out: runs/<algorithm>-<env>-tune-<time>.",
            metavar="FOLDER",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Search for good options; `rlox resume FOLDER` finishes an interrupted search."""
    from rlox.cli.runs.folder import RunFolder, require_unused
    from rlox.cli.runs.options import RunOptions
    from rlox.cli.tuning.folder import Plan, TuningFolder
    from rlox.cli.tuning.space import parse_space
    from rlox.cli.tuning.trials import tune

    import_extra("optuna", "rlox tune", "tune")
    spec = registry.spec(algorithm)
    parts = {} if dataset is None else {"dataset": dataset}
    if missing := sorted(set(spec.needs) - {"env"} - parts.keys()):
        raise ConfigError(f"rlox tune {algorithm} needs --{missing[0]}, which rlox tune has not")
    if spec.env and env is None:
        raise ConfigError(f"rlox tune {algorithm} needs --env, such as --env CartPole-v1")
    given = {} if preset is None else {"preset": full_name(algorithm, env, preset)}
    base = resolve_config(registry.config_class(algorithm), config, **given)
    known = {each.full_name: each.steps for each in list_presets(algorithm)}
    steps = total_timesteps or known.get(getattr(base, "preset", ""), STEPS)
    plan = Plan(tuple(space or ()), trials, parse_seeds(seeds), prune, save_preset)
    parse_space(plan.space, base)  # raises
    options = RunOptions(
        env=env,
        total_timesteps=steps,
        eval_freq=(eval_freq or max(steps // 10, 1)) if prune else 0,
        eval_episodes=eval_episodes,
        checkpoint_freq="30s",
        parts=parts,
    )
    path = run_dir or RunFolder.default_path(algorithm, options.subject, "tune")
    require_unused(path)
    folder = TuningFolder(path, algorithm, base, options, plan)
    folder.start()
    raise typer.Exit(tune(folder, jobs=jobs, quiet=quiet, on=on))
