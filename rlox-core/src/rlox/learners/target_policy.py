"""Rollout batches against a target policy, from unrolls of older ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from rlox.batches.rollout import RolloutBatch, Unroll, estimate_advantages
from rlox.batches.unrolls import step_rows
from rlox.learners.vtrace import ROUNDING, values_beyond, vtrace_targets
from rlox.losses import evaluate_actions

__all__ = ["TargetPolicy"]


@dataclass(frozen=True)
class TargetPolicy:
    """How steps that policies μ collected are learnt from near a target policy π_t.

    The surrogate of IMPACT and APPO has the ratio

        r = min(μ/π_t, β) π/μ = π / max(π_t, μ/β)

    So PPO's clipped surrogate is this one, given a batch whose old log-probabilities are
    max(log π_t, log μ - log β). If π_t is μ, it is PPO's own.

    Source:
        Luo et al. 2020, "IMPACT: importance weighted asynchronous architectures with clipped target
        networks", eq. 4 and 5 (https://arxiv.org/abs/1912.00167); RLlib's APPO has the same ratio.
    """

    gamma: float
    """Discount γ."""
    advantages: Literal["vtrace", "gae"] = "vtrace"
    """V-trace's, with the ratios π_t/μ, or generalised estimates, which have none."""
    gae_lambda: float = 0.95
    """Trace decay λ of ``"gae"``."""
    ratio_bound: float = 2.0
    """β."""
    rho_bar: float = 1.0
    """See :class:`rlox.learners.vtrace.VTraceActorCritic`, as of the next two."""
    c_bar: float = 1.0
    pg_rho_bar: float = 1.0

    @torch.no_grad()
    def batch(self, unroll: Unroll, target: Any) -> tuple[RolloutBatch, dict[str, float]]:
        """Return what the clipped surrogate learns from, with values of the target policy.

        Args:
            unroll: T steps of N envs.
            target: the target policy π_t, on the unroll's device.

        Returns:
            The batch, and ``mean_abs_log_rho`` and ``clipped_fraction`` of the ratios π_t/μ.
        """
        shape = unroll.n_steps, unroll.n_envs
        rows = evaluate_actions(target, step_rows(unroll))
        log_probs, _, values = (row.view(shape) for row in rows)
        next_values, final_values = values_beyond(target, unroll)
        valued = replace(
            unroll,
            values=torch.cat([values, next_values[None]]),
            final_values=final_values.astype(np.float32),
        )
        batch = estimate_advantages(valued, target, self.gamma, self.gae_lambda)
        log_rhos = log_probs - unroll.log_probs
        if self.advantages == "vtrace":
            vs, advantages = vtrace_targets(
                unroll,
                log_rhos,
                values,
                next_values,
                final_values,
                gamma=self.gamma,
                rho_bar=self.rho_bar,
                c_bar=self.c_bar,
                pg_rho_bar=self.pg_rho_bar,
            )
            batch = replace(batch, advantages=advantages.flatten(), returns=vs.flatten())
        old = torch.maximum(log_probs, unroll.log_probs - math.log(self.ratio_bound))
        return replace(batch, log_probs=old.flatten()), self._watched(log_rhos)

    def _watched(self, log_rhos: Tensor) -> dict[str, float]:
        clipped = log_rhos > math.log(self.rho_bar) + ROUNDING
        return {
            "mean_abs_log_rho": float(log_rhos.abs().mean()),
            "clipped_fraction": float(clipped.float().mean()),
        }
