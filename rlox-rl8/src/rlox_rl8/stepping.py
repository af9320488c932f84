"""Steps of batched envs, plain or compiled by torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from rlox.protocols import TensorEnv
from tensordict import TensorDictBase
from torch import Tensor

__all__ = ["compiled_steps", "step_envs"]


def step_envs(env: TensorEnv, actions: Any) -> Any:
    """Step envs through the object, whose method may be replaced."""
    return env.step(actions)


def compiled_steps(device: torch.device) -> Callable[[TensorEnv, Any], Any]:
    """Return :func:`step_envs` compiled by torch; on CUDA one graph is replayed for each step.

    What a step returns must be used before the next one. Tensors that the env got in a step are
    copied, for the next replay writes into them; those of one that writes into its own make torch
    leave graphs out.

    Args:
        device: of the env's tensors.
    """
    if device.type != "cuda":
        return torch.compile(step_envs)
    made = torch.compile(step_envs, mode="reduce-overhead")

    def replayed(env: TensorEnv, actions: Any) -> Any:
        before = dict(vars(env))
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        out = made(env, actions)
        for name, value in vars(env).items():
            if value is not before.get(name):
                setattr(env, name, _copied(value))
        return out

    return replayed


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor | TensorDictBase):
        return value.clone()
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_copied(part) for part in value]
    return value
