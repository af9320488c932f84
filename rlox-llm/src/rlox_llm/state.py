"""Checkpoint state of language models: trained weights, digests of frozen ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from rlox.errors import ConfigError
from rlox.nn import module_state, require_digest
from rlox.nn.devices import load_module_state, module_digest
from torch import Tensor, nn

from rlox_llm.models import CausalModel

__all__ = [
    "load_reference_state",
    "load_trained_state",
    "move_reference",
    "reference_state",
    "require_own_weights",
    "trained_state",
]


class _Part:
    """The part of a module's state with the given names, in the module's own tensors."""

    def __init__(self, module: nn.Module, *, frozen: bool) -> None:
        fixed = {
            name
            for name, parameter in module.named_parameters(remove_duplicate=False)
            if not parameter.requires_grad
        }
        state = module.state_dict()
        self._state = {name: state[name] for name in state if (name in fixed) is frozen}

    def state_dict(self) -> dict[str, Tensor]:
        """Return the tensors by name."""
        return self._state


def trained_state(module: nn.Module) -> dict[str, Any]:
    """Return trainable parameters and buffers as arrays, and the digest of the rest."""
    trained: Any = _Part(module, frozen=False)
    frozen: Any = _Part(module, frozen=True)
    return {"trained": module_state(trained), "frozen": module_digest(frozen)}


def load_trained_state(module: nn.Module, name: str, state: Mapping[str, Any]) -> None:
    """Restore what :func:`trained_state` returned.

    Raises:
        CheckpointError: the module is another, or its frozen weights are.
    """
    trained: Any = _Part(module, frozen=False)
    frozen: Any = _Part(module, frozen=True)
    require_digest(frozen, f"{name}'s frozen part", state["frozen"])
    load_module_state(trained, state["trained"])


def reference_state(reference: CausalModel | None, *, moves: bool) -> Any:
    """Return the digest of a reference, its weights if it moves, or ``None``."""
    if reference is None or reference.adapter_off:
        return None
    return module_state(reference.module) if moves else module_digest(reference.module)


def load_reference_state(reference: CausalModel | None, state: Any) -> None:
    """Restore what :func:`reference_state` returned; of a digest, check it.

    Raises:
        CheckpointError: the reference is another.
    """
    if state is None or reference is None:
        return
    if isinstance(state, str):
        require_digest(reference.module, "ref_model", state)
    else:
        load_module_state(reference.module, state)


def require_own_weights(reference: CausalModel | None) -> None:
    """Refuse a reference that cannot follow the policy: the model without its adapter.

    Raises:
        ConfigError: it is that.
    """
    if reference is not None and reference.adapter_off:
        raise ConfigError(
            "sync_ref_model moves a reference with weights of its own, and here it is the model "
            "without its adapter; leave it out, or pass ref_model="
        )


@torch.no_grad()
def move_reference(reference: CausalModel, policy: CausalModel, alpha: float) -> None:
    """Move the weights of the reference the part ``alpha`` of the way to the policy's."""
    pairs = zip(reference.module.parameters(), policy.module.parameters(), strict=True)
    for theirs, ours in pairs:
        theirs.data.lerp_(ours.data, alpha)
