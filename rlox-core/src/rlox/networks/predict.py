"""Action prediction for user-supplied observations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlox.errors import SpaceError
from rlox.protocols import OnPolicyActor, RecurrentActor
from rlox.spaces.data import Request, memory_of, read_request
from rlox.spaces.rows import map_leaves

Mode = Callable[..., Tensor]
"""From observations (B, *shape), and masks where there are any, to the most probable actions
(B, ...), as :meth:`rlox.protocols.OnPolicyActor.deterministic`."""


@torch.no_grad()
def act(
    choose: Callable[[Any], Tensor],
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    obs: Any,
    *,
    device: torch.device | str = "cpu",
) -> Any:
    """Return actions that a function chooses; :func:`predict` does the same for a policy.

    Args:
        choose: from (B, *shape) observations on ``device`` to the rows of B actions in the env's
            own units, discrete ones counted from 0.
        observation_space: see :func:`predict`.
        action_space: see :func:`predict`.
        obs: see :func:`predict`.
        device: of the observations.

    Raises:
        SpaceError: ``obs`` has action masks.
        ValueError: ``obs`` has another shape.
    """
    request, seen, masks = _prepare(observation_space, action_space, obs, None, None, device)
    if masks is not None:
        raise SpaceError("there are action masks, which this algorithm does not take")
    return request.actions(choose(seen).cpu().numpy())


@torch.no_grad()
def predict(
    policy: OnPolicyActor,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    obs: Any,
    deterministic: bool,
    *,
    action_masks: npt.ArrayLike | None = None,
    preprocess: Callable[[Any], Any] | None = None,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
    mode: Mode | None = None,
) -> Any:
    """Return actions within the action space's bounds.

    Args:
        policy: acts on (B, *shape) tensors on ``device``.
        observation_space: of one env; its shape distinguishes one observation from a batch.
        action_space: of one env.
        obs: one observation or a batch (B, *shape), nested like the space. The key
            ``"action_mask"`` of a dict holds the masks.
        deterministic: the mode of the action distribution rather than a sample.
        action_masks: for one action (mask_size,) or a batch (B, mask_size), 1 where an action is
            allowed, see :mod:`rlox.spaces.rows`; ``None`` masks nothing.
        preprocess: turns the stored batch into the policy's input; ``None`` changes nothing.
        generator: source of the samples for policies that draw from their attribute ``generator``,
            so that acting disturbs no training; ``None`` uses the policy's own.
        device: where the policy lives.
        mode: replaces ``policy.deterministic``; finds the most probable actions without sampling.

    Returns:
        For one observation, an action of the space: an int if it is ``Discrete``, else an array
        (act_dim,), nested like the space. For a batch, arrays (B, ...), nested in the same way.

    Raises:
        SpaceError: the actions or the policy take no masks.
        ValueError: ``obs`` or ``action_masks`` has another shape, or a mask allows nothing.
    """
    asked = observation_space, action_space, obs, action_masks, preprocess, device
    request, seen, given = _prepare(*asked)
    masks = () if given is None else (given,)
    if deterministic and mode is not None:
        return request.actions(mode(seen, *masks).cpu().numpy())
    choose: Any = policy.deterministic if deterministic else policy.get_action_and_logprob
    if masks:
        taking_masks(choose)
    with drawing_from(generator, policy):
        chosen = choose(seen, *masks)
    return request.actions((chosen if deterministic else chosen[0]).cpu().numpy())


@torch.no_grad()
def predict_with_memory(
    policy: RecurrentActor,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    obs: Any,
    deterministic: bool,
    *,
    state: npt.NDArray[np.float32] | None = None,
    episode_start: npt.ArrayLike | None = None,
    action_masks: npt.ArrayLike | None = None,
    preprocess: Callable[[Any], Any] | None = None,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
) -> tuple[Any, npt.NDArray[np.float32]]:
    """Return actions as :func:`predict` does, and the memory to pass with the next observations.

    Args:
        policy: has a memory.
        observation_space: of one env.
        action_space: of one env.
        obs: one observation or a batch (B, *shape).
        deterministic: the mode of the action distribution rather than a sample.
        state: (B, state_size), B being 1 for one observation; ``None`` is an empty memory.
        episode_start: (B,) bool, or one, whether an episode begins with the observation, which
            empties the memory; ``None`` if none begins.
        action_masks: see :func:`predict`.
        preprocess: see :func:`predict`.
        generator: source of the samples.
        device: where the policy lives.

    Raises:
        ValueError: an argument has another shape.
    """
    asked = observation_space, action_space, obs, action_masks, preprocess, device
    request, seen, masks = _prepare(*asked)
    memory = memory_of(state, (request.size, policy.state_size), episode_start)
    before = torch.from_numpy(memory).to(device)
    distribution, _, after = policy.step(seen, before, masks)
    rows = distribution.mode() if deterministic else distribution.sample(generator)[0]
    return request.actions(rows.cpu().numpy()), after.cpu().numpy()


def taking_masks(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a policy's method after checking that it takes masks.

    Raises:
        SpaceError: it does not.
    """
    if "action_masks" not in inspect.signature(method).parameters:
        raise SpaceError(
            f"there are action masks, but {method.__qualname__} has no argument 'action_masks'; "
            "add it to the policy's methods, see rlox.protocols.OnPolicyActor"
        )
    return method


def _prepare(
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    obs: Any,
    action_masks: npt.ArrayLike | None,
    preprocess: Callable[[Any], Any] | None,
    device: torch.device | str,
) -> tuple[Request, Any, Tensor | None]:
    """Return the user's request, and its observations and masks in the form that a policy takes."""
    request = read_request(observation_space, action_space, obs, action_masks)
    masks = None if request.masks is None else torch.from_numpy(request.masks).to(device)
    batch = request.obs if preprocess is None else preprocess(request.obs)
    tensors = map_leaves(lambda leaf: torch.from_numpy(leaf).to(device), batch)
    return request, tensors, masks


@contextmanager
def drawing_from(generator: torch.Generator | None, policy: Any) -> Iterator[None]:
    """Within the block, let ``policy`` sample from ``generator``, if it has such an attribute."""
    if generator is None or not hasattr(policy, "generator"):
        yield
        return
    before, policy.generator = policy.generator, generator
    try:
        yield
    finally:
        policy.generator = before
