"""What checkpoints hold of a model: what is trained, and a digest of what is frozen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlox.nn import module_state, require_digest
from rlox.nn.state import load_module_state, module_digest
from torch import Tensor, nn

__all__ = ["load_trained_state", "trained_state"]


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
