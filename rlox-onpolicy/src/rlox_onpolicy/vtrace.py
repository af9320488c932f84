"""V-trace: targets of unrolls, their loss, and a target policy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from rlox import kernels
from rlox.batches.rollout import RolloutBatch, Unroll, estimate_advantages, step_rows
from rlox.losses import evaluate_actions
from rlox.protocols import RecurrentActor
from rlox.spaces.rows import map_leaves
from torch import Tensor


@dataclass(frozen=True)
class VTraceTerms:
    """The parts of the loss and two monitored statistics; scalars without gradient.

    The losses and the entropy are means over the steps, whatever the reduction.
    """

    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor
    mean_abs_log_rho: Tensor
    """Mean absolute difference of log π and log μ in nats: the policy's move since acting."""
    clipped_fraction: Tensor
    """Share of steps whose ratio exceeds ρ̄ by more than rounding."""


@dataclass(frozen=True)
class VTraceActorCritic:
    """IMPALA's loss on T steps of N envs, collected by policies μ and learned from by π.

        loss = Σ [ -A_t log π(a_t|s_t) + c_v (V(s_t) - vs_t)² - c_e H ]

    vs_t and A_t come from :func:`rlox.kernels.reference.compute_vtrace` with the current values V,
    and no gradient passes through them. With the reduction ``"mean"`` the sum is divided by TN.

    Source:
        Espeholt et al. 2018, sec. 4.2, with the value loss of openai/baselines a2c: the paper's
        coefficient of ½ (V - vs)² is twice ``vf_coef``.
    """

    gamma: float
    """Discount γ."""
    vf_coef: float
    """Weight c_v of the value loss."""
    ent_coef: float = 0.0
    """Weight c_e of the entropy bonus, in 1/nats."""
    rho_bar: float = 1.0
    """Bound ρ̄ of the ratios π/μ in the targets; determines which policy's values are learned."""
    c_bar: float = 1.0
    """Bound c̄ of the ratios that pass corrections back; determines how fast they are learned."""
    pg_rho_bar: float = 1.0
    """Bound of the ratios in the advantages."""
    loss_reduction: Literal["mean", "sum"] = "mean"
    """Reduction over the TN steps."""

    def loss(self, policy: Any, minibatch: Unroll) -> tuple[Tensor, VTraceTerms]:
        """Return the loss of an unroll's steps and its terms."""
        shape = minibatch.n_steps, minibatch.n_envs
        log_probs, entropy, values = (
            rows.view(shape) for rows in evaluate_actions(policy, step_rows(minibatch))
        )
        log_rhos = log_probs.detach() - minibatch.log_probs
        beyond = values_beyond(policy, minibatch)
        vs, advantages = vtrace_targets(self, minibatch, log_rhos, values.detach(), *beyond)
        policy_loss = -(advantages * log_probs).mean()
        value_loss = (values - vs).square().mean()
        mean_entropy = entropy.mean()
        loss = policy_loss + self.vf_coef * value_loss - self.ent_coef * mean_entropy
        if self.loss_reduction == "sum":
            loss = loss * math.prod(shape)
        terms = VTraceTerms(
            policy_loss.detach(),
            value_loss.detach(),
            mean_entropy.detach(),
            *_watched(log_rhos, self.rho_bar),
        )
        return loss, terms


def _watched(log_rhos: Tensor, rho_bar: float) -> tuple[Tensor, Tensor]:
    """Return the mean size of log-ratios, and the share that the bound clips."""
    # two backends round log-probabilities of the same weights differently
    clipped = log_rhos > math.log(rho_bar) + 1e-5
    return log_rhos.abs().mean(), clipped.to(log_rhos.dtype).mean()


def vtrace_targets(
    numbers: VTraceActorCritic | TargetPolicy,
    unroll: Unroll,
    log_rhos: Tensor,
    values: Tensor,
    next_values: Tensor,
    final_values: npt.NDArray[Any],
) -> tuple[Tensor, Tensor]:
    """Return V-trace's value targets and advantages, each (T, N).

    Args:
        numbers: the discount, and the bounds of the ratios.
        unroll: T steps of N envs.
        log_rhos: (T, N) log π - log μ, without gradient.
        values: (T, N) values by π, without gradient.
        next_values: (N,), see :func:`values_beyond`.
        final_values: (T, N), see there.
    """
    dtype = np.float64 if values.dtype == torch.float64 else np.float32
    vs, advantages = kernels.kernel("compute_vtrace")(
        log_rhos.cpu().numpy(),
        unroll.rewards.astype(dtype, copy=False),
        values.cpu().numpy(),
        unroll.terminated,
        next_values.cpu().numpy(),
        numbers.gamma,
        numbers.rho_bar,
        numbers.c_bar,
        truncated=unroll.truncated,
        final_values=final_values.astype(dtype, copy=False),
    )
    on_device = [torch.from_numpy(array).to(values) for array in (vs, advantages)]
    if numbers.pg_rho_bar != numbers.rho_bar:
        # the kernel's advantages are clipped at the targets' bound
        bounds = [math.log(bound) for bound in (numbers.pg_rho_bar, numbers.rho_bar)]
        wanted, given = (log_rhos.clamp(max=bound) for bound in bounds)
        on_device[1] = on_device[1] * (wanted - given).exp()
    return on_device[0], on_device[1]


