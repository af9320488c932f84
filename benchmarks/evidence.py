"""Cells of evidence: tasks with published scores, trained with presets, and the page about them.

    python benchmarks/evidence.py run ppo-Hopper-v5
    python benchmarks/evidence.py page

A cell's finished runs are in ``scores/evidence``. Checkpoints at the ends of segments are in
``runs/evidence``, where an interrupted run goes on. ``page`` writes ``docs/evidence.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import machine
from rlox.config.presets import full_name
from rlox.registry import config_class
from rlox.training.checkpoint import steps_of
from rlox_tools.analysis import bootstrap_iqm
from rlox_tools.evidence import train

ROOT = Path(__file__).parents[1]
CELLS, RUNS, PAGE = (
    ROOT / name for name in ("scores/evidence", "runs/evidence", "docs/evidence.md")
)
PACKAGES = ["rlox-core", "rlox-native", "gymnasium", "mujoco", "torch"]


@dataclass(frozen=True)
class Task:
    """A cell that there is, or that is missing."""

    algorithm: str
    env: str
    published: str
    env_steps: int = 1_000_000
    seeds: int = 5
    eval_freq: int = 30_000

    @property
    def path(self) -> Path:
        """File of its finished runs."""
        return CELLS / f"{self.algorithm}-{self.env.replace('/', '-')}.json"


GAME: dict[str, Any] = {"env_steps": 10_000_000, "seeds": 1, "eval_freq": 500_000}
TASKS = [
    Task("ppo", "HalfCheetah-v5", "5,784 ± 1,244"),
    Task("ppo", "Hopper-v5", "2,609 ± 701"),
    Task("ppo", "Walker2d-v5", "3,589 ± 757"),
    Task("ppo", "Ant-v5", "3,258 ± 1,079"),
    Task("sac", "HalfCheetah-v5", "12,139 ± 1,049", seeds=3),
    Task("sac", "Hopper-v5", "3,542 ± 52", seeds=3),
    Task("sac", "Walker2d-v5", "5,007 ± 252", seeds=3),
    Task("sac", "Ant-v5", "5,850 ± 476", seeds=3),
    Task("td3", "HalfCheetah-v5", "10,201 ± 773", seeds=3),
    Task("td3", "Hopper-v5", "3,472 ± 117", seeds=3),
    Task("td3", "Walker2d-v5", "3,982 ± 275", seeds=3),
    Task("td3", "Ant-v5", "5,116 ± 800", seeds=3),
    Task("ppo", "ALE/Pong-v5", "21.0", **GAME),
    Task("ppo", "ALE/Breakout-v5", "398", **GAME),
    Task("dqn", "ALE/Pong-v5", "20.6", **GAME),
    Task("dqn", "ALE/Breakout-v5", "358", **GAME),
]
"""With the scores of Tianshou's ``examples/mujoco/README.md``, and of the RL Zoo's
``benchmark.md`` for games."""


def main() -> None:
    """Train what is missing of cells, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", choices=["run", "page"])
    parser.add_argument("cells", nargs="*", metavar="CELL", help="as ppo-Hopper-v5; all")
    asked = parser.parse_args()
    if unknown := set(asked.cells) - {task.path.stem for task in TASKS}:
        parser.error(f"no cell {', '.join(unknown)}; there are {[t.path.stem for t in TASKS]}")
    torch.set_num_threads(1)
    os.nice(19)
    for task in TASKS if asked.part == "run" else ():
        for seed in range(task.seeds):
            if not asked.cells or task.path.stem in asked.cells:
                run(task, seed)
    PAGE.write_text(page(), encoding="utf-8")


def read(task: Task) -> dict[str, Any]:
    """Return a cell, with the preset and without runs if it is missing."""
    if task.path.is_file():
        return json.loads(task.path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]
    preset = full_name(task.algorithm, task.env, "tuned")
    config = config_class(task.algorithm)(preset=preset)
    if "save_replay_buffer" in type(config).model_fields:
        config = config.replace(save_replay_buffer=True)
    return {
        "algorithm": task.algorithm, "env": task.env, "env_steps": task.env_steps, "episodes": 20,
        "eval_freq": task.eval_freq, "eval_episodes": 10,
        "config": config.to_dict() | {"seed": None}, "runs": [],
    }  # fmt: skip


def run(task: Task, seed: int) -> None:
    """Train a seed that the cell lacks, or finish its training."""
    cell = read(task)
    if seed in [each["seed"] for each in cell["runs"]]:
        return
    folder = RUNS / f"{task.path.stem}-{seed}"
    saved = [path for path in folder.glob("*.safetensors") if steps_of(path) < task.env_steps]
    start = max(saved, key=steps_of, default=None)
    found = train(cell, seed, folder=folder, start=start) | {"machine": machine(PACKAGES)}
    cell["runs"] = sorted([*cell["runs"], found], key=lambda each: each["seed"])
    CELLS.mkdir(exist_ok=True)
    text = re.sub(r"\[[^][{}]+\]", lambda of: " ".join(of[0].split()), json.dumps(cell, indent=1))
    task.path.write_text(text + "\n", encoding="utf-8")
    print(task.path.stem, seed, round(found["mean_return"]), flush=True)


def page() -> str:
    """Return the page's text with a new table."""
    head = ("task", "seeds", "highest", "at the end", "in training", "published", "minutes a seed")
    rows = [head, ["---"] * len(head), *map(row, TASKS)]
    table = "".join(f"| {' | '.join(each)} |\n" for each in rows)
    parts = re.split("(<!-- .*cells -->)", PAGE.read_text(encoding="utf-8"))
    return "".join([*parts[:2], f"\n\n{table}\n", *parts[3:]])


def row(task: Task) -> list[str]:
    """Return the cells of a task's row."""
    name = f"{task.algorithm.upper()} {task.env}"
    if not task.path.is_file():
        return [name, "*missing*", "", "", "", task.published, ""]
    cell = read(task)
    runs, env_kwargs = cell["runs"], cell["config"]["env_kwargs"]
    several = len(runs) > 1
    name += f", `{env_kwargs}`" if env_kwargs else ""
    curves = np.array([each["curve"]["mean_return"] for each in runs])
    best = curves[:, curves.mean(0).argmax()]
    iqm = bootstrap_iqm([curves[:, -1]])
    training = np.mean([each["mean_return_of_last_100_episodes"] for each in runs])
    minutes = np.mean([each["segments"]["processor_seconds"][-1] for each in runs]) / 60
    return [
        name,
        f"{len(runs)} of {task.seeds}",
        f"{best.mean():,.0f}" + (f" ± {best.std(ddof=1):,.0f}" if several else ""),
        f"{iqm.value:,.0f}" + (f" [{iqm.low:,.0f}, {iqm.high:,.0f}]" if several else ""),
        f"{training:,.0f}",
        task.published,
        f"{minutes:.1f}",
    ]


if __name__ == "__main__":
    main()
