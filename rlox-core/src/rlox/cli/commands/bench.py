"""``rlox bench``: training speed compared with other libraries."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from rlox import registry
from rlox.analysis.measure import machine, ratio_summary, summary
from rlox.cli.bench.contenders import CONTENDERS
from rlox.cli.output import print_pairs, print_table
from rlox.config.model import Config, resolve_config
from rlox.errors import ConfigError, RunError, suggest
from rlox.files import write_atomically
from rlox.training.versions import installed_versions

__all__ = ["bench_command"]


def bench_command(
    algorithm: Annotated[str, typer.Argument(help="A name that `rlox list` shows.")],
    env: Annotated[str, typer.Option(help="Env to train on.", metavar="ID")],
    peers: Annotated[
        str | None,
        typer.Option(
            help="Other libraries, as sb3, separated by commas; left out: those installed.",
            metavar="NAMES",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML or JSON file with options.", metavar="FILE")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Runs of each contender.", min=1)] = 9,
    env_steps: Annotated[int, typer.Option(help="Env steps per run.", min=1)] = 8_192,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for the results; left out: bench-<algorithm>-<env>.json.", metavar="FILE"
        ),
    ] = None,
) -> None:
    """Measure env steps per second with learning, of all contenders in turn.

    Beside them stand two limits: what the env steps take alone, and with the matrix products.
    """
    resolved = resolve_config(registry.config_class(algorithm), config)
    names, missing = _contenders(algorithm, resolved, peers)
    options = resolved.to_dict()
    distributions = filter(None, (CONTENDERS[name].distribution for name in names))
    task = {"algorithm": algorithm, "env": env, "config": options, "env_steps": env_steps}
    measured_on = machine(["rlox-core", *distributions])
    result = {**task, "rounds": rounds, "machine": measured_on}
    baseline = names[-1]
    names += _limits(algorithm, resolved)
    answers = _measure(names, task, rounds)
    speeds = {
        name: [run["env_steps"] / run["seconds"] for run in runs] for name, runs in answers.items()
    }
    rows = [
        {
            "contender": name,
            "env_steps_per_second": summary(speeds[name]),
            "ratio": ratio_summary(speeds[name], speeds[baseline]),
            "cores": summary([run["processor"] / run["seconds"] for run in answers[name]]),
        }
        for name in names
    ]
    result |= {"versions": installed_versions(), "ratio_to": baseline, "rows": rows}
    path = out or Path(f"bench-{algorithm}-{env.replace('/', '_').replace(':', '_')}.json")
    write_atomically(path, (json.dumps(result, indent=2) + "\n").encode())
    _print(rows, baseline)
    processor = f"{measured_on['cpu']}, {measured_on['cores']} cores"
    print_pairs({"processor": processor, "results": str(path), **missing})


def _contenders(
    algorithm: str, config: Config, peers: str | None
) -> tuple[list[str], dict[str, str]]:
    """Return who takes part, rlox first, and the pip commands of who could.

    Raises:
        ConfigError: a peer is unknown, cannot train the algorithm, or was asked for by name and is
            not installed.
    """
    known = {name: each for name, each in CONTENDERS.items() if each.module is not None}
    able = [name for name, each in known.items() if algorithm in each.algorithms]
    asked = able if peers is None else [name.strip() for name in peers.split(",") if name.strip()]
    missing: dict[str, str] = {}
    for name in asked:
        if name not in known:
            raise ConfigError(
                f"unknown peer '{name}'{suggest(name, known)} (there is {', '.join(known)})"
            )
        if name not in able:
            raise ConfigError(
                f"the peer '{name}' does not train '{algorithm}', but "
                f"{', '.join(known[name].algorithms)}"
            )
        if importlib.util.find_spec(str(known[name].module)) is None:
            missing[name] = f"not installed; run: pip install {known[name].distribution}"
    if peers is not None and missing:
        name, reason = next(iter(missing.items()))
        raise ConfigError(f"the peer '{name}' is {reason}")
    ours = ["rlox", "rlox-gymnasium"] if _takes_gymnasium(config) else ["rlox"]
    return [*ours, *(name for name in asked if name not in missing)], missing


def _takes_gymnasium(config: Config) -> bool:
    """Return whether an algorithm can step gymnasium's envs if there are native ones too."""
    try:
        config.replace(env_backend="gymnasium")
    except ConfigError:
        return False
    return True


def _limits(algorithm: str, config: Config) -> list[str]:
    """Return the contenders that learn nothing, if the algorithm steps envs and learns in torch."""
    needed = {"n_envs", "vectorization", "env_kwargs", "env_backend", "backend"}
    if registry.spec(algorithm).trains_teams or not needed <= type(config).model_fields.keys():
        return []
    return [name for name, each in CONTENDERS.items() if each.is_limit]


def _measure(
    names: Sequence[str], task: Mapping[str, Any], rounds: int
) -> dict[str, list[dict[str, float]]]:
    """Return each contender's answers, one for each round.

    A run before the rounds warms up, or as many as pass the random actions before learning starts.
    """
    answers: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    warm_ups = 1 + task["config"].get("learning_starts", 0) // task["env_steps"]
    with ExitStack() as stack:
        processes = {name: stack.enter_context(_started(name, task)) for name in names}
        for number in range(-warm_ups, rounds):
            for name in names:
                answer = _ask(processes[name], "run", name)
                if number >= 0:
                    answers[name].append(answer)
            if number >= 0:
                print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return answers


@contextmanager
def _started(name: str, task: Mapping[str, Any]) -> Iterator[subprocess.Popen[str]]:
    """Start a contender's process, wait until it is ready, and end it at last."""
    process = subprocess.Popen(  # our own module
        [sys.executable, "-m", "rlox.cli.bench.contenders"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _ask(process, json.dumps({"contender": name, **task}), name)
        yield process
    finally:
        process.kill()
        process.communicate()


def _ask(process: subprocess.Popen[str], line: str, name: str) -> dict[str, float]:
    """Send a line to a contender and return its answer.

    Raises:
        RunError: it ended instead; the text has the last line of its errors.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        answer = process.stdout.readline()
    except BrokenPipeError:
        answer = ""
    if not answer:
        _, errors = process.communicate()
        reason = (errors.strip().splitlines() or ["no message"])[-1]
        raise RunError(f"the contender '{name}' failed: {reason}")
    found: dict[str, float] = json.loads(answer)
    return found


def _print(rows: Sequence[Mapping[str, Any]], baseline: str) -> None:
    title = CONTENDERS[baseline].title
    columns = ("name", "env steps/s", "range", f"times {title}", "range", "cores")
    print_table(
        columns,
        [
            (
                CONTENDERS[row["contender"]].title,
                f"{row['env_steps_per_second']['median']:,.0f}",
                f"{row['env_steps_per_second']['min']:,.0f} to "
                f"{row['env_steps_per_second']['max']:,.0f}",
                f"{row['ratio']['median']:.2f}",
                f"{row['ratio']['min']:.2f} to {row['ratio']['max']:.2f}",
                f"{row['cores']['median']:.1f}",
            )
            for row in rows
        ],
        whole=columns,
    )
