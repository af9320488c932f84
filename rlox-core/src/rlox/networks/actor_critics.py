"""Default actor-critics and their base class.

All satisfy :class:`rlox.protocols.OnPolicyActor`. Weights are orthogonal, scaled by √2 in hidden
layers, 0.01 in the policy's head and 1 in the value's (Huang et al. 2022, details 2 and 13).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlox.errors import ConfigError
from rlox.nn.distributions import ActionHead, Categorical, DiagonalGaussian, Distribution
from rlox.nn.encoders import ConvolutionalEncoder, EncoderKind, make_encoder
from rlox.nn.layer_data import LayerData, chain, layer_data, mode
from rlox.nn.mlp import Hidden, Layers, Memory, MemoryKind, make_mlp


class Policy(nn.Module, ABC):
    """A policy and a value function on features that they may share.

    A subclass defines the features of observations, and the distribution and value made of them.

    Args:
        generator: source of the sampled actions; ``None`` uses torch's global one, or the run's
            stream once an algorithm has the policy.
    """

    def __init__(self, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.generator = generator

    @abstractmethod
    def encode(self, obs: Any) -> Tensor:
        """Return features (B, n) of observations: (B, *shape), or a dict of these by leaf name."""

    @abstractmethod
    def distribution(self, features: Tensor, action_masks: Tensor | None = None) -> Distribution:
        """Return the distributions of B actions.

        Args:
            features: (B, n).
            action_masks: (B, mask_size) bool, see :class:`rlox.spaces.ActionRows`; ``None`` masks
                nothing.
        """

    @abstractmethod
    def value(self, features: Tensor) -> Tensor:
        """Return values (B,) of features (B, n)."""

    def get_action_and_logprob(
        self, obs: Any, action_masks: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Sample actions (B, ...), which are not clipped, and return them with log-probabilities.

        Args:
            obs: B observations.
            action_masks: see :meth:`distribution`.
        """
        return self.distribution(self.encode(obs), action_masks).sample(self.generator)

    def get_value(self, obs: Any) -> Tensor:
        """Return values (B,) of observations."""
        return self.value(self.encode(obs))

    def get_logprob_and_entropy(
        self, obs: Any, actions: Tensor, action_masks: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return log-probabilities (B,) of ``actions`` (B, ...) and entropies (B,) in nats."""
        distribution = self.distribution(self.encode(obs), action_masks)
        return distribution.log_prob(actions), distribution.entropy()

    def evaluate_actions(
        self, obs: Any, actions: Tensor, action_masks: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities, entropies and values, each (B,), encoding once."""
        features = self.encode(obs)
        distribution = self.distribution(features, action_masks)
        return distribution.log_prob(actions), distribution.entropy(), self.value(features)

    def deterministic(self, obs: Any, action_masks: Tensor | None = None) -> Tensor:
        """Return the most probable actions (B, ...)."""
        return self.distribution(self.encode(obs), action_masks).mode()


class DiscretePolicy(Policy):
    """Categorical policy and value function of vectors.

    Args:
        obs_dim: size of an observation.
        n_actions: number of actions.
        hidden: width of both hidden layers, or widths of any number of them.
        generator: source of the weights and of the sampled actions; ``None`` uses torch's global
            one.
    """

    def __init__(
        self,
        obs_dim: int,
        n_actions: int,
        hidden: Hidden = 64,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(generator=generator)
        self._action_space = spaces.Discrete(n_actions)
        self.actor, self.critic = _make_both(obs_dim, hidden, n_actions, generator)

    def encode(self, obs: Tensor) -> Tensor:
        """Return ``obs`` (B, obs_dim) float32."""
        return obs

    def distribution(self, features: Tensor, action_masks: Tensor | None = None) -> Categorical:
        """Return distributions over actions (B,) int64; masks are (B, n_actions)."""
        return Categorical(self.actor(features), action_masks)

    def value(self, features: Tensor) -> Tensor:
        """Return values (B,)."""
        return self.critic(features).squeeze(-1)  # type: ignore[no-any-return]

    def layer_data(self) -> LayerData:
        """Describe the most probable actions; see :mod:`rlox.nn.layer_data`."""
        return chain(layer_data(self.actor), mode(self._action_space))


class ContinuousPolicy(Policy):
    """Diagonal Gaussian policy with a state-independent deviation, and value function of vectors.

    Args:
        obs_dim: size of an observation.
        act_dim: size of an action.
        hidden: width of both hidden layers, or widths of any number of them.
        generator: source of the weights and of the sampled actions; ``None`` uses torch's global
            one.
    """

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        hidden: Hidden = 64,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(generator=generator)
        self._action_space = spaces.Box(-np.inf, np.inf, (act_dim,))
        self.actor, self.critic = _make_both(obs_dim, hidden, act_dim, generator)
        self.log_std = nn.Parameter(torch.full((act_dim,), Layers.expand(hidden).log_std))

    def encode(self, obs: Tensor) -> Tensor:
        """Return ``obs`` (B, obs_dim) float32."""
        return obs

    def distribution(
        self, features: Tensor, action_masks: Tensor | None = None
    ) -> DiagonalGaussian:
        """Return distributions over actions (B, act_dim) float32; masks are ignored."""
        return DiagonalGaussian(self.actor(features), self.log_std)

    def value(self, features: Tensor) -> Tensor:
        """Return values (B,)."""
        return self.critic(features).squeeze(-1)  # type: ignore[no-any-return]

    def layer_data(self) -> LayerData:
        """Describe the most probable actions; see :mod:`rlox.nn.layer_data`."""
        return chain(layer_data(self.actor), mode(self._action_space))


class ActorCriticPolicy(Policy):
    """Policy and value function for any spaces: a shared encoder, then a tanh network for each.

    Args:
        encoder: from observations to features, with the attribute ``output_size``; see
            :func:`rlox.nn.make_encoder`.
        action_space: of one env.
        hidden: see :class:`DiscretePolicy`, between features and outputs; ``()`` makes it linear.
        generator: source of the weights and of the sampled actions; ``None`` uses torch's global
            one.

    Raises:
        SpaceError: there is no distribution over the action space.
    """

    def __init__(
        self,
        encoder: nn.Module,
        action_space: spaces.Space[Any],
        hidden: Hidden = 64,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(generator=generator)
        self.encoder = encoder
        self.head = ActionHead(action_space, log_std=Layers.expand(hidden).log_std)
        features: Any = encoder.output_size
        self.actor, self.critic = _make_both(features, hidden, self.head.output_size, generator)

    def encode(self, obs: Any) -> Tensor:
        """Return the encoder's features."""
        return self.encoder(obs)  # type: ignore[no-any-return]

    def distribution(self, features: Tensor, action_masks: Tensor | None = None) -> Distribution:
        """Return distributions over action rows; see :mod:`rlox.spaces`."""
        return self.head(self.actor(features), action_masks)  # type: ignore[no-any-return]

    def value(self, features: Tensor) -> Tensor:
        """Return values (B,)."""
        return self.critic(features).squeeze(-1)  # type: ignore[no-any-return]

    def act_with_value(
        self, obs: Any, action_masks: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Sample actions (B, ...); return them, log-probabilities (B,) and values (B,).

        Observations are encoded once for all three; for images that is nearly all of the work.
        """
        features = self.encode(obs)
        actions, log_probs = self.distribution(features, action_masks).sample(self.generator)
        return actions, log_probs, self.value(features)

    def layer_data(self) -> LayerData:
        """Describe the most probable actions; see :mod:`rlox.nn.layer_data`."""
        return chain(layer_data(self.encoder), layer_data(self.actor), layer_data(self.head))


class AsymmetricPolicy(ActorCriticPolicy):
    """A policy whose values come from observations of their own, such as a simulator's state.

    Args:
        encoder: of the actor's observations.
        critic_encoder: of the critic's.
        action_space: see :class:`ActorCriticPolicy`.
        hidden: see there.
        generator: see there.

    Source:
        Pinto et al. 2018, "Asymmetric actor critic for image-based robot learning".
    """

    def __init__(
        self,
        encoder: nn.Module,
        critic_encoder: nn.Module,
        action_space: spaces.Space[Any],
        hidden: Hidden = 64,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(encoder, action_space, hidden, generator=generator)
        self.critic_encoder = critic_encoder
        seen: Any = critic_encoder.output_size
        self.critic = _make_critic(seen, hidden, generator)

    def encode(self, obs: Any) -> Tensor:
        """Return the actor's features, then the critic's."""
        return torch.cat((self.encoder(obs), self.critic_encoder(obs)), -1)

    def distribution(self, features: Tensor, action_masks: Tensor | None = None) -> Distribution:
        """Return distributions over action rows from the actor's features."""
        return super().distribution(features[:, : self._split], action_masks)

    def value(self, features: Tensor) -> Tensor:
        """Return values (B,) from the critic's features."""
        return super().value(features[:, self._split :])

    @property
    def _split(self) -> int:
        return self.encoder.output_size  # type: ignore[return-value]

    def layer_data(self) -> LayerData:
        """Describe the most probable actions, without the critic's observations."""
        return super().layer_data()


class Recurrent(nn.Module, ABC):
    """A policy and a value function with memories; see :class:`rlox.protocols.RecurrentActor`.

    The state is one row per env: the policy's memory, then the value function's.

    Args:
        generator: source of the sampled actions; ``None`` uses torch's global one.
    """

    state_size: int
    """Length of a state's row."""

    def __init__(self, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.generator = generator

    @abstractmethod
    def _run(
        self, obs: Any, state: Tensor, starts: Tensor, action_masks: Tensor | None
    ) -> tuple[Distribution, Tensor, Tensor]:
        """Return distributions (T*n), values (T*n,) and the state (n, state_size) after T steps.

        Args:
            obs: T*n observations, step 0 of all sequences first.
            state: (n, state_size) before the sequences.
            starts: (T, n) bool, whether an episode begins with the observation.
            action_masks: (T*n, mask_size) bool; ``None`` masks nothing.
        """

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
            actions: the actions taken on them.
            action_masks: (T*n, mask_size) bool; ``None`` masks nothing.
            state: (n, state_size) before the sequences.
            episode_starts: (T*n,) bool, whether an episode begins with the observation.
        """
        starts = episode_starts.view(-1, len(state))
        distribution, values, _ = self._run(obs, state, starts, action_masks)
        return distribution.log_prob(actions), distribution.entropy(), values


class RecurrentPolicy(Recurrent):
    """Policy and value function for any spaces, each with a recurrent layer of its own.

    Features of the encoder, which both share, go through an LSTM or GRU and a tanh network. The
    state is one row per env: the policy's memory, then the value function's. Other arguments and
    errors are those of :class:`ActorCriticPolicy`.

    Args:
        kind: ``"lstm"`` or ``"gru"``.
        memory_size: units of each recurrent layer.
        hidden: see :class:`DiscretePolicy`, after the recurrent layer.
    """

    def __init__(
        self,
        encoder: nn.Module,
        action_space: spaces.Space[Any],
        kind: MemoryKind,
        *,
        memory_size: int = 64,
        hidden: Hidden = (64,),
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(generator=generator)
        self.encoder = encoder
        self.head = ActionHead(action_space, log_std=Layers.expand(hidden).log_std)
        features = int(encoder.output_size)  # type: ignore[arg-type]
        self.actor_memory = Memory(features, memory_size, kind, generator=generator)
        self.critic_memory = Memory(features, memory_size, kind, generator=generator)
        self.actor, self.critic = _make_both(memory_size, hidden, self.head.output_size, generator)
        self.state_size = 2 * self.actor_memory.state_size

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


def _make_both(n_in: int, hidden: Hidden, n_out: int, generator: torch.Generator | None) -> Any:
    """Return actor and critic."""
    actor = make_mlp(n_in, hidden, n_out, output_gain=0.01, generator=generator)
    return actor, _make_critic(n_in, hidden, generator)


def _make_critic(n_in: int, hidden: Hidden, generator: torch.Generator | None) -> Any:
    return make_mlp(n_in, hidden, 1, critic=True, output_gain=1.0, generator=generator)


def make_policy(
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    *,
    hidden: Hidden = 64,
    network: EncoderKind = "auto",
    recurrent: Literal["none", "lstm", "gru"] = "none",
    memory_size: int = 64,
    critic_obs: Sequence[str] = (),
    generator: torch.Generator | None = None,
) -> Policy | RecurrentPolicy:
    """Return the default policy for an env's spaces.

    Args:
        observation_space: of one env.
        action_space: of one env.
        hidden: width of both hidden layers, or widths of any number of them.
        network: how boxes become features; see :data:`rlox.nn.EncoderKind`.
        recurrent: kind of memory.
        memory_size: units of the memory.
        critic_obs: keys of a ``Dict`` of observations that the critic alone sees.
        generator: source of the weights and of the sampled actions; ``None`` uses torch's global
            one.

    Raises:
        SpaceError: the spaces have no default policy; pass one as ``policy=``.
        ConfigError: shared layers have widths of the critic's own; or ``critic_obs`` names other
            keys, leaves the actor none, or meets a memory or shared layers.
    """
    like, critic_encoder = Layers.expand(hidden), None
    options: Any = {"kind": network, "conv": like.conv, "generator": generator}
    if critic_obs:
        _require_critic_obs(critic_obs, observation_space, recurrent, like.shared)
        critic_encoder = make_encoder(observation_space, **options)
        leaves = observation_space.items()  # type: ignore[attr-defined]
        observation_space = spaces.Dict({k: v for k, v in leaves if k not in critic_obs})
    encoder = make_encoder(observation_space, **options)
    # an image's features come from a layer of their own (Mnih et al. 2015)
    depth = 0 if isinstance(encoder, ConvolutionalEncoder) else 2
    layers = Layers.expand(hidden, depth if recurrent == "none" else 1)
    if layers.shared:
        encoder, layers = _share(encoder, layers, generator)
    if recurrent != "none":
        sizes: Any = {"memory_size": memory_size, "hidden": layers}
        return RecurrentPolicy(encoder, action_space, recurrent, **sizes, generator=generator)
    shape = observation_space.shape or ()
    floats = isinstance(observation_space, spaces.Box) and observation_space.dtype != np.uint8
    if network != "cnn" and floats and len(shape) == 1 and not layers.shared:
        obs_dim = int(shape[0])
        if isinstance(action_space, spaces.Discrete):
            return DiscretePolicy(obs_dim, int(action_space.n), hidden, generator=generator)
        if isinstance(action_space, spaces.Box) and len(action_space.shape) == 1:
            return ContinuousPolicy(obs_dim, action_space.shape[0], hidden, generator=generator)
    if critic_encoder is not None:
        return AsymmetricPolicy(encoder, critic_encoder, action_space, layers, generator=generator)
    return ActorCriticPolicy(encoder, action_space, layers, generator=generator)


def _require_critic_obs(
    keys: Sequence[str], space: spaces.Space[Any], recurrent: str, shared: bool
) -> None:
    """Check the keys that only the critic sees; see :func:`make_policy`."""
    known = list(space) if isinstance(space, spaces.Dict) else []
    if not set(keys) < set(known):
        raise ConfigError(
            f"critic_obs must name some, not all, keys of a Dict of observations, {known}, got "
            f"{list(keys)}"
        )
    if recurrent != "none" or shared:
        raise ConfigError(
            f"critic_obs needs policies without memory or shared layers, got recurrent="
            f"'{recurrent}' and shared={shared}; leave one out"
        )


def _share(
    encoder: nn.Module, layers: Layers, generator: torch.Generator | None
) -> tuple[nn.Module, Layers]:
    """Return the encoder with the hidden layers behind it, and layers without hidden ones."""
    if layers.critic_hidden != layers.hidden:
        raise ConfigError(
            "critic_hidden must be None with shared=True, where values have the policy's layers, "
            f"got {layers.critic_hidden}"
        )
    n_in: Any = encoder.output_size
    options: Any = {"output_gain": 1.0, "generator": generator}
    trunk = nn.Sequential(encoder, make_mlp(n_in, layers, **options))
    trunk.output_size = (n_in, *layers.hidden)[-1]  # type: ignore[misc]
    return trunk, replace(layers, hidden=(), critic_hidden=())
