"""The loss of action values of teams.

Of B sequences of T steps it is

    L = mean over the steps of (Q_tot(s, a) - y)²,    y = r + γ Q'_tot(s', a'),
    Q_tot(s, a) = mix(Q_1(o_1, a_1), …, Q_A(o_A, a_A); s),    a'_i = argmax over a of Q_i(o'_i, a)

where Q' is a target copy, agents that rest count as 0 in the mixing, and γ is 0 where the task
ended. Without mixing it is the mean over the agents' own steps, of their own ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from rlox_marl.action_values import TeamValues, greedy
from rlox_marl.mixing import NoMixing
from rlox_marl.team_sequences import TeamSequences

__all__ = ["team_value_loss"]


def team_value_loss(
    network: TeamValues,
    target: TeamValues,
    batch: TeamSequences,
    *,
    gamma: float,
    team_reward: Literal["own", "mean", "sum"],
    double_q: bool,
) -> tuple[Tensor, Tensor]:
    """Return the loss, and the mean value of what was done.

    Args:
        network: learns.
        target: judges what follows.
        batch: sequences.
        gamma: discount γ in [0, 1].
        team_reward: what is learnt from: an agent's own reward, which needs a network without
            mixing, or the mean or the sum of all agents' rewards.
        double_q: whether the network chooses the actions that the target judges; else the target
            chooses too.

    Source:
        Rashid et al. 2018, eq. 6; van Hasselt et al. 2016 for the choice of a'.
    """
    values, after = network(batch.obs, batch.memory, batch.starts)
    chosen = _at(values, _by_view(values, batch.actions)) * batch.active
    totals = network.mixing(chosen.flatten(0, 1), _rows(batch.state))
    with torch.no_grad():
        _, judged_after = target(batch.obs, batch.memory, batch.starts)
        judged = target.following(batch.next_obs, judged_after)
        choosing = network.following(batch.next_obs, after) if double_q else judged
        best = {name: greedy(q, batch.next_masks.get(name)) for name, q in choosing.items()}
        following = _at(judged, best) * batch.next_active
        next_totals = target.mixing(following.flatten(0, 1), _rows(batch.next_state))
        rewards = batch.rewards
        if team_reward != "own":
            rewards = getattr(rewards, team_reward)(-1, keepdim=True).expand_as(rewards)
        if isinstance(network.mixing, NoMixing):
            goes_on, counts = ~batch.terminated, batch.active
        else:
            rewards = rewards[..., :1]
            goes_on = batch.next_active.any(-1, keepdim=True)
            counts = torch.ones_like(goes_on)
        targets = rewards.flatten(0, 1) + gamma * goes_on.flatten(0, 1) * next_totals
    weights = counts.flatten(0, 1) / counts.sum()
    loss = ((totals - targets).square() * weights).sum()
    return loss, (totals.detach() * weights).sum()


def _by_view(values: Mapping[str, Tensor], actions: Tensor) -> dict[str, Tensor]:
    """Return the actions (T, B, A) of each view from those of all agents."""
    sizes = [one.shape[-2] for one in values.values()]
    parts = torch.split(actions, sizes, -1)
    return dict(zip(values, parts, strict=True))


def _at(values: Mapping[str, Tensor], actions: Mapping[str, Tensor]) -> Tensor:
    """Return the values (T, B, agents) of actions, of all views side by side."""
    parts = [q.gather(-1, actions[name].unsqueeze(-1)).squeeze(-1) for name, q in values.items()]
    return torch.cat(parts, -1)


def _rows(state: Tensor | None) -> Tensor | None:
    return None if state is None else state.flatten(0, 1)
