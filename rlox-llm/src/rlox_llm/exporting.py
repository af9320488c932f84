"""Trained models out of checkpoints, as folders that transformers loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlox import registry
from rlox.errors import CheckpointError
from rlox.seeding import SeedStreams
from rlox.training import checkpoint as checkpoints

from rlox_llm.huggingface import adapted, load_model, load_tokenizer, merged
from rlox_llm.state import load_trained_state

__all__ = ["export_model", "restore_model"]


def restore_model(checkpoint: Path, folder: str | Path) -> Any:
    """Return the model of a checkpoint, its adapter merged into the weights.

    Neither reward functions nor the reference nor the dataset are needed.

    Args:
        checkpoint: of an algorithm for language models.
        folder: that of the model that was trained.

    Raises:
        CheckpointError: it is another algorithm's, or the folder holds another model.
        ConfigError: the folder holds no model.
    """
    manifest = checkpoints.read(checkpoint)
    name = str(manifest.get("name"))
    config_class = registry.config_class(name)
    try:
        state = manifest["state"]["algorithm"]["model"]
        config = config_class(**manifest["config"])
        seed = int(manifest["state"]["streams"]["seed"])
        rank = config.lora_rank
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"checkpoint '{checkpoint}' holds no language model; it is of '{name}'"
        ) from error
    model = load_model(folder)
    if rank is not None:
        model = adapted(model, config, SeedStreams(seed))
    load_trained_state(model, "model", state)
    return merged(model)


def export_model(checkpoint: Path, folder: str | Path, target: Path) -> int:
    """Write a checkpoint's model and its tokenizer; return the number of parameters.

    Args:
        checkpoint: of an algorithm for language models.
        folder: that of the model that was trained.
        target: folder to write to.

    Raises:
        CheckpointError: see :func:`restore_model`.
        ConfigError: see there.
    """
    model = restore_model(checkpoint, folder)
    tokenizer = load_tokenizer(folder)
    model.save_pretrained(str(target))
    if tokenizer is not None:
        tokenizer.save_pretrained(str(target))
    return sum(p.numel() for p in model.parameters())
