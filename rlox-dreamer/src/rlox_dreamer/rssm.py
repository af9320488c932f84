"""The recurrent state-space model of DreamerV3, with a block GRU.

    deterministic state   h_t = f(h_{t-1}, z_{t-1}, a_{t-1})
    posterior             z_t ~ q(z_t | h_t, x_t)
    prior                 ẑ_t ~ p(ẑ_t | h_t)

Source: Hafner et al. 2025, eq. 3; the architecture follows the authors' code of 2025.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from rlox.nn.layer_data import LayerData, activation, chain, layer_data, linear
from torch import Tensor, nn
from torch.nn import functional

from rlox_dreamer.layers import (
    BlockLinear,
    Hidden,
    NormSilu,
    at_least_float32,
    dense,
    mlp,
    norm_silu,
)
from rlox_dreamer.losses import log_of, mixed_probs, sample_mixed


class Latent(NamedTuple):
    """The model's state at some steps."""

    deter: Tensor
    """(..., D)."""
    stoch: Tensor
    """(..., S, C) one-hot samples."""

    def features(self) -> Tensor:
        """Return (..., D + S C), the inputs of heads and decoder."""
        return torch.cat([self.deter, self.stoch.flatten(-2)], -1)

    def detach(self) -> Latent:
        """Return the state without its gradient."""
        return Latent(self.deter.detach(), self.stoch.detach())

    def masked(self, keep: Tensor) -> Latent:
        """Return the state, set to 0 in rows where ``keep`` (B,) is 0."""
        return Latent(self.deter * keep[:, None], self.stoch * keep[:, None, None])


class Shares(NamedTuple):
    """Parts of parameters that all steps of a sequence share; sliced once for one gradient."""

    scales: Tensor
    """(2, hidden) norm scales of the state's two branches."""
    core: Tensor
    """(D, 2 hidden) weights of both branches in the recurrence's first layer."""
    post: Tensor
    """(hidden, D) weights of the deterministic state in the posterior's hidden layer."""


