"""Advantage estimation: from an unroll to a batch to learn from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlox import kernels
from rlox.batches.rollout import RolloutBatch, Unroll
from rlox.spaces.nested import map_leaves

__all__ = ["add_values", "estimate_advantages"]


@torch.no_grad()
def estimate_advantages(
    unroll: Unroll, policy: Any, gamma: float, gae_lambda: float
) -> RolloutBatch:
    """Return the unroll's steps with values and generalised advantage estimates.

        δ_t = r_t + γ V(s_{t+1}) - V(s_t)
        A_t = δ_t + γλ A_{t+1}

    V(s_{t+1}) is 0 after a termination and the value of the true final observation after a
    truncation, and neither lets A_{t+1} pass.

    Args:
        unroll: T steps of N envs.
        policy: estimates values with ``get_value(obs)``, unless the unroll has them.
        gamma: discount γ in [0, 1].
        gae_lambda: trace decay λ in [0, 1].

    Returns:
        A batch of T*N rows.

    Source:
        Schulman et al. 2016, "High-dimensional continuous control using generalized advantage
        estimation", eq. 16; truncated as in Schulman et al. 2017, eq. 11 and 12.
    """
    if unroll.values is None:
        unroll = add_values(unroll, policy.get_value)
    assert unroll.values is not None
    assert unroll.final_values is not None
    scaled = unroll.scaled_rewards
    values, device = unroll.values, unroll.log_probs.device
    advantages, returns = kernels.backend().compute_gae_time_major(
        unroll.rewards if scaled is None else scaled,
        values[:-1].cpu().numpy(),
        unroll.terminated,
        unroll.truncated,
        unroll.final_values,
        values[-1].cpu().numpy(),
        gamma,
        gae_lambda,
    )

    def rows(array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).flatten().to(device)

    return RolloutBatch(
        obs=_rows(map_leaves(lambda leaf: leaf[:-1], unroll.obs)),
        actions=_rows(unroll.actions),
        log_probs=_rows(unroll.log_probs),
        values=_rows(values[:-1]),
        rewards=rows(unroll.rewards),
        terminated=rows(unroll.terminated),
        truncated=rows(unroll.truncated),
        advantages=rows(advantages),
        returns=rows(returns),
        n_steps=unroll.n_steps,
        n_envs=unroll.n_envs,
        action_masks=_rows(unroll.action_masks),
        episode_starts=_rows(unroll.episode_starts),
        initial_state=unroll.initial_state,
    )


@torch.no_grad()
def add_values(unroll: Unroll, value: Callable[[Any], Tensor]) -> Unroll:
    """Return the unroll with the values of its observations.

    Args:
        unroll: T steps of N envs.
        value: from B observations to their values (B,).
    """
    final_values = np.zeros(unroll.rewards.shape, np.float32)
    if unroll.final_obs is not None:
        final_values[unroll.truncated] = value(unroll.final_obs).cpu().numpy()
    obs = _rows(map_leaves(lambda leaf: leaf[:-1], unroll.obs))
    next_obs = map_leaves(lambda leaf: leaf[-1], unroll.obs)
    values = torch.cat([value(obs), value(next_obs)]).view(unroll.n_steps + 1, unroll.n_envs)
    return replace(unroll, values=values, final_values=final_values)


def _rows(steps: Any) -> Any:
    """Return (T, N, ...) tensors as (T*N, ...)."""
    return None if steps is None else map_leaves(lambda leaf: leaf.flatten(0, 1), steps)
