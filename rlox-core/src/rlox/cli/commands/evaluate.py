"""``rlox eval``: evaluation of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from rlox.cli.output import print_pairs, print_progress
from rlox.cli.runs.options import Best, EnvAgain, PreferenceAgain, RewardAgain, Sampled, code_given
from rlox.errors import ConfigError


def eval_command(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            help="A checkpoint, a policy file, or a run folder: its latest checkpoint, which is "
            "the final one of a finished run."
        ),
    ],
    best: Best = False,
    env: EnvAgain = None,
    episodes: Annotated[int, typer.Option(help="Number of episodes.", min=1)] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the envs.", min=0)] = 0,
    reward: RewardAgain = None,
    preference: PreferenceAgain = None,
    stochastic: Sampled = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run a checkpoint's policy without learning and print its returns.

    Models and datasets are those of the run folder that the checkpoint lies in.
    """
    files = checkpoint.glob(f"checkpoints/{'best' if best else '*'}.safetensors")
    if not as_json and (checkpoint.is_file() or any(files)):
        print_progress(f"evaluating {checkpoint}: {episodes} episodes")
    # slow, as they import gymnasium
    from rlox.cli.runs.folder import find_checkpoint
    from rlox.cli.runs.run import restore
    from rlox.deployment import load_policy
    from rlox.envs.evaluation import evaluate

    path = find_checkpoint(checkpoint, best=best)
    asked: Any = {"n_episodes": episodes, "deterministic": not stochastic, "seed": seed}
    unit, mean, done, progress = "env steps", "return", "", {}
    if path.suffix in (".rlox", ".onnx"):
        if not path.is_file():
            raise ConfigError(f"the policy file '{path}' does not exist")
        if env is None:
            raise ConfigError(f"the policy file '{path}' names no env; pass --env")
        policy = load_policy(path)
        name, result = policy.data.algorithm, evaluate(policy, env, **asked)
    else:
        algorithm = restore(path, env, code_given(reward, preference))
        result = algorithm.run_episodes(**asked)
        name, env, clock = algorithm.name, algorithm.env_source, algorithm.clock
        unit, mean, progress = algorithm.length_unit, algorithm.return_name, clock.progress()
        done = f", {clock.steps:,} {clock.unit_text}"
    low, high = float(result.returns.min()), float(result.returns.max())
    length = float(result.lengths.mean())
    agents = {name: float(found.mean()) for name, found in result.agent_returns.items()}
    if as_json:
        values = {
            "checkpoint": str(path),
            "algorithm": name,
            "env": env,
            **progress,
            **asked,
            "mean": result.mean_return,
            "std": result.std_return,
            "min": low,
            "max": high,
            "mean_length": length,
            **({"agents": agents} if agents else {}),
        }
        typer.echo(json.dumps(values, indent=2))
        return
    print_pairs(
        {
            "checkpoint": f"{path} ({name}{done})",
            **({} if env is None else {"env": str(env)}),
            mean: f"{result.mean_return:.1f} ± {result.std_return:.1f} over {episodes} episodes",
            "min, max": f"{low:.1f}, {high:.1f}",
            "mean length": f"{length:.1f} {unit}",
            **{f"return of {agent}": f"{each:.1f}" for agent, each in agents.items()},
        }
    )
