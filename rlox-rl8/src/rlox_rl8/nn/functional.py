"""Advantages, losses, masks and skip connections on batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from tensordict import TensorDict
from torch import Tensor

from rlox_rl8.losses import advantages_and_returns, clipped_losses

if TYPE_CHECKING:
    from rlox_rl8.distributions import Distribution

SkipKind = Literal["residual", "cat"] | None
"""Add, concatenate, or use the output alone."""


def generalized_advantage_estimate(
    batch: TensorDict,
    /,
    *,
    gae_lambda: float = 0.95,
    gamma: float = 0.95,
    inplace: bool = False,
    normalize_advantages: bool = True,
    return_returns: bool = True,
    reward_scale: float = 1.0,
) -> TensorDict:
    """Return advantages and returns of a batch; see :func:`rlox_rl8.losses.estimate_advantages`.

    Args:
        batch: (B, T + 1) with ``rewards``, not modified, and ``values``; row T holds only a value.
        gae_lambda: λ.
        gamma: γ.
        inplace: write into ``batch`` and return it.
        normalize_advantages: give them mean 0 and deviation 1 over T and B.
        return_returns: whether to add ``returns``, from advantages before normalisation.
        reward_scale: divisor of rewards.

    Returns:
        (B, T + 1) with ``advantages`` (0 in row T) and ``returns`` (the last value in row T).
    """
    rewards, values = (batch[key].transpose(0, 1) for key in ("rewards", "values"))
    advantages, returns = advantages_and_returns(
        rewards[:-1],
        values,
        normalize=normalize_advantages,
        gamma=gamma,
        gae_lambda=gae_lambda,
        reward_scale=reward_scale,
    )
    out = batch if inplace else TensorDict({}, batch.batch_size, device=batch.device)
    out["advantages"] = torch.cat([advantages, torch.zeros_like(values[:1])]).transpose(0, 1)
    if return_returns:
        out["returns"] = torch.cat([returns, values[-1:]]).transpose(0, 1)
    return out


def ppo_losses(
    buffer_batch: TensorDict,
    sample_batch: TensorDict,
    sample_distribution: Distribution,
    /,
    *,
    clip_param: float = 0.2,
    dual_clip_param: float | None = 5.0,
    entropy_coeff: float = 0.0,
    vf_clip_param: float = 1.0,
    vf_coeff: float = 1.0,
) -> TensorDict:
    """Return the scalars ``entropy``, ``policy``, ``vf`` and ``total`` of a batch.

    :func:`rlox_rl8.losses.clipped_losses` explains them and the options. The buffer's batch (N) has
    ``actions``, ``logp``, ``advantages`` and ``returns``; the learning policy gives the other (N)
    with ``values``, and the distribution of the actions.
    """
    losses = clipped_losses(
        sample_distribution.logp(buffer_batch["actions"]),
        sample_batch["values"],
        sample_distribution.entropy() if entropy_coeff else None,
        buffer_batch["logp"],
        buffer_batch["advantages"],
        buffer_batch["returns"],
        clip_param=clip_param,
        dual_clip_param=dual_clip_param,
        entropy_coeff=entropy_coeff,
        vf_clip_param=vf_clip_param,
        vf_coeff=vf_coeff,
    )
    names = ("entropy", "policy", "vf", "total")
    return TensorDict({name: getattr(losses, name) for name in names}, batch_size=[])


def binary_mask_to_float_mask(mask: Tensor, /) -> Tensor:
    """Return 0 where ``mask`` is true and -∞ where it is false."""
    return torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask.bool(), float("-inf"))


def float_mask_to_binary_mask(mask: Tensor, /) -> Tensor:
    """Return true where ``mask`` is 0."""
    return mask == 0


def mask_from_lengths(x: Tensor, lengths: Tensor, /) -> Tensor:
    """Return (B, T), true before each row's length; ``x`` is (B, T, ...)."""
    return torch.arange(x.shape[1], device=x.device) < lengths.reshape(-1, 1)


def masked_avg(
    x: Tensor, /, *, mask: Tensor | None = None, dim: int = 1, keepdim: bool = False
) -> Tensor:
    """Return the mean of ``x`` (B, T, ...) over ``dim`` where ``mask`` (B, T) is true."""
    if mask is None:
        return x.mean(dim, keepdim=keepdim)
    mask = _wide(mask, x)
    kept = torch.where(mask, x, 0).sum(dim, keepdim=keepdim)
    return kept / mask.sum(dim, keepdim=keepdim).clamp(min=1)


def masked_max(x: Tensor, /, *, mask: Tensor | None = None, dim: int = 1) -> tuple[Tensor, Tensor]:
    """Return the greatest entries of ``x`` (B, T, ...) where ``mask`` is true, and their indices.

    Both keep ``dim``.
    """
    found = _masked(x, mask).max(dim, keepdim=True)
    return found.values, found.indices


def masked_categorical_sample(
    x: Tensor, /, *, mask: Tensor | None = None, dim: int = 1
) -> tuple[Tensor, Tensor]:
    """Return entries of logits ``x`` (B, T), drawn where ``mask`` is true, and their indices."""
    x = _masked(x, mask)
    dist: Any = torch.distributions.Categorical(logits=x)
    places = dist.sample().unsqueeze(-1)
    return x.gather(dim, places), places


def _wide(mask: Tensor, x: Tensor) -> Tensor:
    return mask.bool().reshape(*mask.shape, *[1] * (x.dim() - mask.dim()))


def _masked(x: Tensor, mask: Tensor | None) -> Tensor:
    return x if mask is None else x.masked_fill(~_wide(mask, x), torch.finfo(x.dtype).min)


def masked_log_softmax(x: Tensor, /, *, mask: Tensor | None = None, dim: int = -1) -> Tensor:
    """Return log-softmax over the entries whose mask is true; others get the dtype's minimum."""
    return _masked(x, mask).log_softmax(dim)


def skip_connection(x: Tensor, y: Tensor, /, *, kind: Any = "cat", dim: int = -1) -> Tensor:
    """Return an input ``x`` and an output ``y`` combined.

    ``"residual"`` adds, ``"cat"`` concatenates along ``dim``, ``None`` returns ``y``.

    Raises:
        ValueError: the kind is unknown.
    """
    if kind not in ("residual", "cat", None):
        raise ValueError(f"kind must be 'residual', 'cat' or None, got {kind!r}")
    if kind == "cat":
        return torch.cat([x, y], dim)
    return x + y if kind == "residual" else y
