"""The commands of ``rlox llm``: export, and completion of prompts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rlox.cli.output import print_pairs
from rlox.cli.runs.folder import find_checkpoint
from rlox.cli.runs.options import Best, load_parts
from rlox.cli.runs.run import parts_of_run
from rlox.errors import ConfigError

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="Folder of the trained model, for a checkpoint; default: from the run's record.",
        metavar="FOLDER",
    ),
]


def llm_app() -> typer.Typer:
    """Return the commands."""
    app = typer.Typer(
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
        help="Export a trained language model, or let it complete prompts.", no_args_is_help=True,
    )  # fmt: skip
    app.command("export")(export_command)
    app.command("generate")(generate_command)
    return app


def export_command(
    run: Annotated[Path, typer.Argument(help="A run folder, or a checkpoint.")],
    folder: Annotated[Path, typer.Argument(help="New or empty folder for the model.")],
    model: Model = None,
    best: Best = False,
) -> None:
    """Write a trained model and its tokenizer into a folder for transformers.

    An adapter is merged into the weights.
    """
    from rlox_llm.state import export_model

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"folder '{folder}' exists and is not empty; name another")
    checkpoint = find_checkpoint(run, best=best)
    parameters = export_model(checkpoint, _model_of(checkpoint, model), folder)
    print_pairs(
        {"checkpoint": str(checkpoint), "parameters": f"{parameters:,}", "model": str(folder)}
    )


def generate_command(
    model: Annotated[Path, typer.Argument(help="Folder of a model, a run folder or a checkpoint.")],
    prompt: Annotated[
        list[str] | None, typer.Option(help="A text to complete; repeatable.", metavar="TEXT")
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(help="JSONL or Parquet file with a column 'prompt'.", metavar="FILE"),
    ] = None,
    best_of: Annotated[
        int, typer.Option(help="Sample N and print the best by --reward.", min=1, metavar="N")
    ] = 1,
    reward: Annotated[
        str | None,
        typer.Option(help="Function that rewards completions.", metavar="MODULE:FUNCTION"),
    ] = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option(
            help="Maximum length of a completion; left out: at most 64, as the context allows.",
            min=1,
            metavar="N",
        ),
    ] = None,
    temperature: Annotated[float, typer.Option(help="Divisor of logits.")] = 1.0,
    top_p: Annotated[
        float, typer.Option(help="Sample from the likeliest tokens of this total probability.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Fixes the samples.", min=0)] = 42,
    base_model: Model = None,
) -> None:
    """Print a completion of each prompt, or the best of several by a reward function."""
    from rlox_llm.best_of_n import BestOfN
    from rlox_llm.building import load_model, load_tokenizer
    from rlox_llm.prompts import parse_prompts, read_rows
    from rlox_llm.state import restore_model

    if best_of > 1 and reward is None:
        raise ConfigError("--best-of needs --reward, a function that ranks completions")
    rows: list[Any] = list(prompt or [])
    rows += read_rows(dataset) if dataset is not None else []
    if not rows:
        raise ConfigError("there is nothing to complete; pass --prompt or --dataset")
    if (model / "config.json").is_file():
        module, source = load_model(model), str(model)
    else:
        checkpoint = find_checkpoint(model)
        source = _model_of(checkpoint, base_model)
        module = restore_model(checkpoint, source)
    tokenizer = load_tokenizer(source)
    found = load_parts({"reward_fn": reward})["reward_fn"] if reward else _no_reward
    sampler = BestOfN(
        module, found, best_of, tokenizer=tokenizer, max_new_tokens=max_new_tokens or 64,
        temperature=temperature, top_p=top_p, seed=seed,
    )  # fmt: skip
    prompts = parse_prompts(rows, sampler.policy.device, sampler.texts)
    if max_new_tokens is None and (context := sampler.policy.context) is not None:
        left = context - max(len(each.ids) for each in prompts)
        sampler.sampling = replace(sampler.sampling, max_new_tokens=max(1, min(64, left)))
    done = sampler.best(prompts)
    for completion in done.table(sampler.texts, {})["completion"]:
        typer.echo(completion)


def _no_reward(completions: Any, prompts: Any) -> list[float]:
    return [0.0] * len(completions)


def _model_of(checkpoint: Path, given: str | None) -> str:
    if not checkpoint.exists():
        raise ConfigError(f"'{checkpoint}' does not exist")
    found = given or parts_of_run(checkpoint).get("model")
    if found is None:
        raise ConfigError(
            f"'{checkpoint}' is not in a run folder that names the model; pass the model's --model"
        )
    return found
