"""Policies of continuous actions in [-1, 1], feed-forward and recurrent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812  # the field's name for it
from gymnasium import spaces
from torch import Tensor, nn

from rlox.nn.devices import standard_normal
from rlox.nn.distributions import ActionHead, Distribution
from rlox.nn.layer_data import LayerData, activation, chain, layer_data
from rlox.nn.memory import Memory, MemoryKind
from rlox.nn.mlp import ReluMLP, TanhMLP


class DeterministicPolicy(nn.Module):
    """μ(s) = tanh of a network: one continuous action for each observation.

    Args:
        obs_dim: size of an observation.
        act_dim: size of an action.
        hidden: width of the two hidden layers.
        generator: source of the weights; ``None`` uses torch's global one.
    """

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        hidden: int = 256,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.net = ReluMLP((obs_dim, hidden, hidden, act_dim), generator=generator)

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
        hidden: width of the two hidden layers.
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
        hidden: int = 256,
        *,
        log_std_bounds: tuple[float, float] = (-5.0, 2.0),
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.generator = generator
        self.log_std_bounds = log_std_bounds
        self.net = ReluMLP((obs_dim, hidden, hidden, act_dim), generator=generator)
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
        hidden: width of the two hidden layers.
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
        hidden: int = 256,
        *,
        log_std_bounds: tuple[float, float] = (-20.0, 2.0),
        net: nn.Module | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.generator = generator
        self.log_std_bounds = log_std_bounds
        self.net = net or ReluMLP((obs_dim, hidden, hidden, 2 * act_dim), generator=generator)

    def _mean_and_log_std(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.net(obs).chunk(2, -1)
        return mean, log_std.clamp(*self.log_std_bounds)

    def get_action_and_logprob(
        self, obs: Tensor, n_samples: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Sample actions, differentiable with respect to the weights.

        Args:
            obs: (B, obs_dim) float32.
            n_samples: number n of actions for each observation, in a dimension before all others;
                ``None`` is one, without that dimension.

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


class RecurrentPolicy(nn.Module):
    """Policy and value function for any spaces, each with a recurrent layer of its own.

    Features of the encoder, which both share, go through an LSTM or GRU and a tanh network. The
    state is one row per env: the policy's memory, then the value function's.

    Args:
        encoder: from observations to features, with the attribute ``output_size``; see
            :func:`rlox.nn.make_encoder`.
        action_space: of one env.
        kind: ``"lstm"`` or ``"gru"``.
        memory_size: units of each recurrent layer.
        hidden: widths of the hidden layers after it.
        generator: source of the weights and of the sampled actions; ``None`` uses torch's global
            one.

    Raises:
        SpaceError: there is no distribution over the action space.
    """

    def __init__(
        self,
        encoder: nn.Module,
        action_space: spaces.Space[Any],
        kind: MemoryKind,
        *,
        memory_size: int = 64,
        hidden: Sequence[int] = (64,),
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.generator = generator
        self.encoder = encoder
        self.head = ActionHead(action_space)
        features = int(encoder.output_size)  # type: ignore[arg-type]
        self.actor_memory = Memory(features, memory_size, kind, generator=generator)
        self.critic_memory = Memory(features, memory_size, kind, generator=generator)
        sizes = (memory_size, *hidden)
        self.actor = TanhMLP((*sizes, self.head.output_size), output_gain=0.01, generator=generator)
        self.critic = TanhMLP((*sizes, 1), output_gain=1.0, generator=generator)
        self.state_size = 2 * self.actor_memory.state_size
        """Length of a state's row."""

    def step(
        self, obs: Any, state: Tensor, action_masks: Tensor | None = None
    ) -> tuple[Distribution, Tensor, Tensor]:
        """Take in one observation per env.

        Args:
            obs: N observations.
            state: (N, state_size), 0 where an episode begins.
            action_masks: (N, mask_size) bool; ``None`` masks nothing.

        Returns:
            Distributions of N actions, values (N,) and the next state (N, state_size).
        """
        goes_on = torch.zeros(1, len(state), dtype=torch.bool, device=state.device)
        return self._run(obs, state, goes_on, action_masks)

    def evaluate_actions(
        self,
        obs: Any,
        actions: Tensor,
        action_masks: Tensor | None = None,
        *,
        state: Tensor,
        episode_starts: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities, entropies and values, each (T*n,), of n sequences of T steps.

        Args:
            obs: T*n observations, step 0 of all sequences first.
            actions: theirs.
            action_masks: (T*n, mask_size) bool; ``None`` masks nothing.
            state: (n, state_size) before the sequences.
            episode_starts: (T*n,) bool, whether an episode begins with the observation.
        """
        starts = episode_starts.view(-1, len(state))
        distribution, values, _ = self._run(obs, state, starts, action_masks)
        return distribution.log_prob(actions), distribution.entropy(), values

    def _run(
        self, obs: Any, state: Tensor, starts: Tensor, action_masks: Tensor | None
    ) -> tuple[Distribution, Tensor, Tensor]:
        features = self.encoder(obs).view(*starts.shape, -1)
        for_actor, for_critic = state.chunk(2, -1)
        acting, actor_state = self.actor_memory(features, for_actor, starts)
        judging, critic_state = self.critic_memory(features, for_critic, starts)
        distribution = self.head(self.actor(acting.flatten(0, 1)), action_masks)
        values = self.critic(judging.flatten(0, 1)).squeeze(-1)
        return distribution, values, torch.cat([actor_state, critic_state], -1)

    def layer_data(self) -> LayerData:
        """Describe the most probable actions; only the policy's memory is part of it."""
        parts = (self.encoder, self.actor_memory, self.actor, self.head)
        return chain(*(layer_data(part) for part in parts))
