"""Minibatches of the passes over a buffer, and their losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlox_rl8.data import AlgorithmHparams
from rlox_rl8.losses import PPOLosses, clipped_losses

__all__ = ["TERMS", "add_gradient", "loss_and_terms", "losses_of", "micro_batch", "minibatches"]

TERMS = ("losses/entropy", "losses/policy", "losses/vf", "losses/total", "monitors/kl_div")

MICRO_BATCH = 2048
"""Rows of one forward and backward pass on the CPU: activations stay in the processor's caches."""

WIDTH = 256
"""Inputs of the widest layer up to which there may be more rows, as many as make the same."""


def micro_batch(model: Any) -> int:
    """Return the rows of a pass both ways on a CPU; of narrow layers 4 times as many at most.

    Args:
        model: whose matrices say how wide its layers are; with other parameters, such as those of
            convolutions, they do not.
    """
    shapes = [p.shape for p in model.parameters()]
    widest = max((shape[-1] if len(shape) < 3 else WIDTH for shape in shapes if len(shape) > 1),
                 default=WIDTH)  # fmt: skip
    return MICRO_BATCH * min(max(WIDTH // widest, 1), 4)


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
    return clipped_losses(
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


def loss_and_terms(
    algorithm: Any, samples: TensorDict, coeff: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of samples with its graph, and means by the names of :data:`TERMS`.

    Under ``enable_amp`` networks run in half precision, and the losses of their outputs in single.

    Args:
        algorithm: whose policy learns.
        samples: see :func:`losses_of`.
        coeff: weight of the entropy.
    """
    hparams = algorithm.hparams
    with torch.autocast(hparams.device_type, dtype=hparams.half, enabled=hparams.enable_amp):
        out = algorithm._forward(samples)
    if hparams.enable_amp:
        out = out.apply(lambda x: x.float() if x.is_floating_point() else x)
    losses = losses_of(algorithm.policy, samples, out, hparams, coeff)
    shares = (losses.entropy, losses.policy, losses.vf, losses.total.detach(), losses.kl_div)
    return losses.total, dict(zip(TERMS, shares, strict=True))


def add_gradient(algorithm: Any, minibatch: TensorDict, accumulated: int) -> dict[str, Tensor]:
    """Add the gradient of a minibatch and return its terms, or stop before at a high KL.

    Args:
        algorithm: whose policy and optimiser learn.
        minibatch: (N, ...) samples.
        accumulated: number of minibatches of one gradient step.

    Returns:
        Means by the names of :data:`TERMS`, and ``stopped`` if there was no gradient.
    """
    hparams, coeff = algorithm.hparams, algorithm.entropy_scheduler.coeff
    rows = len(minibatch)
    per_row = minibatch["logp"].numel() // rows
    fast = algorithm.fast if algorithm.fast is not None and algorithm.fast.learns() else None
    # the divergence of the whole minibatch decides whether there is a gradient at all
    whole = hparams.target_kl_div is not None or (fast is not None and not fast.needs_parts)
    if whole or hparams.device_type != "cpu":  # a GPU is idle while parts of a minibatch begin
        size = rows
    else:
        size = max(micro_batch(algorithm.policy.model) // per_row, 1)
    totals: dict[str, Tensor] = {}
    for part in minibatch.split(size) if size < rows else (minibatch,):
        weight = len(part) / (rows * accumulated)
        if fast is not None:
            terms = fast.differentiate(part)
        else:
            with algorithm.policy.mode(True):
                total, terms = algorithm.loss_and_terms(algorithm, part, coeff)
        for key, value in terms.items():
            totals[key] = totals.get(key, 0) + value * weight
        divergence = terms["monitors/kl_div"]
        if hparams.target_kl_div is not None and divergence > 1.5 * hparams.target_kl_div:
            return {**totals, "stopped": divergence}
        if fast is not None:
            fast.add_gradient(weight)
            continue
        loss = total * weight
        scaler = algorithm.grad_scaler
        algorithm.flat.backward(
            scaler.scale(loss) if hparams.enable_amp else loss,
            copies=hparams.compile and hparams.device_type == "cuda",
        )
    return totals
