"""Validation of user-supplied actor-critics with a dry run before training."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlox.networks.validate import B, Shape, example_observations, try_network
from rlox.protocols import RecurrentActor
from rlox.spaces.nested import map_leaves
from rlox.spaces.rows import ActionRows

__all__ = ["require_actor", "try_actor"]


def require_actor(policy: object) -> None:
    """Check that a policy has the methods of an actor-critic.

    Raises:
        TypeError: it is no module, or lacks a method.
    """
    if isinstance(policy, RecurrentActor):
        return
    methods = ("get_action_and_logprob", "get_value", "get_logprob_and_entropy", "deterministic")
    missing = [name for name in methods if not callable(getattr(policy, name, None))]
    if not isinstance(policy, nn.Module) or missing:
        lacks = f", which lacks {', '.join(missing)}" if isinstance(policy, nn.Module) else ""
        raise TypeError(
            "policy must be a torch.nn.Module with the methods of rlox.protocols.OnPolicyActor, "
            f"got {type(policy).__name__}{lacks}"
        )


def try_actor(
    policy: Any,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    device: torch.device,
) -> None:
    """Try all methods of a policy on :data:`rlox.networks.validate.B` observations.

    Neither its buffers nor a random stream change.

    Args:
        policy: has the methods of :class:`rlox.protocols.OnPolicyActor` or
            :class:`rlox.protocols.RecurrentActor`.
        observation_space: of what the policy sees of one env.
        action_space: of one env.
        device: where the policy is.

    Raises:
        ConfigError: a method fails, or returns other shapes; the text names it.
    """
    obs = map_leaves(
        lambda leaf: torch.from_numpy(leaf).to(device), example_observations(observation_space)
    )
    rows = ActionRows(action_space)
    columns = sum(leaf.columns for leaf in rows.leaves)
    # in a row, or as the space shapes them
    discrete, shape = isinstance(action_space, spaces.Discrete), action_space.shape
    actions: list[Shape] = [(B,)] if discrete else [(B, columns)]
    actions += [] if shape is None or (B, *shape) in actions else [(B, *shape)]
    asked = f"{B} observations of {observation_space}"

    def attempt(method: str, call: Callable[[], Any], given: str, *shapes: Any) -> Any:
        return try_network(policy, f"policy.{method}", call, given, *shapes)

    if isinstance(policy, RecurrentActor):
        _try_memory(policy, obs, actions, device, asked, attempt)
        return
    masks = torch.ones(B, rows.mask_size, dtype=torch.bool, device=device)

    def tried(method: str, given: tuple[Any, ...], *shapes: Any) -> Any:
        function = getattr(policy, method)
        more = (masks,) if _needs_masks(function) else ()
        text = asked if len(given) == 1 else f"{asked} and {B} actions"
        return attempt(method, lambda: function(*given, *more), text, *shapes)

    drawn, _ = tried("get_action_and_logprob", (obs,), actions, (B,))
    if hasattr(policy, "act_with_value"):
        tried("act_with_value", (obs,), actions, (B,), (B,))
    tried("deterministic", (obs,), actions)
    tried("get_value", (obs,), (B,))
    tried("get_logprob_and_entropy", (obs, drawn), (B,), (B,))
    if hasattr(policy, "evaluate_actions"):
        tried("evaluate_actions", (obs, drawn), (B,), (B,), (B,))


def _needs_masks(method: Callable[..., Any]) -> bool:
    """Whether a method has masks for an argument that may not be left out."""
    masks = inspect.signature(method).parameters.get("action_masks")
    return masks is not None and masks.default is masks.empty


def _try_memory(
    policy: Any,
    obs: Any,
    actions: list[Shape],
    device: torch.device,
    asked: str,
    attempt: Callable[..., Any],
) -> None:
    """Try a policy with a memory: one step of B envs."""
    state = torch.zeros(B, policy.state_size, device=device)
    starts = torch.ones(B, dtype=torch.bool, device=device)
    drawn: list[Tensor] = []

    def step() -> Any:
        distribution, values, after = policy.step(obs, state, None)
        drawn[:] = distribution.sample(torch.Generator(device))
        return *drawn, distribution.mode(), values, after

    shapes = actions, (B,), actions, (B,), tuple(state.shape)
    attempt("step", step, asked, *shapes)

    def evaluate() -> Any:
        return policy.evaluate_actions(obs, drawn[0], state=state, episode_starts=starts)

    attempt("evaluate_actions", evaluate, f"{asked} and {B} actions", (B,), (B,), (B,))
