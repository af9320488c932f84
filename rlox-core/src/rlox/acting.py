"""From observations a user has to actions a user can step an env with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces

from rlox.protocols import OnPolicyActor

__all__ = ["predict"]


@torch.no_grad()
def predict(
    policy: OnPolicyActor,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    obs: npt.ArrayLike,
    deterministic: bool,
    *,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
) -> Any:
    """Return actions within the action space's bounds.

    Args:
        policy: acts on (B, *shape) tensors on ``device``.
        observation_space: of one env; its shape tells one observation from a batch.
        action_space: of one env.
        obs: one observation or a batch (B, *shape).
        deterministic: the mode of the action distribution rather than a sample.
        generator: source of the samples for policies that draw from their attribute ``generator``,
            so that acting disturbs no training; none: the policy's own.
        device: where the policy lives.

    Returns:
        For one observation an int (discrete) or an array (act_dim,); for a batch an array
        (B, ...).

    Raises:
        ValueError: ``obs`` has neither shape.
    """
    array = np.asarray(obs)
    shape = observation_space.shape
    assert shape is not None
    single = array.shape == shape
    if not single and array.shape[1:] != shape:
        raise ValueError(
            f"obs must have shape {shape} or (B, {', '.join(map(str, shape))}), got {array.shape}"
        )
    dtype = np.uint8 if observation_space.dtype == np.uint8 else np.float32
    tensor = torch.from_numpy(np.array(array if not single else array[None], dtype)).to(device)
    if deterministic:
        chosen = policy.deterministic(tensor)
    else:
        with _drawing_from(generator, policy):
            chosen = policy.get_action_and_logprob(tensor)[0]
    actions = chosen.cpu().numpy()
    if isinstance(action_space, spaces.Box):
        actions = np.clip(actions, action_space.low, action_space.high)
    if not single:
        return actions
    return int(actions[0]) if isinstance(action_space, spaces.Discrete) else actions[0]


@contextmanager
def _drawing_from(generator: torch.Generator | None, policy: Any) -> Iterator[None]:
    if generator is None or not hasattr(policy, "generator"):
        yield
        return
    before, policy.generator = policy.generator, generator
    try:
        yield
    finally:
        policy.generator = before
