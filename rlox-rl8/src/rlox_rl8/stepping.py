"""Steps of batched envs, plain or compiled by torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from rlox.learners.compiled import own_tensors
from rlox.protocols import TensorEnv

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
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        with own_tensors(env):
            return made(env, actions)

    return replayed