class RSSM(nn.Module):
    """The model's dynamics.

    Args:
        action_size: size A of an action.
        token_size: size of an encoded observation.
        deter: size D of the deterministic state, a multiple of ``blocks``.
        stoch: number S of categoricals.
        classes: classes C of each.
        hidden: width of the hidden layers.
        blocks: blocks of the GRU.
        mix: share of the uniform distribution in prior and posterior.
        generator: source of the weights.
    """

    def __init__(
        self,
        action_size: int,
        token_size: int,
        *,
        deter: int,
        stoch: int,
        classes: int,
        hidden: int,
        blocks: int,
        mix: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.deter, self.stoch, self.classes = deter, stoch, classes
        self.hidden, self.blocks, self.mix = hidden, blocks, mix
        flat = stoch * classes
        self.from_deter = Hidden(deter, hidden, generator)
        self.from_stoch = Hidden(flat, hidden, generator)
        self.from_action = Hidden(action_size, hidden, generator)
        # every block sees its own part of the state and all other inputs: a block-diagonal plus a
        # dense layer, equal to one block-diagonal layer over copies of the other inputs
        own, shared = deter // blocks, 3 * hidden
        self.core_own = BlockLinear(
            deter, deter, blocks, generator, scale=math.sqrt(own / (own + shared))
        )
        scale = math.sqrt(shared / (own + shared))
        self.core_shared = dense(shared, deter, generator, scale=scale)
        self.core_norm = NormSilu(deter)
        self.gates = BlockLinear(deter, 3 * deter, blocks, generator)
        self.post_in = dense(deter + token_size, hidden, generator)
        self.post_norm = NormSilu(hidden)
        self.post_out = dense(hidden, flat, generator)
        self.prior_net = mlp(deter, hidden, 2, generator, outputs=flat)

    def initial(self, size: int) -> Latent:
        """Return the state of ``size`` episodes before their first step: 0."""
        like = self.post_in.weight
        return Latent(
            like.new_zeros(size, self.deter), like.new_zeros(size, self.stoch, self.classes)
        )

    def restored(self, deter: Tensor, classes: Tensor) -> Latent:
        """Return the state stored as (B, D) and its categoricals' classes (B, S)."""
        return Latent(deter, functional.one_hot(classes.long(), self.classes).to(deter.dtype))

    def prior(self, deter: Tensor) -> Tensor:
        """Return log-probabilities (..., S, C) without the observation."""
        return log_of(mixed_probs(self._wide(self.prior_net(deter)), self.mix))

    def _wide(self, logits: Tensor) -> Tensor:
        wide = at_least_float32(logits)
        return wide.reshape(*logits.shape[:-1], self.stoch, self.classes)

    def embed_actions(self, actions: Tensor) -> Tensor:
        """Return the share (..., D) of actions (..., A) in the recurrence's first layer.

        Numbers beyond ±1 are clipped to ±1. One product serves all steps, unlike the state's
        share, which depends on the step before.
        """
        bounded = actions / actions.detach().abs().clamp(min=1.0)
        weight, bias = self.core_shared.weight[:, -self.hidden :], self.core_shared.bias
        return functional.linear(self.from_action(bounded), weight, bias)

    def shares(self) -> Shares:
        """Return the parts of parameters that all steps of a sequence share."""
        return Shares(
            torch.stack([self.from_deter.norm.weight, self.from_stoch.norm.weight]),
            self.core_shared.weight[:, : -self.hidden],
            self.post_in.weight[:, : self.deter],
        )

    def next_deter(self, latent: Latent, embedded: Tensor, shares: Shares) -> Tensor:
        """Return the next deterministic state (B, D).

        Args:
            latent: B states.
            embedded: (B, D) embedded actions, see :meth:`embed_actions`.
            shares: see :meth:`shares`.
        """
        deter = latent.deter
        branches = [self.from_deter.linear(deter), self.from_stoch.linear(latent.stoch.flatten(-2))]
        inputs = norm_silu(torch.stack(branches, -2), shares.scales).flatten(-2)
        x = self.core_norm(self.core_own(deter) + functional.linear(inputs, shares.core) + embedded)
        reset, candidate, update = self.gates.by_block(x).to(deter.dtype).chunk(3, -1)
        candidate = torch.tanh(torch.sigmoid(reset) * candidate)
        before = deter.reshape(len(deter), self.blocks, -1).transpose(0, 1)
        after = torch.lerp(before, candidate, torch.sigmoid(update - 1))
        return after.transpose(0, 1).flatten(1)

    def project(self, tokens: Tensor) -> Tensor:
        """Return the share (..., hidden) of tokens (..., token_size) in the posterior's layer.

        One product serves all steps, unlike the state's share, which depends on the step before.
        """
        return functional.linear(tokens, self.post_in.weight[:, self.deter :], self.post_in.bias)

    def posterior_logits(self, deter: Tensor, projected: Tensor, shares: Shares) -> Tensor:
        """Return the unmixed logits (B, S, C) given the observation.

        Args:
            deter: (B, D).
            projected: (B, hidden) the tokens' share of the hidden layer, see :meth:`project`.
            shares: see :meth:`shares`.
        """
        x = self.post_norm(functional.linear(deter, shares.post) + projected)
        return self._wide(self.post_out(x))

    def layer_data(self, actions: int, policy: LayerData) -> LayerData:
        """Describe a step to the next state, with its posterior's mode, and the action there.

        Args:
            actions: size A of an action.
            policy: maps states (B, D + S C) to actions (B, A); see :mod:`rlox.nn.layer_data`.
        """
        modes = {"layer": "most_probable", "sizes": [self.classes] * self.stoch}
        posterior = chain(
            linear(self.post_in), self.post_norm.layer_data(), linear(self.post_out), modes
        )
        return {
            "layer": "world_model",
            "deter": layer_data(self.from_deter),
            "stoch": layer_data(self.from_stoch),
            "action": chain(activation("bounded"), layer_data(self.from_action)),
            "own": layer_data(self.core_own),
            "shared": linear(self.core_shared),
            "norm": layer_data(self.core_norm),
            "gates": layer_data(self.gates),
            "posterior": posterior,
            "policy": policy,
            "sizes": [self.deter, self.stoch * self.classes, actions],
        }

    def observe(
        self, start: Latent, tokens: Tensor, actions: Tensor, is_first: Tensor, noise: Tensor
    ) -> tuple[Latent, Tensor]:
        """Return the states of T steps, and the posterior's log-probabilities (T, B, S, C).

        Args:
            start: states of B sequences before their first step.
            tokens: (T, B, token_size) encoded observations.
            actions: (T, B, A), each before its step.
            is_first: (T, B) bool, whether an episode begins with the step; the previous state and
                action are then masked.
            noise: (T, B, S) uniform in [0, 1).
        """
        keep = (~is_first).to(actions.dtype)
        embedded = self.embed_actions(actions * keep.unsqueeze(-1))
        projected, shares = self.project(tokens), self.shares()
        latent, latents, posteriors = start, [], []
        for t in range(len(tokens)):
            latent = latent.masked(keep[t])
            deter = self.next_deter(latent, embedded[t], shares)
            logits = self.posterior_logits(deter, projected[t], shares)
            probs, stoch = sample_mixed(logits, self.mix, noise[t])
            latent = Latent(deter, stoch)
            latents.append(latent)
            posteriors.append(probs)
        deters, stochs = zip(*latents, strict=True)
        return Latent(torch.stack(deters), torch.stack(stochs)), log_of(torch.stack(posteriors))

    def imagine_step(
        self, latent: Latent, actions: Tensor, noise: Tensor, shares: Shares | None = None
    ) -> Latent:
        """Return the next state without an observation.

        Args:
            latent: B states.
            actions: (B, A).
            noise: (B, S) uniform in [0, 1).
            shares: see :meth:`shares`; ``None`` computes them.
        """
        shares = self.shares() if shares is None else shares
        deter = self.next_deter(latent, self.embed_actions(actions), shares)
        logits = self._wide(self.prior_net(deter))
        return Latent(deter, sample_mixed(logits, self.mix, noise)[1])
