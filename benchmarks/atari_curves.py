"""Learning curves of PPO and DQN on an Atari game, extracted from run folders.

A run takes an hour or more, so ``rlox train`` makes it, which another process can resume; the
algorithms' pages have the commands. This script writes a run's curve, evaluation, command and speed
to ``results/atari`` and draws the curve. Interrupted runs count too.

    python benchmarks/atari_curves.py runs/pong-ppo runs/pong-dqn
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from measure import RESULTS, machine
from rlox.cli.runs.folder import find_checkpoint
from rlox.cli.runs.run import restore
from rlox_tools.analysis import Run, read_curve, read_run

FOLDER = RESULTS / "atari"
PICTURES = Path(__file__).parents[1] / "docs" / "reference" / "algorithms"
POINTS = 100
"""Points of a stored curve."""
EPISODES = 20
"""Episodes of an evaluation."""


def main() -> None:
    """Store and draw each run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path, nargs="+", help="folder of a run that has ended")
    for path in parser.parse_args().run:
        run = read_run(path)
        if run.status == "running":
            parser.error(f"the run in '{path}' goes on; end it with Ctrl-C, or wait")
        result = of(run)
        game = run.env.removeprefix("ALE/")
        FOLDER.mkdir(parents=True, exist_ok=True)
        kept = FOLDER / f"{run.algorithm}-{game}-{run.seed}.json"
        kept.write_text(json.dumps(result) + "\n", encoding="utf-8")
        draw(result, PICTURES / f"{run.algorithm}-{game}.png")
        print(kept, result["evaluation"])


def of(run: Run) -> dict[str, Any]:
    """Return the stored summary of a run."""
    curve, record = read_curve(run.path), run.record
    chosen = np.unique(np.linspace(0, len(curve.x) - 1, POINTS).astype(int))
    speed = read_curve(run.path, "env_steps_per_second").y
    return {
        "algorithm": run.algorithm,
        "env": run.env,
        "seed": run.seed,
        "command": str(record["command"]).split(" --run-dir")[0],
        "status": run.status,
        "evaluation": record["evaluation"] or evaluate(run),
        "env_steps_per_second": round(float(np.median(speed)), 1),
        "env_steps": curve.x[chosen].astype(int).tolist(),
        "mean_return_of_last_100_episodes": curve.y[chosen].round(2).tolist(),
        "machine": machine(["rlox-core", "torch", "gymnasium", "ale-py"]),
    }


def evaluate(run: Run) -> dict[str, Any]:
    """Return an evaluation of the latest checkpoint, like that at the end of ``rlox train``."""
    algorithm = restore(find_checkpoint(run.path, best=False), None, {})
    found = algorithm.run_episodes(n_episodes=EPISODES, deterministic=True, seed=0)
    return {"mean": found.mean_return, "std": found.std_return, "n_episodes": EPISODES}


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw a curve."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(4, 3.2))
    axis.plot(result["env_steps"], result["mean_return_of_last_100_episodes"])
    axis.set(title=result["env"], xlabel="env steps", ylabel="mean return of 100 episodes")
    axis.ticklabel_format(axis="x", scilimits=(0, 0))
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)


if __name__ == "__main__":
    main()
