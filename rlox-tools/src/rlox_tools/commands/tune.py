"""``rlox tune``: search for good options with Optuna."""

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer
from rlox import registry
from rlox.cli.commands.train import RUN_PARAMETERS
from rlox.cli.runs.folder import RunFolder
from rlox.cli.runs.options import RunOptions, with_options
from rlox.config.model import resolve_config
from rlox.config.presets import full_name, list_presets
from rlox.errors import ConfigError, import_extra
from rlox.seeding import parse_seeds

from rlox_tools.commands import maker_of


def tune_command(
    algorithm: Annotated[str, typer.Argument(help="a name that `rlox list` shows")],
    *,
    space: Annotated[list[str], typer.Option(help="option=0.9:0.999, =log:1e-5:1e-2 or =64,128")],
    trials: Annotated[int, typer.Option(help="sets of options to try", min=1)] = 30,
    seeds: Annotated[str, typer.Option(help="seeds of each: 3 for 0 to 2, or 0,3,7")] = "2",
    prune: Annotated[bool, typer.Option(help="end trials that are worse than the median")] = True,
    run_dir: Annotated[Path | None, typer.Option(help="folder of a new or begun search")] = None,
    jobs: Annotated[int | None, typer.Option(help="trials at once", min=1, metavar="N")] = None,
    dataset: Annotated[str | None, typer.Option(help="dataset of an offline algorithm")] = None,
    **run: Any,
) -> None:
    """Search for good options; the same command with the same --run-dir goes on."""
    import_extra("optuna", "rlox tune", "tune")
    from rlox_tools.tuning import Search, tune

    env, preset, config_file = run["env"], run.pop("preset"), run.pop("config")
    if env is None and registry.spec(algorithm).env:
        raise ConfigError("options are valued by evaluations in an env, and none is given: --env")
    given = {} if preset is None else {"preset": full_name(algorithm, env, preset)}
    config = resolve_config(registry.config_class(algorithm), config_file, **given)
    known = {each.full_name: each.steps for each in list_presets(algorithm)}
    steps = run["total_timesteps"] or known.get(given.get("preset", ""), RunOptions.total_timesteps)
    run["total_timesteps"] = steps
    run["eval_freq"] = (run["eval_freq"] or max(1, steps // 10)) if prune else 0
    options = RunOptions(**run, parts={} if dataset is None else {"dataset": dataset})
    path = run_dir or RunFolder.default_path(algorithm, options.subject, "tune")
    tune(Search(path, algorithm, config, tuple(space), parse_seeds(seeds), options), trials, jobs)


_own = [p for p in inspect.signature(tune_command).parameters.values() if p.name != "run"]
_names = ("env", "config", "preset", "total_timesteps", "eval_freq", "eval_episodes")
_of_runs = {name: RUN_PARAMETERS[name] for name in _names}
# left out: the preset's steps, else a training's default
_of_runs["total_timesteps"] = _of_runs["total_timesteps"].replace(default=None)
make_command = maker_of(with_options(tune_command, [*_own, *_of_runs.values()]))
