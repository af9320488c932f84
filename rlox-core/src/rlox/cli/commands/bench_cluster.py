"""``rlox bench cluster``: costs of actors and learner, and predicted throughput."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from rlox import registry
from rlox.analysis.measure import machine
from rlox.analysis.throughput import ActorCosts, predict_throughput
from rlox.cli.output import print_pairs, print_table
from rlox.config.model import resolve_config
from rlox.errors import ConfigError
from rlox.files import write_atomically
from rlox.training.versions import installed_versions

__all__ = ["bench_cluster_command"]


def bench_cluster_command(
    algorithm: Annotated[str, typer.Argument(help="One with actors, such as impala or appo.")],
    env: Annotated[str, typer.Option(help="Env to train on.", metavar="ID")],
    actors: Annotated[
        str, typer.Option(help="Numbers of actors to predict, separated by commas.", metavar="N,…")
    ] = "1,2,4,10,100,1000",
    actor_backend: Annotated[
        str | None,
        typer.Option(
            help="Where actors run: thread, process, ray; left out: the config's.", metavar="NAME"
        ),
    ] = None,
    link: Annotated[
        float | None,
        typer.Option(
            help="Predict for actors on other machines, each with a core of its own, and a learner "
            "with a link of so many Gbit/s; left out: for this machine.",
            metavar="GBIT",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML or JSON file with options.", metavar="FILE")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Measurements of each part.", min=1)] = 5,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for the results; left out: bench-cluster-<algorithm>-<env>.json.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Measure one actor and the learner, and predict the env steps per second of more actors."""
    from rlox.cli.bench.actor_costs import measure_actor_costs
    from rlox.cli.sweeps.processes import usable_cores

    counts = _counts(actors)
    if link is not None and not link > 0:
        raise ConfigError(f"--link must be above 0 Gbit/s, got {link}")
    given = {} if actor_backend is None else {"actor_backend": actor_backend}
    resolved = resolve_config(registry.config_class(algorithm), config, **given)
    cores = usable_cores()
    costs = measure_actor_costs(algorithm, env, resolved, rounds)
    where: dict[str, Any] = {"processors": cores} if link is None else {"link": link * 1e9 / 8}
    rows = _predict(costs, counts, resolved.to_dict()["unrolls_per_update"], where)
    path = out or Path(f"bench-cluster-{algorithm}-{env.replace('/', '_').replace(':', '_')}.json")
    result = {
        "algorithm": algorithm,
        "env": env,
        "config": resolved.to_dict(),
        "rounds": rounds,
        "machine": machine(["rlox-core"]),
        "versions": installed_versions(),
        "costs": asdict(costs),
        "predicted_for": where,
        "predictions": rows,
    }
    write_atomically(path, (json.dumps(result, indent=2) + "\n").encode())
    _print(costs, rows)
    print_pairs({"results": str(path)})


def _counts(text: str) -> list[int]:
    """Return the numbers of actors that a flag names.

    Raises:
        ConfigError: it is no list of whole numbers above 0.
    """
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = [0]
    if min(found) < 1 or max(found) > 100_000:
        raise ConfigError(
            f"--actors must be numbers from 1 to 100000 such as 1,10,100, got {text!r}"
        )
    return found


def _predict(
    costs: ActorCosts, counts: list[int], unrolls: int | None, where: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return a row for each number of actors: resting while the learner learns, and collecting."""
    rows = []
    for actors in counts:
        row: dict[str, Any] = {"actors": actors}
        for key, queue in (("in_turn", 0), ("at_once", unrolls or actors)):
            found = predict_throughput(costs, actors, unrolls=unrolls, queue=queue, **where)
            row[key] = {
                "queue_size": queue,
                "env_steps_per_second": found.env_steps_per_second,
                "bottleneck": found.bottleneck,
            }
        rows.append(row)
    return rows


def _print(costs: ActorCosts, rows: list[dict[str, Any]]) -> None:
    milliseconds = {
        "env step": costs.env,
        "policy, per vector step": costs.inference,
        "hand-over of an unroll": costs.call,
        "unroll": costs.unroll,
        "processor time of an unroll": costs.actor_processor,
        "taking an unroll in": costs.handling,
        "update of one unroll": costs.update + costs.update_unroll,
        "each further unroll": costs.update_unroll,
    }
    print_pairs(
        {name: f"{1000 * seconds:,.3f} ms" for name, seconds in milliseconds.items()}
        | {"bytes of an unroll": f"{costs.unroll_bytes:,}"}
        | {"bytes of the weights": f"{costs.weight_bytes:,}"}
    )
    columns = ("actors", "env steps/s, in turn", "limit", "env steps/s, at once", "limit")
    print_table(
        columns,
        [
            (
                str(row["actors"]),
                *(
                    text
                    for key in ("in_turn", "at_once")
                    for text in (
                        f"{row[key]['env_steps_per_second']:,.0f}",
                        row[key]["bottleneck"],
                    )
                ),
            )
            for row in rows
        ],
        whole=columns,
    )
