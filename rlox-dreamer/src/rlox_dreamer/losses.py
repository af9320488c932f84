"""Pure functions of DreamerV3: symlog, two-hot targets, KL terms, λ-returns, return scale.

Sequences are time-major: (T, B, ...).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def symlog(x: Tensor) -> Tensor:
    """Return sign(x) ln(1 + abs(x)).

    Source:
        Hafner et al. 2025, "Mastering diverse control tasks through world models", eq. 9.
    """
    return torch.sign(x) * torch.log1p(x.abs())


def symexp(x: Tensor) -> Tensor:
    """Return sign(x) (exp(abs(x)) - 1), the inverse of :func:`symlog`."""
    return torch.sign(x) * torch.expm1(x.abs())


def symexp_bins(count: int) -> Tensor:
    """Return (count,) bins symexp(-20 … 20), ascending and exactly symmetric around 0.

    Source:
        Hafner et al. 2025, eq. 10.
    """
    half = symexp(torch.linspace(-20.0, 0.0, (count + 1) // 2, dtype=torch.float64)).float()
    return torch.cat([half, -half[: count // 2].flip(0)])


def _neighbours(x: Tensor, bins: Tensor) -> tuple[Tensor, Tensor]:
    """Return the index of the bin above each value (...), and that bin's share of it."""
    x = x.clamp(bins[0], bins[-1]).contiguous()
    above = torch.searchsorted(bins, x, right=True).clamp(1, len(bins) - 1)
    low, high = bins[above - 1], bins[above]
    return above, (x - low) / (high - low)


def two_hot_loss(log_probs: Tensor, targets: Tensor, bins: Tensor) -> Tensor:
    """Return the cross-entropy (...) of log-probabilities (..., K) to the two-hot targets (...).

    A two-hot target weights the two nearest bins so that their mean is the value; a value beyond
    the bins weights the outermost one.

    Source:
        Hafner et al. 2025, eq. 10 and 11.
    """
    above, share = (part.unsqueeze(-1) for part in _neighbours(targets, bins))
    both = torch.cat([above - 1, above], -1)
    weights = torch.cat([1 - share, share], -1)
    return -(weights * log_probs.gather(-1, both)).sum(-1)


def two_hot_mean(probs: Tensor, bins: Tensor) -> Tensor:
    """Return the mean (...) of the bins under probabilities (..., K).

    Probabilities of mirrored bins are subtracted first, so that equal ones give exactly 0.
    """
    half = probs.shape[-1] // 2
    surplus = probs[..., -half:] - probs[..., :half].flip(-1)
    return surplus @ bins[-half:]


class _Categorical(torch.autograd.Function):
    """Probabilities with a uniform share, and straight-through samples.

    With few classes, PyTorch's softmax and index operations take ten times as long on a CPU.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, share: float, noise: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return probabilities and samples; without noise, no samples."""
        powers = (logits - logits.amax(-1, keepdim=True)).exp_()
        soft = powers.div_(powers.sum(-1, keepdim=True))
        ctx.save_for_backward(soft)
        ctx.share = share
        probs = soft.mul(1 - share).add_(share / logits.shape[-1]) if share else soft.clone()
        return probs, probs.new_empty(0) if noise is None else draw_one_hot(probs, noise)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of the logits; samples' gradients are added to probabilities'."""
        (soft,) = ctx.saved_tensors
        of_probs, of_samples = gradients
        total = of_probs + of_samples if of_samples.numel() else of_probs
        weighted = soft * total
        weighted = torch.addcmul(weighted, soft, weighted.sum(-1, keepdim=True), value=-1)
        return weighted.mul_(1 - ctx.share), None, None


def mixed_probs(logits: Tensor, share: float) -> Tensor:
    """Return probabilities (..., C) of a mixture of softmax and the uniform distribution.

    Args:
        logits: (..., C).
        share: share ε of the uniform distribution; every class has at least probability ε / C.

    Source:
        Hafner et al. 2025, methods, "Robust world model learning".
    """
    probs: Tensor
    probs, _ = _Categorical.apply(logits, share, None)
    return probs


def sample_mixed(logits: Tensor, share: float, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return the probabilities of :func:`mixed_probs`, and one-hot samples, both (..., C).

    Gradients reach the probabilities through the samples.

    Args:
        logits: (..., C).
        share: share of the uniform distribution.
        noise: (...) uniform in [0, 1).

    Source:
        Bengio et al. 2013, "Estimating or propagating gradients through stochastic neurons",
        straight-through estimator.
    """
    probs, samples = _Categorical.apply(logits, share, noise)
    return probs, samples


def log_of(probs: Tensor) -> Tensor:
    """Return the logarithm of probabilities, finite even where one is 0."""
    return probs.clamp(min=torch.finfo(probs.dtype).tiny).log()


