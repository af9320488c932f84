"""Advantages and losses of tensors, and the loss of an algorithm's samples."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

TERMS = ("losses/entropy", "losses/policy", "losses/vf", "losses/total", "monitors/kl_div")

MICRO_BATCH = 2048
"""Rows of one forward and backward pass on the CPU: activations fit in the processor's caches."""

WIDTH = 256
"""Width of the widest layer for ``MICRO_BATCH`` rows; narrower models take more rows."""


def deviation(x: Tensor) -> Tensor:
    """Return the unbiased deviation; 0 for a single number."""
    return x.std() if x.numel() > 1 else torch.zeros((), device=x.device)


def estimate_advantages(
    rewards: Tensor,
    values: Tensor,
    *,
    gamma: float,
    gae_lambda: float,
    reward_scale: float | Tensor = 1.0,
    terminated: Tensor | None = None,
    truncated: Tensor | None = None,
    final_values: Tensor | None = None,
) -> Tensor:
    """Return advantages of T steps of envs.

        δ_t = r_t / (s + 1e-8) + γ V_{t+1} - V_t,  A_t = δ_t + γ λ A_{t+1},  A_T = 0

    After a termination V_{t+1} is 0, after a truncation it is the value of the true final
    observation; in either case A_{t+1} is left out.

    Args:
        rewards: (T, ...), not modified.
        values: (T + 1, ...).
        gamma: γ.
        gae_lambda: λ.
        reward_scale: s; 1 leaves rewards unscaled.
        terminated: (T, ...) bool; ``None``: no terminations.
        truncated: (T, ...) bool; ``None``: no truncations.
        final_values: (T, ...), read where truncated.

    Returns:
        (T, ...) A_t.

    Source:
        Schulman et al. 2016, "High-dimensional continuous control using generalized advantage
        estimation", eq. 16.
    """
    scaled = rewards / (reward_scale + 1e-8)
    following = values[1:]
    passing: Tensor | None = None
    if truncated is not None and final_values is not None:
        following = torch.where(truncated, final_values, following)
        passing = ~truncated
    if terminated is not None:
        following = following.masked_fill(terminated, 0.0)
        passing = ~terminated if passing is None else passing & ~terminated
    deltas = scaled + gamma * following - values[:-1]
    out = torch.empty_like(deltas)
    running = torch.zeros_like(deltas[0])
    for t in range(len(deltas) - 1, -1, -1):
        if passing is not None:
            running = running * passing[t]
        running = deltas[t] + gamma * gae_lambda * running
        out[t] = running
    return out


def advantages_and_returns(
    rewards: Tensor, values: Tensor, *, normalize: bool, **given: Any
) -> tuple[Tensor, Tensor]:
    """Return advantages and returns (T, ...); ``normalize`` standardises the advantages alone.

    The other arguments are those of :func:`estimate_advantages`.
    """
    advantages = estimate_advantages(rewards, values, **given)
    returns = advantages + values[:-1]
    if normalize:
        advantages = (advantages - advantages.mean()) / (deviation(advantages) + 1e-8)
    return advantages, returns


class PPOLosses(NamedTuple):
    """Means over one batch, in the order of :data:`TERMS`."""

    entropy: Tensor
    policy: Tensor
    """The surrogate, to be maximised."""
    vf: Tensor
    total: Tensor
    kl_div: Tensor
    """mean (r - 1) - log r, without gradient."""


def clipped_losses(
    logp: Tensor,
    values: Tensor,
    entropy: Tensor | None,
    old_logp: Tensor,
    advantages: Tensor,
    returns: Tensor,
    *,
    clip_param: float,
    vf_clip_param: float,
    vf_coeff: float,
    entropy_coeff: float | Tensor = 0.0,
    dual_clip_param: float | None = None,
) -> PPOLosses:
    """Return PPO's losses, with a bound on the value loss instead of the value's change.

        L_π = mean min(A r, A clip(r, 1 - c, 1 + c)), and max(·, d A) where A < 0
        L_V = mean min(smooth_l1(V, G), v)
        total = c_V L_V - L_π - c_H mean H

    Above v the value loss has no gradient.

    Args:
        logp: (N, 1) log π(a|s).
        values: (N, 1) V(s).
        entropy: (N, 1), or ``None`` if its weight is 0.
        old_logp: (N, 1) by the acting policy.
        advantages: (N, 1) A.
        returns: (N, 1) G.
        clip_param: c.
        vf_clip_param: v.
        vf_coeff: c_V.
        entropy_coeff: c_H.
        dual_clip_param: d; ``None`` leaves that bound out.

    Source:
        Schulman et al. 2017, "Proximal policy optimization algorithms", eq. 7; Ye et al. 2020,
        "Mastering complex control in MOBA games with deep reinforcement learning", eq. 4.
    """
    log_ratio = logp - old_logp
    ratio = log_ratio.exp()
    surrogate = torch.min(
        advantages * ratio, advantages * ratio.clamp(1 - clip_param, 1 + clip_param)
    )
    if dual_clip_param is not None:
        bounded = torch.max(surrogate, dual_clip_param * advantages)
        surrogate = torch.where(advantages < 0, bounded, surrogate)
    policy = surrogate.mean()
    vf = F.smooth_l1_loss(values, returns, reduction="none").clamp(0, vf_clip_param).mean()
    total = vf_coeff * vf - policy
    mean_entropy = torch.zeros_like(vf) if entropy is None else entropy.mean()
    if entropy is not None:
        total = total - entropy_coeff * mean_entropy
    kl_div = ((ratio - 1) - log_ratio).mean()
    return PPOLosses(mean_entropy.detach(), policy.detach(), vf.detach(), total, kl_div.detach())


def loss_and_terms(
    algorithm: Any, samples: TensorDict, coeff: Tensor | None
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of samples with its graph, and means by the names of :data:`TERMS`.

    Samples are (N) transitions or (N, L) sequences; ``coeff`` weighs the entropy, and ``None``
    leaves it out. Under ``enable_amp`` networks run in half precision, and losses in single.
    """
    hparams, policy = algorithm.hparams, algorithm.policy
    with torch.autocast(hparams.device_type, dtype=hparams.half, enabled=hparams.enable_amp):
        out = algorithm._forward(samples)
    if hparams.enable_amp:
        out = out.apply(lambda x: x.float() if x.is_floating_point() else x)
    dist = policy.distribution_cls(out["features"], policy.model)
    flat = samples.flatten(0, 1) if samples["logp"].dim() > 2 else samples
    losses = clipped_losses(
        dist.logp(flat["actions"]),
        out["values"],
        None if coeff is None else dist.entropy(),
        flat["logp"],
        flat["advantages"],
        flat["returns"],
        clip_param=hparams.clip_param,
        vf_clip_param=hparams.vf_clip_param,
        vf_coeff=hparams.vf_coeff,
        entropy_coeff=0.0 if coeff is None else coeff,
        dual_clip_param=hparams.dual_clip_param,
    )
    return losses.total, dict(zip(TERMS, (term.detach() for term in losses), strict=True))


def micro_batch(model: Any) -> int:
    """Return the rows of a forward and backward pass on a CPU; at most 4 times more if narrow.

    A model's matrices give the widths of layers; convolutions and others count as ``WIDTH``.
    """
    shapes = [p.shape for p in model.parameters() if p.dim() > 1]
    widest = max((shape[-1] if len(shape) < 3 else WIDTH for shape in shapes), default=WIDTH)
    return MICRO_BATCH * min(max(WIDTH // widest, 1), 4)
