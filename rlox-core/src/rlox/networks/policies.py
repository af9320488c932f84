"""Policies with actions in [-1, 1], critics, defaults by space, and target updates."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  # the field's name for it
from gymnasium import spaces
from torch import Tensor, nn

from rlox.errors import ConfigError
from rlox.nn.devices import standard_normal
from rlox.nn.encoders import make_encoder
from rlox.nn.layer_data import LayerData, activation, chain, layer_data
from rlox.nn.mlp import Hidden, Layers, layer_widths, make_mlp


class DeterministicPolicy(nn.Module):
    """μ(s) = tanh of a network: one continuous action for each observation.

    Args:
        obs_dim: size of an observation.
        act_dim: size of an action.
        hidden: width of both hidden layers, or widths of any number of them.
        generator: source of the weights; ``None`` uses torch's global one.
    """

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        hidden: Hidden = 256,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.net = make_mlp(obs_dim, hidden, act_dim, generator=generator)

    def forward(self, obs: Tensor) -> Tensor:
        """Return actions (B, act_dim) in [-1, 1] for observations (B, obs_dim)."""
        return self.net(obs).tanh()  # type: ignore[no-any-return]

    def deterministic(self, obs: Tensor) -> Tensor:
        """Return the same as calling the policy."""
        return self(obs)  # type: ignore[no-any-return]

    def layer_data(self) -> LayerData:
        """Describe the policy; see :mod:`rlox.nn.layer_data`."""
        return chain(layer_data(self.net), activation("tanh"))


class GaussianPolicy(nn.Module):
    """a ~ N(tanh(f(s)), σ²), independent dimensions, σ the same in every state.

    Samples may lie outside [-1, 1]; the mean does not.

    Args:
        obs_dim: size of an observation.
        act_dim: size of an action.
        hidden: width of both hidden layers, or widths of any number of them.
        log_std_bounds: log σ is clipped to these.
        generator: source of the weights and of the sampled actions; ``None`` uses torch's global
            one.

    Source:
        Kostrikov et al. 2022, "Offline reinforcement learning with implicit Q-learning", the
        authors' ``NormalTanhPolicy(state_dependent_std=False, tanh_squash_distribution=False)``.
    """

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        hidden: Hidden = 256,
        *,
        log_std_bounds: tuple[float, float] = (-5.0, 2.0),
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.generator = generator
        self.log_std_bounds = log_std_bounds
        self.net = make_mlp(obs_dim, hidden, act_dim, generator=generator)
        self.log_std = nn.Parameter(torch.zeros(act_dim))

    def deterministic(self, obs: Tensor) -> Tensor:
        """Return the means (B, act_dim) for observations (B, obs_dim)."""
        return cast("Tensor", self.net(obs)).tanh()

    def layer_data(self) -> LayerData:
        """Describe the means; see :mod:`rlox.nn.layer_data`."""
        return chain(layer_data(self.net), activation("tanh"))

    def log_prob(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return log-densities (B,) of actions (B, act_dim)."""
        log_std = self.log_std.clamp(*self.log_std_bounds)
        standardised = (actions - self.deterministic(obs)) * torch.exp(-log_std)
        per_dim = -0.5 * standardised.square() - log_std - 0.5 * math.log(2 * math.pi)
        return per_dim.sum(-1)

    def get_action_and_logprob(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Sample actions (B, act_dim) and return them with their log-densities (B,)."""
        mean = self.deterministic(obs)
        noise = standard_normal(mean, self.generator)
        actions = mean + self.log_std.clamp(*self.log_std_bounds).exp() * noise
        return actions, self.log_prob(obs, actions)


class SquashedGaussianPolicy(nn.Module):
    """a = tanh(u), u ~ N(μ(s), σ(s)²), independent dimensions.

        log π(a|s) = Σ log N(u; μ, σ²) - Σ log(1 - tanh²(u))

    The last logarithm is computed as 2 (log 2 - u - softplus(-2u)), which is the same and exact
    where tanh saturates.

    Args:
        obs_dim: size of an observation.
        act_dim: size of an action.
        hidden: width of both hidden layers, or widths of any number of them.
        log_std_bounds: log σ is clipped to these.
        net: from observations to μ and log σ, (B, 2 · act_dim); ``None``: two layers of ``hidden``.
        generator: source of the weights and of the sampled actions; ``None`` uses torch's global
            one.

    Source:
        Haarnoja et al. 2018, "Soft actor-critic", appendix C, eq. 21; bounds: softlearning.
    """

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        hidden: Hidden = 256,
        *,
        log_std_bounds: tuple[float, float] = (-20.0, 2.0),
        net: nn.Module | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.generator = generator
        self.log_std_bounds = log_std_bounds
        self.net = net or make_mlp(obs_dim, hidden, 2 * act_dim, generator=generator)

    def _mean_and_log_std(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.net(obs).chunk(2, -1)
        return mean, log_std.clamp(*self.log_std_bounds)

    def get_action_and_logprob(
        self, obs: Tensor, n_samples: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Sample actions, differentiable with respect to the weights.

        Args:
            obs: (B, obs_dim) float32.
            n_samples: number n of actions for each observation, in a new first dimension; ``None``
                draws one, without that dimension.

        Returns:
            Actions (B, act_dim) in [-1, 1] and their log-probabilities (B,), or (n, B, act_dim)
            and (n, B).
        """
        mean, log_std = self._mean_and_log_std(obs)
        like = mean if n_samples is None else mean.expand(n_samples, *mean.shape)
        noise = standard_normal(like, self.generator)
        pre_tanh = mean + log_std.exp() * noise
        return pre_tanh.tanh(), _squashed_log_prob(noise, log_std, pre_tanh)

    def log_prob(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return log-probabilities (B,) of actions (B, act_dim), taken as at most 1 - 10⁻⁶."""
        mean, log_std = self._mean_and_log_std(obs)
        pre_tanh = actions.clamp(-1 + 1e-6, 1 - 1e-6).atanh()
        return _squashed_log_prob((pre_tanh - mean) * torch.exp(-log_std), log_std, pre_tanh)

    def sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same as :meth:`get_action_and_logprob`, under the introduction's name."""
        return self.get_action_and_logprob(obs)

    def deterministic(self, obs: Tensor) -> Tensor:
        """Return tanh(μ(s)), (B, act_dim)."""
        return self._mean_and_log_std(obs)[0].tanh()

    def layer_data(self) -> LayerData:
        """Describe the modes; see :mod:`rlox.nn.layer_data`."""
        means = {"layer": "first_half"}
        return chain(layer_data(self.net), means, activation("tanh"))


def _squashed_log_prob(standardised: Tensor, log_std: Tensor, pre_tanh: Tensor) -> Tensor:
    """Return log π of tanh(u) for u and (u - μ) / σ, summed over the dimensions."""
    log_density = -0.5 * standardised.square() - log_std - 0.5 * math.log(2 * math.pi)
    log_slope = 2 * (math.log(2) - pre_tanh - F.softplus(-2 * pre_tanh))
    return (log_density - log_slope).sum(-1)


class QNetwork(nn.Module):
    """Action value Q(s, a) of a continuous action.

    Args:
        obs_dim: size of an observation.
        act_dim: size of an action.
        hidden: width of both hidden layers, or widths of any number of them.
        generator: source of the weights; ``None`` uses torch's global one.
    """

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        hidden: Hidden = 256,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.net = make_mlp(obs_dim + act_dim, hidden, 1, critic=True, generator=generator)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return values (B, 1) of observations (B, obs_dim) and actions (B, act_dim)."""
        return self.net(torch.cat((obs, actions), -1))  # type: ignore[no-any-return]


class TwinQNetwork(nn.Module):
    """Several independent action values of a continuous action, two for clipped double Q-learning.

    Args:
        obs_dim: size of an observation.
        act_dim: size of an action.
        hidden: width of both hidden layers, or widths of any number of them.
        n_critics: number of critics K.
        generator: source of the weights; ``None`` uses torch's global one.
    """

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        hidden: Hidden = 256,
        *,
        n_critics: int = 2,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        options: Any = {"n_members": n_critics, "critic": True, "generator": generator}
        self.net = make_mlp(obs_dim + act_dim, hidden, 1, **options)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return values (K, B) of observations (B, obs_dim) and actions (B, act_dim)."""
        return self.net(torch.cat((obs, actions), -1)).squeeze(-1)  # type: ignore[no-any-return]


class DiscreteQNetwork(nn.Module):
    """Action values Q(s, ·) of all discrete actions at once, or numbers for their distributions.

    Args:
        obs_dim: size of an observation.
        n_actions: number of actions A.
        hidden: width of both hidden layers, or widths of any number of them.
        n_atoms: numbers n per action, for the distribution of its return; ``None`` outputs its
            value, without that dimension.
        noisy_std: σ₀ of noisy layers, see :class:`rlox.nn.NoisyLinear`; ``None`` adds no noise.
        generator: source of the weights; ``None`` uses torch's global one.
    """

    def __init__(
        self,
        obs_dim: int,
        n_actions: int,
        hidden: Hidden = 256,
        *,
        n_atoms: int | None = None,
        noisy_std: float | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.n_atoms = n_atoms
        noise: Any = {"noisy_std": noisy_std, "generator": generator}
        self.net = make_mlp(obs_dim, hidden, n_actions * (n_atoms or 1), **noise)

    def forward(self, obs: Tensor) -> Tensor:
        """Return values (B, A), or numbers (B, A, n), of observations (B, obs_dim)."""
        outputs = self.net(obs)
        return outputs if self.n_atoms is None else outputs.unflatten(-1, (-1, self.n_atoms))  # type: ignore[no-any-return]

    def layer_data(self) -> LayerData:
        """Describe the outputs; see :mod:`rlox.nn.layer_data`."""
        if self.n_atoms is None:
            return layer_data(self.net)
        return chain(layer_data(self.net), {"layer": "atoms", "count": self.n_atoms})


class DuelingQNetwork(nn.Module):
    """Q(s, a) = V(s) + A(s, a) - mean over a' of A(s, a'), on a shared hidden layer.

    With several numbers for each action, the formula applies to each.

    Args:
        obs_dim: size of an observation.
        n_actions: number of actions A.
        hidden: width of the shared layer and of each stream's own; with several widths, the last
            one is the streams'.
        n_atoms: see :class:`DiscreteQNetwork`.
        noisy_std: see :class:`DiscreteQNetwork`.
        generator: source of the weights; ``None`` uses torch's global one.

    Source:
        Wang et al. 2016, "Dueling network architectures", eq. 9; Hessel et al. 2018, "Rainbow",
        sec. "The integrated agent".
    """

    def __init__(
        self,
        obs_dim: int,
        n_actions: int,
        hidden: Hidden = 256,
        *,
        n_atoms: int | None = None,
        noisy_std: float | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.n_atoms = n_atoms
        n = n_atoms or 1
        *shared, own = widths = layer_widths(hidden)
        if not shared:
            raise ConfigError(f"hidden: dueling streams need two widths or more, got {widths}")
        like = Layers.expand(hidden)
        noise: Any = {"noisy_std": noisy_std, "generator": generator}
        self.shared = make_mlp(obs_dim, replace(like, hidden=shared), **noise)
        stream = replace(like, hidden=(own,))
        self.value = make_mlp(shared[-1], stream, n, **noise)
        self.advantage = make_mlp(shared[-1], stream, n_actions * n, **noise)

    def forward(self, obs: Tensor) -> Tensor:
        """Return values (B, A), or numbers (B, A, n), of observations (B, obs_dim)."""
        features = self.shared(obs)
        value, advantages = self.value(features), self.advantage(features)
        if self.n_atoms is None:
            return value + advantages - advantages.mean(-1, keepdim=True)  # type: ignore[no-any-return]
        advantages = advantages.unflatten(-1, (-1, self.n_atoms))
        return value.unsqueeze(-2) + advantages - advantages.mean(-2, keepdim=True)  # type: ignore[no-any-return]

    def layer_data(self) -> LayerData:
        """Describe the outputs; see :mod:`rlox.nn.layer_data`."""
        streams = {
            "layer": "dueling",
            "value": layer_data(self.value),
            "advantage": layer_data(self.advantage),
            "atoms": self.n_atoms or 0,
        }
        return chain(layer_data(self.shared), streams)


class ValueNetwork(nn.Module):
    """State value V(s).

    Args:
        obs_dim: size of an observation.
        hidden: width of both hidden layers, or widths of any number of them.
        generator: source of the weights; ``None`` uses torch's global one.
    """

    def __init__(
        self, obs_dim: int, hidden: Hidden = 256, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.net = make_mlp(obs_dim, hidden, 1, critic=True, generator=generator)

    def forward(self, obs: Tensor) -> Tensor:
        """Return values (B,) of observations (B, obs_dim)."""
        return cast("Tensor", self.net(obs)).squeeze(-1)


@torch.no_grad()
def polyak_update(source: nn.Module, target: nn.Module, tau: float) -> None:
    """Move the target's parameters towards the source's: θ' ← (1 - τ) θ' + τ θ.

    Args:
        source: the network that learns.
        target: its target network; its buffers become the source's.
        tau: τ in [0, 1]; 1 copies.

    Raises:
        ValueError: ``tau`` is out of range.

    Source:
        Lillicrap et al. 2016, "Continuous control with deep reinforcement learning", algorithm 1.
    """
    if not 0.0 <= tau <= 1.0:
        raise ValueError(f"tau must lie in [0, 1], got {tau}")
    for learnt, averaged in zip(source.parameters(), target.parameters(), strict=True):
        averaged.lerp_(learnt, tau)
    for buffer, copy in zip(source.buffers(), target.buffers(), strict=True):
        copy.copy_(buffer)


def make_q_network(
    observation_space: spaces.Space[Any],
    n_actions: int,
    *,
    dueling: bool,
    hidden: Hidden,
    n_atoms: int | None = None,
    noisy_std: float | None = None,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Return action values of all discrete actions; images are encoded by convolutions first.

    Args:
        observation_space: of one env.
        n_actions: number of actions.
        dueling: separate streams for value and advantages.
        hidden: width of both hidden layers, or widths of any number of them.
        n_atoms: numbers for each action, see :class:`rlox.networks.DiscreteQNetwork`.
        noisy_std: σ₀ of noisy layers, see :class:`rlox.nn.NoisyLinear`; convolutions have no noise.
        generator: source of the weights; ``None`` uses torch's global one.

    Raises:
        SpaceError: the observations have no encoder.
    """
    make = partial(
        DuelingQNetwork if dueling else DiscreteQNetwork,
        n_actions=n_actions,
        hidden=hidden,
        n_atoms=n_atoms,
        noisy_std=noisy_std,
        generator=generator,
    )
    encoder, size = find_encoder(observation_space, generator, hidden)
    return make(size) if encoder is None else nn.Sequential(encoder, make(size))


def make_critics(
    observation_space: spaces.Space[Any],
    act_dim: int,
    *,
    n_critics: int,
    hidden: Hidden,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Return values of continuous actions, of several critics with one encoder.

    Args:
        observation_space: of one env.
        act_dim: size of an action.
        n_critics: number of critics K.
        hidden: width of both hidden layers, or widths of any number of them.
        generator: source of the weights; ``None`` uses torch's global one.

    Raises:
        SpaceError: the observations have no encoder.
    """
    encoder, size = find_encoder(observation_space, generator, hidden)
    critics = TwinQNetwork(size, act_dim, hidden, n_critics=n_critics, generator=generator)
    return critics if encoder is None else EncodedCritics(encoder, critics)


def make_logits(
    observation_space: spaces.Space[Any],
    n_actions: int,
    *,
    hidden: Hidden,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Return logits (B, A) of a policy for discrete actions.

    Args:
        observation_space: of one env.
        n_actions: number of actions A.
        hidden: width of both hidden layers, or widths of any number of them.
        generator: source of the weights; ``None`` uses torch's global one.

    Raises:
        SpaceError: the observations have no encoder.
    """
    encoder, size = find_encoder(observation_space, generator, hidden)
    logits = make_mlp(size, hidden, n_actions, generator=generator)
    return logits if encoder is None else nn.Sequential(encoder, logits)


def make_discrete_critics(
    observation_space: spaces.Space[Any],
    n_actions: int,
    *,
    n_critics: int,
    hidden: Hidden,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Return values (K, B, A) of all discrete actions, of K critics with one encoder.

    Args:
        observation_space: of one env.
        n_actions: number of actions A.
        n_critics: number of critics K.
        hidden: width of both hidden layers, or widths of any number of them.
        generator: source of the weights; ``None`` uses torch's global one.

    Raises:
        SpaceError: the observations have no encoder.
    """
    encoder, size = find_encoder(observation_space, generator, hidden)
    options: Any = {"n_members": n_critics, "critic": True, "generator": generator}
    critics = make_mlp(size, hidden, n_actions, **options)
    return critics if encoder is None else nn.Sequential(encoder, critics)


def make_squashed_gaussian(
    observation_space: spaces.Space[Any],
    act_dim: int,
    *,
    hidden: Hidden,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Return a stochastic policy for continuous actions; arguments: see :func:`make_critics`.

    Raises:
        SpaceError: the observations have no encoder.
    """
    encoder, size = find_encoder(observation_space, generator, hidden)
    policy = SquashedGaussianPolicy(size, act_dim, hidden, generator=generator)
    return policy if encoder is None else EncodedPolicy(encoder, policy)


def make_deterministic_policy(
    observation_space: spaces.Space[Any],
    act_dim: int,
    *,
    hidden: Hidden,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Return a deterministic policy for continuous actions; arguments: see :func:`make_critics`.

    Raises:
        SpaceError: the observations have no encoder.
    """
    encoder, size = find_encoder(observation_space, generator, hidden)
    policy = DeterministicPolicy(size, act_dim, hidden, generator=generator)
    return policy if encoder is None else EncodedPolicy(encoder, policy)


def find_encoder(
    space: spaces.Space[Any], generator: torch.Generator | None, hidden: Hidden = ()
) -> tuple[nn.Module | None, int]:
    """Return an encoder and its number of features; vectors need no encoder."""
    encoder = make_encoder(space, conv=Layers.expand(hidden).conv, generator=generator)
    vector = isinstance(space, spaces.Box) and len(space.shape) == 1 and space.dtype != np.uint8
    return None if vector else encoder, int(encoder.output_size)  # type: ignore[arg-type]


class EncodedCritics(nn.Module):
    """Critics on features, with the encoder that computes these from observations.

    Args:
        encoder: from observations to features (B, n).
        critics: from features and actions (B, act_dim) to values (K, B).
    """

    def __init__(self, encoder: nn.Module, critics: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.critics = critics

    def forward(self, obs: Any, actions: Tensor) -> Tensor:
        """Return values (K, B) of observations (B, *shape) and actions (B, act_dim)."""
        return self.critics(self.encoder(obs), actions)  # type: ignore[no-any-return]


class EncodedPolicy(nn.Module):
    """A policy on features, with the encoder that computes these from observations.

    Args:
        encoder: from observations to features (B, n).
        policy: one of :mod:`rlox.networks`.
    """

    def __init__(
        self, encoder: nn.Module, policy: SquashedGaussianPolicy | DeterministicPolicy
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.policy: Any = policy

    @property
    def generator(self) -> torch.Generator | None:
        """Source of the sampled actions."""
        return getattr(self.policy, "generator", None)

    @generator.setter
    def generator(self, generator: torch.Generator | None) -> None:
        self.policy.generator = generator

    def get_action_and_logprob(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Sample actions (B, act_dim) for observations (B, *shape), with log-probabilities (B,)."""
        return self.policy.get_action_and_logprob(self.encoder(obs))  # type: ignore[no-any-return]

    def deterministic(self, obs: Any) -> Tensor:
        """Return the policy's actions (B, act_dim) without noise."""
        return self.policy.deterministic(self.encoder(obs))  # type: ignore[no-any-return]

    def layer_data(self) -> LayerData:
        """Describe the actions without noise; see :mod:`rlox.nn.layer_data`."""
        return chain(layer_data(self.encoder), layer_data(self.policy))