@torch.no_grad()
def draw_one_hot(probs: Tensor, noise: Tensor) -> Tensor:
    """Return one-hot samples (..., C), by the inverse of the distribution function.

    Args:
        probs: (..., C).
        noise: (...) uniform in [0, 1).
    """
    sums = probs.cumsum(-1)
    reached = (sums >= noise.unsqueeze(-1) * sums[..., -1:]).to(probs.dtype)
    one_hot = reached.clone()
    one_hot[..., 1:] -= reached[..., :-1]
    return one_hot


def kl_terms(post: Tensor, prior: Tensor, free_nats: float) -> tuple[Tensor, Tensor]:
    """Return the dynamics and the representation loss (...).

        dyn = max(free, KL[sg(post) || prior]),  rep = max(free, KL[post || sg(prior)])

    Args:
        post: (..., S, C) log-probabilities of S categoricals, given the observation.
        prior: (..., S, C) the model's predictions without it.
        free_nats: divergence, summed over S, up to which there is no gradient.

    Source:
        Hafner et al. 2025, eq. 5.
    """
    dyn = _kl(post.detach(), prior).clamp(min=free_nats)
    rep = _kl(post, prior.detach()).clamp(min=free_nats)
    return dyn, rep


def _kl(p: Tensor, q: Tensor) -> Tensor:
    return (p.exp() * (p - q)).sum((-2, -1))


def lambda_returns(
    rewards: Tensor, discounts: Tensor, values: Tensor, lam: float, last: Tensor | None = None
) -> Tensor:
    """Return λ-returns (T, B) for T + 1 steps.

        R_t = r_{t+1} + c_{t+1} ((1 - λ) v_{t+1} + λ R_{t+1}),  R_T = v_T

    Args:
        rewards: (T + 1, B), paid on arriving at a step; the first is not used.
        discounts: (T + 1, B) c, 0 where the task ended.
        values: (T + 1, B).
        lam: λ.
        last: (T + 1, B) bool, whether the episode ends with the step, where returns stop;
            ``None``: no episode ends.

    Source:
        Hafner et al. 2025, eq. 7.
    """
    trace = torch.full_like(values, lam)
    if last is not None:
        trace = trace.masked_fill(last, 0.0)
    direct = rewards + discounts * (1 - trace) * values
    carried = discounts * trace
    following = values[-1]
    returns = []
    for t in range(len(values) - 1, 0, -1):
        following = direct[t] + carried[t] * following
        returns.append(following)
    return torch.stack(returns[::-1])


def policy_loss(
    log_probs: Tensor, entropy: Tensor, advantages: Tensor, weights: Tensor, entropy_scale: float
) -> Tensor:
    """Return the REINFORCE loss (H, N) for discrete or continuous actions.

        -w_t (A_t / S log π(a_t|s_t) + η H[π(·|s_t)])

    Args:
        log_probs: (H, N).
        entropy: (H, N) in nats.
        advantages: (H, N) already divided by the return scale S.
        weights: (H, N) discounted probability that the trajectory has not ended.
        entropy_scale: η.

    Source:
        Hafner et al. 2025, eq. 6.
    """
    gain = log_probs * advantages.detach() + entropy_scale * entropy
    return -weights.detach() * gain


def replay_returns(
    rewards: Tensor,
    is_terminal: Tensor,
    is_last: Tensor,
    bootstraps: Tensor,
    gamma: float,
    lam: float,
) -> Tensor:
    """Return λ-returns (T - 1, B) from replayed rewards.

    Args:
        rewards: (T, B), paid on arriving at a step.
        is_terminal: (T, B) bool, whether the task ended there.
        is_last: (T, B) bool, whether the episode ended there.
        bootstraps: (T, B) first imagined return from each state.
        gamma: discount γ.
        lam: λ.

    Source:
        Hafner et al. 2025, methods, "Critic learning".
    """
    discounts = gamma * (~is_terminal).to(rewards.dtype)
    return lambda_returns(rewards, discounts, bootstraps, lam, is_last)


class ReturnScale(nn.Module):
    """S = max(1, range from the 5th to the 95th percentile of returns), averaged at a rate of 0.01.

    Source:
        Hafner et al. 2025, eq. 8. The averages begin at 0 and are not debiased.
    """

    low: Tensor
    high: Tensor
    shares: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("high", torch.zeros(()))
        self.register_buffer("shares", torch.tensor([0.05, 0.95]), persistent=False)

    def update(self, returns: Tensor) -> Tensor:
        """Update the averages with returns of any shape, and return S."""
        low, high = torch.quantile(returns.detach().flatten().float(), self.shares)
        self.low.lerp_(low, 0.01)
        self.high.lerp_(high, 0.01)
        return (self.high - self.low).clamp(min=1.0)
