"""Advantages of agents that rest between their steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rlox import kernels
from rlox.batches import add_values, estimate_advantages
from rlox.batches.rollout import RolloutBatch, Unroll
from rlox.spaces import map_leaves
from torch import Tensor

__all__ = ["estimate_team_advantages"]

Flags = npt.NDArray[np.bool_]


@torch.no_grad()
def estimate_team_advantages(
    unroll: Unroll, active: Flags, policy: Any, gamma: float, gae_lambda: float
) -> RolloutBatch | None:
    """Return the steps in which agents acted, with values and generalised advantage estimates.

    A step of an agent lasts until it acts again. What it is paid in between, and its end, belong to
    the step; γ and λ count the agent's own steps. A step that lasts beyond the rollout is
    bootstrapped from the value of what the agent sees then; what it is paid later is not learnt
    from. So is what an agent is paid before its first action.

    Args:
        unroll: T steps of C agents.
        active: (T, C) the agents that acted.
        policy: estimates values with ``get_value(obs)``.
        gamma: discount γ in [0, 1].
        gae_lambda: trace decay λ in [0, 1].

    Returns:
        A batch of the rows of agents that acted, step 0 first; ``None`` if there are none. Its
        rewards are those of the agents' steps, and advantages are estimated from scaled rewards
        if the unroll has them.
    """
    if active.all():
        return estimate_advantages(unroll, policy, gamma, gae_lambda)
    if not active.any():
        return None
    if unroll.values is None:
        unroll = add_values(unroll, policy.get_value)
    unroll = replace(unroll, **_owned(unroll, active))
    assert unroll.values is not None
    assert unroll.final_values is not None
    values = unroll.values.cpu().numpy()
    # the own steps of each agent, packed to the beginning of its column
    place = np.cumsum(active, axis=0) - 1
    t, column = np.nonzero(active)
    row = place[t, column]
    shape = (int(row.max()) + 1, active.shape[1])

    def packed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        out = np.zeros(shape, array.dtype)
        out[row, column] = array[t, column]
        return out

    def on_device(array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(unroll.log_probs.device)

    def chosen(steps: Any, rows: npt.NDArray[Any]) -> Any:
        """Return rows of steps, counted as T * C."""
        if steps is None:
            return None
        where = on_device(rows)
        return map_leaves(lambda leaf: leaf.flatten(0, 1)[where], steps)

    cut, final_values = packed(unroll.truncated), packed(unroll.final_values)
    terminated = packed(unroll.terminated)
    acted = np.flatnonzero(place[-1] >= 0)
    last = place[-1, acted]
    goes_on = ~(cut | terminated)[last, acted]
    cut[last[goes_on], acted[goes_on]] = True
    final_values[last[goes_on], acted[goes_on]] = values[-1, acted[goes_on]]
    advantages, returns = kernels.kernel("compute_gae_time_major")(
        packed(unroll.rewards if unroll.scaled_rewards is None else unroll.scaled_rewards),
        packed(values[:-1]),
        terminated,
        cut,
        final_values,
        values[-1],
        gamma,
        gae_lambda,
    )
    sequences: dict[str, Any] = {}
    seen = np.flatnonzero(active)
    if unroll.initial_state is not None:  # replayed with their memory: L own steps of each agent
        acted_at = np.cumsum(active.any(axis=0)) - 1
        source = np.zeros((shape[0], len(acted)), np.int64)  # step 0 fills what is left
        there = np.zeros(source.shape, np.bool_)
        source[row, acted_at[column]] = t * shape[1] + column
        there[row, acted_at[column]] = True
        row, found = np.nonzero(there)
        t, column, seen = source[row, found] // shape[1], acted[found], source.reshape(-1)
        sequences = {
            "n_steps": shape[0],
            "n_envs": len(acted),
            "initial_state": unroll.initial_state[on_device(acted)],
            "episode_starts": chosen(unroll.episode_starts, seen),
            "active": on_device(there.reshape(-1)),
        }
    learnt = t * shape[1] + column
    return RolloutBatch(
        obs=chosen(map_leaves(lambda leaf: leaf[:-1], unroll.obs), seen),
        actions=chosen(unroll.actions, seen),
        log_probs=chosen(unroll.log_probs, learnt),
        values=chosen(unroll.values[:-1], learnt),
        rewards=on_device(unroll.rewards[t, column]),
        terminated=on_device(unroll.terminated[t, column]),
        truncated=on_device(unroll.truncated[t, column]),
        advantages=on_device(advantages[row, column]),
        returns=on_device(returns[row, column]),
        action_masks=chosen(unroll.action_masks, seen),
        **({"n_steps": unroll.n_steps, "n_envs": unroll.n_envs} | sequences),
    )


def _owned(unroll: Unroll, active: Flags) -> dict[str, Any]:
    """Return rewards, ends and final values with those of resting rows at the step before."""
    assert unroll.final_values is not None
    shape = active.shape
    rewards = np.zeros(shape, np.float32)
    scaled = None if unroll.scaled_rewards is None else np.zeros(shape, np.float32)
    terminated, truncated = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    final_values = np.zeros(shape, np.float32)
    step_of = np.full(shape[1], -1)  # the step that lasts, -1 where there is none
    for t in range(shape[0]):
        step_of = np.where(active[t], t, step_of)
        lasting = np.flatnonzero(step_of >= 0)
        rewards[step_of[lasting], lasting] += unroll.rewards[t, lasting]
        if scaled is not None and unroll.scaled_rewards is not None:
            scaled[step_of[lasting], lasting] += unroll.scaled_rewards[t, lasting]
        ended = unroll.terminated[t] | unroll.truncated[t]
        ends = lasting[ended[lasting]]
        at = step_of[ends], ends
        terminated[at], truncated[at] = unroll.terminated[t, ends], unroll.truncated[t, ends]
        final_values[at] = unroll.final_values[t, ends]
        step_of[ends] = -1
    return {
        "rewards": rewards,
        "scaled_rewards": scaled,
        "terminated": terminated,
        "truncated": truncated,
        "final_values": final_values,
        "values": unroll.values,
    }
