"""From observations a user has to actions a user can step an env with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlox.actions import ActionRows
from rlox.batch import RolloutBatch, RolloutMinibatch
from rlox.errors import SpaceError
from rlox.masks import MASK_KEY
from rlox.observations import ObservationRows
from rlox.protocols import OnPolicyActor
from rlox.spaces import map_leaves

__all__ = ["evaluate_actions", "predict", "taking_masks"]


@torch.no_grad()
def predict(
    policy: OnPolicyActor,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    obs: Any,
    deterministic: bool,
    *,
    action_masks: npt.ArrayLike | None = None,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
) -> Any:
    """Return actions within the action space's bounds.

    Args:
        policy: acts on (B, *shape) tensors on ``device``.
        observation_space: of one env; its shape tells one observation from a batch.
        action_space: of one env.
        obs: one observation or a batch (B, *shape), nested as the space is. The key
            ``"action_mask"`` of a dict is taken for the masks.
        deterministic: the mode of the action distribution rather than a sample.
        action_masks: of one action (mask_size,) or of a batch (B, mask_size), 1 where a choice is
            possible, see :mod:`rlox.actions`; none: nothing is masked.
        generator: source of the samples for policies that draw from their attribute ``generator``,
            so that acting disturbs no training; none: the policy's own.
        device: where the policy lives.

    Returns:
        For one observation an action of the space: an int where it is discrete, else an array
        (act_dim,), nested as the space is. For a batch arrays (B, ...), nested alike.

    Raises:
        SpaceError: the actions or the policy take no masks.
        ValueError: ``obs`` or ``action_masks`` has another shape, or a mask allows nothing.
    """
    if isinstance(obs, Mapping) and MASK_KEY in obs and action_masks is None:
        action_masks = obs[MASK_KEY]
        obs = {key: value for key, value in obs.items() if key != MASK_KEY}
    batch, single = ObservationRows(observation_space).batch(obs)
    tensors = map_leaves(lambda leaf: torch.from_numpy(leaf).to(device), batch)
    actions = ActionRows(action_space)
    choose: Any = policy.deterministic if deterministic else policy.get_action_and_logprob
    masks: tuple[torch.Tensor, ...] = ()
    if action_masks is not None:
        size = len(next(iter(tensors.values())) if isinstance(tensors, dict) else tensors)
        given = np.asarray(action_masks)[None] if single else np.asarray(action_masks)
        masks = (torch.from_numpy(actions.check_masks(given, size)).to(device),)
        choose = taking_masks(choose)
    with _drawing_from(generator, policy):
        chosen = choose(tensors, *masks)
    rows = (chosen if deterministic else chosen[0]).cpu().numpy()
    return actions.take(actions.to_env(rows), 0) if single else actions.to_env(rows)


def evaluate_actions(
    policy: OnPolicyActor, batch: RolloutBatch | RolloutMinibatch
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probabilities and entropies of a batch's actions, and values, each (B,).

    In one pass through the policy where it has a method ``evaluate_actions``.
    """
    masks = () if batch.action_masks is None else (batch.action_masks,)
    together = getattr(policy, "evaluate_actions", None)
    if together is not None:
        return together(batch.obs, batch.actions, *masks)  # type: ignore[no-any-return]
    log_probs, entropy = policy.get_logprob_and_entropy(batch.obs, batch.actions, *masks)
    return log_probs, entropy, policy.get_value(batch.obs)


def taking_masks(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a policy's method once it is known to take masks.

    Raises:
        SpaceError: it takes none.
    """
    if "action_masks" not in inspect.signature(method).parameters:
        raise SpaceError(
            f"there are action masks, but {method.__qualname__} has no argument 'action_masks'; "
            "add it to the policy's methods, see rlox.protocols.OnPolicyActor"
        )
    return method


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
