"""Validation of user-supplied networks, with a dry run before training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rlox.errors import ConfigError
from rlox.networks.validate import B, example_observations, try_network
from rlox.replay.loop import ReplayLoop
from rlox.spaces.rows import map_leaves
from torch import Tensor, nn

__all__ = ["B", "on_device", "require_outputs", "require_stochastic", "stochastic_actions"]

STOCHASTIC = ("get_action_and_logprob", "sample")
"""Methods that return actions and their log-probabilities; the first that a policy has is taken."""


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
    replay: ReplayLoop,
    name: str,
    *shapes: tuple[int | None, ...],
    method: str | None = None,
    actions: bool = False,
) -> None:
    """Try a network that the caller brought on B observations of the envs.

    Args:
        network: from observations (B, *shape).
        replay: whose envs it is for.
        name: what the caller called it.
        shapes: of the output, or of several outputs; ``None`` stands for any size.
        method: the method to call; ``None`` calls the network itself.
        actions: whether it takes actions (B, act_dim) too.

    Raises:
        ConfigError: it fails, or the outputs have other shapes.
    """
    space = replay.env.observation_space
    given = [replay.observations.copy(example_observations(space))]
    asked = f"{B} observations of {space}"
    if actions:
        given.append(replay.actions.random(np.random.default_rng(0), B))
        asked += f" and {B} actions"
    tensors = [map_leaves(lambda leaf: torch.from_numpy(leaf).to(replay.device), g) for g in given]
    called = name if method is None else f"{name}.{method}"
    function = getattr(network, method or "__call__")
    try_network(network, called, lambda: function(*tensors), asked, *shapes)


def stochastic_actions(
    policy: Any, name: str, generator: torch.Generator
) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return the method of a policy that draws actions.

    Args:
        policy: its attribute ``generator`` is set if it has one that is ``None``.
        name: what the caller called it.
        generator: the run's source of actions.

    Raises:
        ConfigError: it has no such method, or none for its mode.
    """
    draw = find_method(policy, name, *STOCHASTIC)
    find_method(policy, name, "deterministic")
    if getattr(policy, "generator", ...) is None:
        policy.generator = generator
    return getattr(policy, draw)  # type: ignore[no-any-return]


def require_stochastic(policy: nn.Module, replay: ReplayLoop, name: str, act_dim: int) -> None:
    """Try a stochastic policy that the caller brought; see :func:`require_outputs`."""
    draw = find_method(policy, name, *STOCHASTIC)
    require_outputs(policy, replay, name, (B, act_dim), (B,), method=draw)
    require_outputs(policy, replay, name, (B, act_dim), method="deterministic")
