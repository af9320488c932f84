"""``rlox dataset``: look at recorded datasets, record new ones, and convert tables."""

# no future annotations: typer reads the parameters' types

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rlox.cli.output import print_pairs, print_warning
from rlox.config.files import read_mapping
from rlox.errors import ConfigError, import_extra

from rlox_offline.datasets import Dataset, StreamedDataset, open_dataset, record_sets, save_dataset
from rlox_offline.datasets.files import read_table, require_format

DATASET = "a file (.npz, .hdf5, .parquet, .arrow), or minari:<id>; stream: before it spares memory"


def _joined(name: str) -> Any:
    """Return the option for the columns that are joined to an array."""
    return typer.Option(help=f"columns to join to {name}, such as '{name}_*'", metavar="PATTERN")


def dataset_app() -> typer.Typer:
    """Return the group of commands."""
    app = typer.Typer(
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
        help="Look at recorded datasets, record new ones, and convert tables.",
        no_args_is_help=True,
    )  # fmt: skip
    app.command("info")(info)
    app.command("record")(record)
    app.command("convert")(convert)
    return app


def info(
    dataset: Annotated[str, typer.Argument(help=DATASET)],
    plot: Annotated[
        Path | None,
        typer.Option(
            help="draw a histogram of the episodes' returns (.png, .svg, .pdf)", metavar="FILE"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the size of a dataset, its returns and its bounds; a fault in it is an error."""
    found: Any = open_dataset(dataset)
    if plot is not None:
        _draw_returns(found, dataset, plot)
    if as_json:
        typer.echo(json.dumps({**found.stats(), **found.metadata()}, indent=2))
        return
    stats, first = found.stats(), found.first
    rows = {
        "dataset": dataset,
        "env": found.env_id or "unknown",
        "transitions": f"{len(found):,}",
        "episodes": f"{found.n_episodes():,} ({found.n_terminated:,} terminated)",
        "return": f"{stats['mean_return']:.1f} ± {stats['std_return']:.1f}, "
        f"{stats['min_return']:.1f} to {stats['max_return']:.1f}",
        "length": f"{stats['mean_episode_length']:.1f} env steps",
        "observations": f"{first['obs'].shape} {first['obs'].dtype}",
        "actions": _actions_text(found),
    }
    if found.random_return is not None and found.expert_return is not None:
        rows["random, expert return"] = f"{found.random_return:.1f}, {found.expert_return:.1f}"
    print_pairs(rows)


def _actions_text(dataset: Dataset | StreamedDataset) -> str:
    if dataset.n_actions is not None:
        return f"{dataset.n_actions} discrete"
    shape = str(dataset.first["actions"].shape)
    if dataset.act_low is None or dataset.act_high is None:
        return f"{shape} of unknown bounds"
    return f"{shape} in [{dataset.act_low.min():g}, {dataset.act_high.max():g}]"


def _draw_returns(dataset: Dataset | StreamedDataset, name: str, path: Path) -> None:
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ConfigError(f"--plot must end in .png, .svg or .pdf, got '{path}'")
    figures: Any = import_extra("matplotlib.figure", "rlox dataset info --plot", "plot")
    figure = figures.Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.hist(dataset.episode_returns, bins=min(50, max(dataset.n_episodes() // 4, 10)))
    for label, value in (("random", dataset.random_return), ("expert", dataset.expert_return)):
        if value is not None:
            axes.axvline(value, linestyle="--", color="#6b6b6b")
            axes.annotate(label, (value, 1), xycoords=("data", "axes fraction"), fontsize=8)
    axes.set(xlabel="return", ylabel="episodes", title=name)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def record(
    algorithm: Annotated[str, typer.Argument(help="what to train; `rlox list` shows the names")],
    env: Annotated[str, typer.Option(help="env to train and record in", metavar="ID")],
    total_timesteps: Annotated[
        int, typer.Option(help="env steps to train for", min=20, metavar="STEPS")
    ] = 100_000,
    n_transitions: Annotated[
        int, typer.Option(help="transitions in random, medium and expert", min=1, metavar="N")
    ] = 100_000,
    to: Annotated[
        str,
        typer.Option(
            help="where the datasets go: a file name or minari:<id>, in which {kind} stands for "
            "random, medium, replay and expert",
            metavar="NAME",
        ),
    ] = "datasets/{kind}.npz",
    config: Annotated[
        Path | None,
        typer.Option(help="YAML or JSON file with options of the algorithm", metavar="FILE"),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="fixes everything; left out: the config's, or 0", min=0, metavar="SEED"),
    ] = None,
) -> None:
    """Train an algorithm and record datasets, from random actions to the best policy."""
    if "{kind}" not in to:
        raise ConfigError(f"--to must hold {{kind}}, got '{to}'; such as datasets/{{kind}}.npz")
    require_format(to)
    sets = record_sets(
        algorithm, env, total_timesteps=total_timesteps, n_transitions=n_transitions, seed=seed,
        options=None if config is None else read_mapping(config),
    )  # fmt: skip
    chance: Any = None
    for kind, dataset in sets:
        target = to.replace("{kind}", kind)
        save_dataset(dataset, target)
        returns = dataset.episode_returns
        chance = returns if chance is None else chance
        error = math.sqrt(sum(some.var() / len(some) for some in (returns, chance)))
        if kind in ("medium", "expert") and returns.mean() - chance.mean() < 1.96 * error:
            print_warning(
                f"{kind} is no better than random actions (mean returns {returns.mean():.1f} and "
                f"{chance.mean():.1f}, within a 95 % interval); train for longer, or with other "
                "options"
            )
        stats = dataset.stats()
        typer.echo(
            f"{kind:<8} {len(dataset):>9,} transitions, return {stats['mean_return']:.1f} ± "
            f"{stats['std_return']:.1f}, saved as {target}"
        )


def convert(
    table: Annotated[Path, typer.Argument(help="a .csv or .parquet", metavar="TABLE")],
    out: Annotated[str, typer.Argument(help="file to write, or minari:<id>", metavar="OUT")],
    obs: Annotated[str | None, _joined("obs")] = None,
    actions: Annotated[str | None, _joined("actions")] = None,
    next_obs: Annotated[str | None, _joined("next_obs")] = None,
) -> None:
    """Make a dataset of a table, whose columns 'obs_*', say, become one array."""
    require_format(out)
    given = {"obs": obs, "actions": actions, "next_obs": next_obs}
    dataset = read_table(table, {name: text for name, text in given.items() if text is not None})
    save_dataset(dataset, out)
    print_pairs({"transitions": f"{len(dataset):,}", "written": out})
