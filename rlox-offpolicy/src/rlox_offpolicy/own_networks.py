"""The networks that users bring, tried before any work is done with them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from rlox.acting import drawing_from
from rlox.errors import ConfigError
from rlox.off_policy import ReplayAgent
from rlox.spaces import map_leaves, split
from torch import nn

__all__ = ["B", "find_method", "on_device", "require_outputs"]

B = 3
"""Observations that a network is tried on; of two, (B, 2) could be mistaken for (2, B)."""


def on_device(network: Any, name: str, device: torch.device) -> Any:
    """Return a network on a device.

    Raises:
        ConfigError: it is no ``torch.nn.Module``.
    """
    if not isinstance(network, nn.Module):
        raise ConfigError(f"{name} must be a torch.nn.Module, got {type(network).__name__}")
    return network.to(device)


def find_method(network: nn.Module, name: str, *methods: str) -> str:
    """Return the first of ``methods`` that a network has.

    Raises:
        ConfigError: it has none of them.
    """
    for method in methods:
        if callable(getattr(network, method, None)):
            return method
    raise ConfigError(
        f"{name} must have a method {' or '.join(methods)}, got {type(network).__name__} without"
    )


def require_outputs(
    network: nn.Module,
    agent: ReplayAgent,
    name: str,
    *shapes: tuple[int | None, ...],
    method: str | None = None,
    actions: bool = False,
) -> None:
    """Try a network that the caller brought on :data:`B` observations of the agent's env.

    No random stream is disturbed by it.

    Args:
        network: from observations (B, *shape).
        agent: whose env it is for.
        name: what the caller called it.
        shapes: of the output, or of several outputs; none: any size.
        method: what is called; none: the network itself.
        actions: whether it takes actions (B, act_dim) too.

    Raises:
        ConfigError: it fails, or the outputs have other shapes.
    """
    space = copy.deepcopy(agent.env.observation_space)
    space.seed(0)
    rows = map_leaves(lambda leaf: np.stack([leaf] * B), split(space, space.sample()))
    given = [agent.observations.copy(rows)]
    asked = f"{B} observations of {space}"
    if actions:
        given.append(agent.actions.random(np.random.default_rng(0), B))
        asked += f" and {B} actions"
    tensors = [map_leaves(lambda leaf: torch.from_numpy(leaf).to(agent.device), g) for g in given]
    called = name if method is None else f"{name}.{method}"
    modes = [(module, module.training) for module in network.modules()]
    generator = torch.Generator(agent.device)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), drawing_from(generator, network):
            outputs = getattr(network.eval(), method or "__call__")(*tensors)
    except Exception as error:
        raise ConfigError(f"{called} fails on {asked}: {error}") from error
    finally:
        for module, trains in modes:
            module.training = trains
    got = [getattr(o, "shape", None) for o in (outputs if len(shapes) > 1 else (outputs,))]
    if len(got) != len(shapes) or not all(map(_fits, got, shapes)):
        expected, found = " and ".join(map(_text, shapes)), " and ".join(map(_text, got))
        raise ConfigError(f"{called} must return {expected} for {asked}, got {found}")


def _fits(got: Any, shape: tuple[int | None, ...]) -> bool:
    return got is not None and (
        len(got) == len(shape) and all(s in (None, g) for s, g in zip(shape, got, strict=True))
    )


def _text(shape: Any) -> str:
    if shape is None:
        return "no tensor"
    return f"({', '.join('any' if s is None else str(s) for s in shape)})"
