"""Minibatches of the passes over a buffer, and their losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from tensordict import TensorDict

from rlox_rl8.data import AlgorithmHparams
from rlox_rl8.nn.functional import PPOLosses, ppo_losses

__all__ = ["losses_of", "minibatches"]


def minibatches(samples: TensorDict, hparams: AlgorithmHparams) -> Iterator[TensorDict]:
    """Yield the minibatches of all passes; a lone one is neither copied nor shuffled."""
    for _ in range(hparams.num_sgd_iters):
        if hparams.num_minibatches == 1:  # its order has no effect
            yield samples
            continue
        order = torch.arange(len(samples), device=hparams.device)
        if hparams.shuffle_minibatches:
            order = torch.randperm(len(samples), device=hparams.device)
        yield from (samples[rows] for rows in torch.split(order, hparams.sgd_minibatch_size))


def losses_of(
    policy: Any, samples: TensorDict, out: TensorDict, hparams: AlgorithmHparams, coeff: float
) -> PPOLosses:
    """Return the losses of samples.

    Args:
        policy: whose distribution gives log-probabilities and entropy.
        samples: (N) transitions, or (N, L) sequences.
        out: features and values of the N or N·L transitions.
        hparams: bounds and weights.
        coeff: weight of the entropy.
    """
    dist = policy.distribution_cls(out["features"], policy.model)
    flat = samples.flatten(0, 1) if samples["logp"].dim() > 2 else samples
    return ppo_losses(
        dist.logp(flat["actions"]),
        out["values"],
        dist.entropy() if coeff else None,
        flat["logp"],
        flat["advantages"],
        flat["returns"],
        clip_param=hparams.clip_param,
        vf_clip_param=hparams.vf_clip_param,
        vf_coeff=hparams.vf_coeff,
        entropy_coeff=coeff,
        dual_clip_param=hparams.dual_clip_param,
    )
