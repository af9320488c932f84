"""Checkpoints of language models, with trained weights and digests of frozen ones, and exports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rlox import registry
from rlox.errors import CheckpointError
from rlox.nn import module_state, require_digest
from rlox.nn.devices import load_module_state, module_digest
from rlox.seeding import SeedStreams
from rlox.training import checkpoint as checkpoints
from torch import nn

from rlox_llm.building import adapted, load_model, load_tokenizer, merged
from rlox_llm.models import CausalModel


def _part(module: nn.Module, *, frozen: bool) -> Any:
    """Return the frozen or the trained part of a module, whose state is its own tensors."""
    named = module.named_parameters(remove_duplicate=False)
    fixed = {name for name, parameter in named if not parameter.requires_grad}
    state = {k: v for k, v in module.state_dict().items() if (k in fixed) is frozen}
    return SimpleNamespace(state_dict=lambda: state)


def trained_state(module: nn.Module) -> dict[str, Any]:
    """Return trainable parameters and buffers as arrays, and a digest of all others."""
    trained, frozen = _part(module, frozen=False), _part(module, frozen=True)
    return {"trained": module_state(trained), "frozen": module_digest(frozen)}


def load_trained_state(module: nn.Module, name: str, state: Mapping[str, Any]) -> None:
    """Restore a :func:`trained_state`.

    Raises:
        CheckpointError: the module or its frozen weights differ.
    """
    require_digest(_part(module, frozen=True), f"{name}'s frozen part", state["frozen"])
    load_module_state(_part(module, frozen=False), state["trained"])


def reference_state(reference: CausalModel | None, *, moves: bool) -> Any:
    """Return a reference's digest, its weights if it moves, or ``None`` without own weights."""
    if reference is None or reference.adapter_off:
        return None
    return module_state(reference.module) if moves else module_digest(reference.module)


def load_reference_state(reference: CausalModel | None, state: Any) -> None:
    """Restore a :func:`reference_state`; a digest is checked.

    Raises:
        CheckpointError: the reference differs.
    """
    if state is None or reference is None:
        return
    if isinstance(state, str):
        require_digest(reference.module, "ref_model", state)
    else:
        load_module_state(reference.module, state)


def restore_model(checkpoint: Path, folder: str | Path) -> Any:
    """Return the model of a checkpoint, its adapter merged into the weights.

    It needs no reward function, reference or dataset.

    Args:
        checkpoint: a checkpoint of an algorithm for language models.
        folder: folder of the trained model.

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
            f"checkpoint '{checkpoint}' holds no language model; its algorithm is '{name}'"
        ) from error
    model = load_model(folder)
    if rank is not None:
        model = adapted(model, config, SeedStreams(seed))
    load_trained_state(model, "model", state)
    return merged(model)


def export_model(checkpoint: Path, folder: str | Path, target: Path) -> int:
    """Write a checkpoint's model and its tokenizer; return the number of parameters.

    Args:
        checkpoint: a checkpoint of an algorithm for language models.
        folder: folder of the trained model.
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