@torch.no_grad()
def values_beyond(policy: Any, unroll: Unroll) -> tuple[Tensor, npt.NDArray[Any]]:
    """Return values of the observations that follow the unroll's rows.

    Args:
        policy: with a value function.
        unroll: T steps of N envs.

    Returns:
        (N,) values of the next observations, and (T, N) values of the true final observations where
        an episode was truncated, 0 elsewhere.
    """
    final_values = np.zeros(unroll.rewards.shape, np.float64)
    next_obs = map_leaves(lambda leaf: leaf[-1], unroll.obs)
    if isinstance(policy, RecurrentActor):
        return _replayed_values(policy, unroll, next_obs, final_values), final_values
    if unroll.final_obs is None:
        return policy.get_value(next_obs), final_values
    both = map_leaves(lambda *leaves: torch.cat(leaves), next_obs, unroll.final_obs)
    values = policy.get_value(both)
    final_values[unroll.truncated] = values[unroll.n_envs :].cpu().numpy()
    return values[: unroll.n_envs], final_values


def _replayed_values(
    policy: RecurrentActor, unroll: Unroll, next_obs: Any, final_values: npt.NDArray[Any]
) -> Tensor:
    """Return the values (N,) of the next observations, and fill in those of final ones.

    Values of truncated episodes need their memory, so it is replayed step by step.
    """
    state, starts = unroll.initial_state, unroll.episode_starts
    assert state is not None
    assert starts is not None
    found = 0
    ended = torch.zeros_like(starts[0])
    for t in range(unroll.n_steps):
        obs = map_leaves(lambda leaf, t=t: leaf[t], unroll.obs)
        state = policy.step(obs, state.masked_fill(starts[t].unsqueeze(-1), 0.0))[2]
        cut = torch.from_numpy(unroll.truncated[t]).to(state.device)
        if cut.any():
            count = int(cut.sum())
            rows = slice(found, found + count)
            final_obs = map_leaves(lambda leaf, rows=rows: leaf[rows], unroll.final_obs)
            values = policy.step(final_obs, state[cut])[1]
            final_values[t, unroll.truncated[t]] = values.cpu().numpy()
            found += count
        ended = cut | torch.from_numpy(unroll.terminated[t]).to(state.device)
    return policy.step(next_obs, state.masked_fill(ended.unsqueeze(-1), 0.0))[1]


@dataclass(frozen=True)
class TargetPolicy:
    """Batches for learning near a target policy π_t, from steps collected by policies μ.

    The surrogate of IMPACT and APPO has the ratio

        r = min(μ/π_t, β) π/μ = π / max(π_t, μ/β)

    so it is PPO's clipped surrogate on a batch whose old log-probabilities are
    max(log π_t, log μ - log β). If π_t is μ, it is PPO itself.

    Source:
        Luo et al. 2020, "IMPACT: importance weighted asynchronous architectures with clipped target
        networks", eq. 4 and 5 (https://arxiv.org/abs/1912.00167); RLlib's APPO has the same ratio.
    """

    gamma: float
    """Discount γ."""
    advantages: Literal["vtrace", "gae"] = "vtrace"
    """V-trace with the ratios π_t/μ, or generalised advantage estimates without ratios."""
    gae_lambda: float = 0.95
    """Trace decay λ of ``"gae"``."""
    ratio_bound: float = 2.0
    """β."""
    rho_bar: float = 1.0
    """See :class:`rlox_onpolicy.vtrace.VTraceActorCritic`, also for the next two."""
    c_bar: float = 1.0
    pg_rho_bar: float = 1.0

    @torch.no_grad()
    def batch(self, unroll: Unroll, target: Any) -> tuple[RolloutBatch, dict[str, float]]:
        """Return a batch for the clipped surrogate, with values of the target policy.

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
                self, unroll, log_rhos, values, next_values, final_values
            )
            batch = replace(batch, advantages=advantages.flatten(), returns=vs.flatten())
        old = torch.maximum(log_probs, unroll.log_probs - math.log(self.ratio_bound))
        size, clipped = _watched(log_rhos, self.rho_bar)
        seen = {"mean_abs_log_rho": float(size), "clipped_fraction": float(clipped)}
        return replace(batch, log_probs=old.flatten()), seen
