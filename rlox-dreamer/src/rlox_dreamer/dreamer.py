"""DreamerV3 (Hafner et al. 2025, "Mastering diverse control tasks through world models").

Every update draws sequences of T rows and, in this order,

    world model   h_t, z_t from the rows; observation, reward and continuation from h_t, z_t
                  L = L_pred + β_dyn max(1, KL[sg(q) || p]) + β_rep max(1, KL[q || sg(p)]) eq. 4, 5
    imagination   H steps of the policy in the model, from every replayed state
    critic        two-hot cross-entropy to λ-returns, imagined and replayed                eq. 7, 10
    actor         REINFORCE with the advantage divided by S, the range of returns          eq. 6, 8

and minimises the sum with one LaProp step after adaptive gradient clipping.

Deviations from the paper (1 to 4 follow the authors' newest code):
    1. LaProp and AGC instead of Adam and clipping by the norm;
    2. a block-diagonal GRU with RMSNorm and SiLU;
    3. sequences start from stored states, which every update overwrites with new ones;
    4. the fast critic bootstraps returns; the slow one regularises it;
    5. ``policy_unimix`` mixes discrete policies as in the paper; the authors' code does not;
    6. observations are normalised, so that small numbers count as much as large ones;
    7. default sizes and rates are small; ``preset`` has the published ones, without 6.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy.typing as npt
import torch
from gymnasium import spaces
from rlox.config.model import UNSET
from rlox.learners.transitions import Parts, ReplayObjective, StepResult
from rlox.networks import polyak_update
from rlox.nn import FlatOptimizer
from rlox.nn.optimizers import AdaptiveClip
from rlox.replay.algorithm import Network, ReplayAlgorithm
from rlox.replay.building import Given
from rlox.rollouts import RolloutMetrics
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from rlox_dreamer.configs import DreamerV3Config
from rlox_dreamer.experience import Experience, SequenceBatch, make_experience
from rlox_dreamer.losses import (
    kl_terms,
    lambda_returns,
    policy_loss,
    replay_returns,
    sample_mixed,
)
from rlox_dreamer.networks import Networks
from rlox_dreamer.optim import LaProp
from rlox_dreamer.rssm import Latent

if TYPE_CHECKING:
    from rlox_dreamer.option_types import DreamerV3Arguments, Unpack


@dataclass(frozen=True, kw_only=True)
class DreamerV3Metrics(RolloutMetrics):
    """Metrics of one iteration; losses are means over its updates, NaN without any.

    The losses of policy and value, and the entropy, come from imagined rollouts.
    """

    model_loss: float
    """Weighted sum of the world model's losses."""
    reconstruction_loss: float
    reward_loss: float
    continue_loss: float
    dynamics_kl: float
    """Dynamics loss in nats, at least ``free_nats``."""
    representation_kl: float
    """Representation loss in nats, at least ``free_nats``."""
    replay_value_loss: float
    """The critic's loss on replayed rewards."""
    imagined_return: float
    """Mean λ-return of imagination."""
    return_scale: float
    """S, the divisor of advantages."""


@dataclass(frozen=True)
class Dreaming(ReplayObjective):
    """Joint gradient step of world model, critic and actor; see the options of the same names.

    Acting maps observations and memories (N, M) to new memories: the model's state and the action
    taken there. A memory is 0 where an episode begins.
    """

    imagination_horizon: int
    gamma: float
    return_lambda: float
    entropy: float
    kl_balance: float
    dyn_scale: float | None
    rep_scale: float | None
    free_nats: float
    slow_rate: float
    slow_target: bool
    replay_value_scale: float
    replay_context: bool
    compute_dtype: str

    def learn(self, parts: Parts, batch: SequenceBatch, learning_rate: float) -> StepResult:
        """Take a gradient step of the world model, the critic and the actor."""
        net, draws = parts.model, parts.stream("learning")
        with self.precision(parts.device):
            # world model
            noise = torch.rand((*batch.rewards.shape, net.rssm.stoch), generator=draws)
            latents, post = net.rssm.observe(
                self.start(net, batch), net.encode(batch.obs), batch.actions, batch.is_first,
                noise.to(parts.device),
            )  # fmt: skip
            features = latents.features()
            dynamics, representation = kl_terms(post, net.rssm.prior(latents.deter), self.free_nats)
            reconstruction = net.reconstruction_loss(features, batch.obs)
            reward = net.reward.loss(net.reward(features), batch.rewards)
            continuation = binary_cross_entropy_with_logits(
                net.continuation(features).squeeze(-1).float(),
                self.gamma * (~batch.is_terminal).float(),
                reduction="none",
            )
            dyn_scale = self.kl_balance if self.dyn_scale is None else self.dyn_scale
            rep_scale = 1 - self.kl_balance if self.rep_scale is None else self.rep_scale
            model_loss = (
                reconstruction + reward + continuation
                + dyn_scale * dynamics + rep_scale * representation
            ).mean()  # fmt: skip

            # imagination, from every replayed state
            starts = Latent(*(part.detach().flatten(0, 1) for part in latents))
            seen, actions = net.imagine(starts, self.imagination_horizon, draws)
            rewards = net.reward.predict(seen)
            slow = net.slow_value.predict(seen)
            with torch.no_grad():
                discounts = torch.sigmoid(net.continuation(seen).squeeze(-1).float())
                weights = discounts.cumprod(0)[:-1]
            values = net.value(seen)
            baseline = slow if self.slow_target else net.value.mean(values)
            returns = lambda_returns(rewards, discounts, baseline, self.return_lambda)

            # critic
            both = net.value.loss(values[:-1], returns) + net.value.loss(values[:-1], slow[:-1])
            value_loss = (weights * both).mean()
            replay_value_loss = self.replay_value_loss(net, batch, features, returns[0])

            # actor
            scale = net.return_scale.update(returns)
            log_probs, entropy = net.policy.log_prob_and_entropy(
                net.policy(seen[:-1]), actions[:-1]
            )
            advantages = (returns - baseline[:-1]) / scale
            actor_loss = policy_loss(log_probs, entropy, advantages, weights, self.entropy).mean()

            loss = model_loss + actor_loss + value_loss
            loss = loss + self.replay_value_scale * replay_value_loss
        parts.minimize("model", loss, batch, learning_rate)
        polyak_update(net.value, net.slow_value, self.slow_rate)
        terms = {
            "model_loss": model_loss,
            "reconstruction_loss": reconstruction.mean(),
            "reward_loss": reward.mean(),
            "continue_loss": continuation.mean(),
            "dynamics_kl": dynamics.mean(),
            "representation_kl": representation.mean(),
            "policy_loss": actor_loss,
            "value_loss": value_loss,
            "replay_value_loss": replay_value_loss,
            "entropy": entropy.mean(),
            "imagined_return": returns.mean(),
            "return_scale": scale,
        }
        states = {"deter": latents.deter.detach().float(), "stoch": latents.stoch.argmax(-1)}
        return StepResult(
            {name: term.detach() for name, term in terms.items()},
            outputs={name: part.transpose(0, 1) for name, part in states.items()},
        )

    def start(self, net: Networks, batch: SequenceBatch) -> Latent:
        """Return a batch's initial states: the stored ones, or 0."""
        if self.replay_context:
            return net.rssm.restored(batch.context_deter, batch.context_stoch)
        return net.rssm.initial(len(batch.context_deter))

    def replay_value_loss(
        self, net: Networks, batch: SequenceBatch, features: Tensor, first: Tensor
    ) -> Tensor:
        """Return the critic's loss on replayed rewards, whose gradient reaches the world model.

        Args:
            net: the networks.
            batch: the sequences.
            features: (T, B, F) of the sequences' states.
            first: (T B,) first imagined return from each state.
        """
        targets = replay_returns(
            batch.rewards, batch.is_terminal, batch.is_last, first.view_as(batch.rewards),
            self.gamma, self.return_lambda,
        )  # fmt: skip
        log_probs = net.value(features[:-1])
        slow = net.slow_value.predict(features[:-1].detach())
        losses = net.value.loss(log_probs, targets) + net.value.loss(log_probs, slow)
        return ((~batch.is_last[:-1]).float() * losses).mean()

    def act(self, parts: Parts, obs: Any) -> Tensor:
        """Return memories (N, M) after observations, with samples of states and actions."""
        return self._follow(parts, obs, parts.stream("acting"))

    def mode(self, parts: Parts, obs: Any) -> Tensor:
        """Return memories (N, M) after observations, with the modes of states and actions."""
        return self._follow(parts, obs, None)

    def _follow(self, parts: Parts, given: Any, generator: torch.Generator | None) -> Tensor:
        net, device, (obs, memory) = parts.model, parts.device, given
        with self.precision(device):
            latent, actions = net.remembered(memory)
            shares, projected = net.rssm.shares(), net.rssm.project(net.encoder(obs))
            deter = net.rssm.next_deter(latent, net.rssm.embed_actions(actions), shares)
            logits = net.rssm.posterior_logits(deter, projected, shares)
            if generator is None:
                stoch = nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
            else:
                noise = torch.rand(logits.shape[:-1], generator=generator).to(device)
                _, stoch = sample_mixed(logits, net.rssm.mix, noise)
            features = Latent(deter.float(), stoch).features()
            parameters = net.policy(features)
            if generator is None:
                chosen = net.policy.mode(parameters)
            else:
                draws = net.policy.noise((len(deter),), generator)
                chosen = net.policy.sample(parameters, draws.to(device))
            return torch.cat([features, chosen], -1)

    def precision(self, device: torch.device) -> torch.autocast:
        """Return the autocast context for the networks."""
        reduced = self.compute_dtype == "bfloat16"
        return torch.autocast(device.type, torch.bfloat16, enabled=reduced)


@final
class DreamerV3(ReplayAlgorithm):
    """World model with an actor and a critic that learn in imagination.

    All networks are one part, ``model``.
    """

    name = "dreamer_v3"
    config_class = DreamerV3Config
    metrics_class = DreamerV3Metrics
    objective_class = Dreaming
    acts_in = spaces.Space
    own_networks = targets = ()
    arguments = ("env_id", "n_envs", "seed", "logger", "callbacks")
    if TYPE_CHECKING:

        def __init__(
            self, env_id: Any, *given: Any, **options: Unpack[DreamerV3Arguments]
        ) -> None: ...

    def make_replay(self, given: Given) -> Experience:
        """Return the envs and their replay buffer."""
        return make_experience(self, given)

    def make_networks(self, space: Any, size: int, **sizes: Any) -> dict[str, Network]:
        """Return world model, actor and critic."""
        if self.config.latent_dim is not None:
            text = "latent_dim is ignored: it follows from deter_dim, stoch_dim and stoch_classes"
            logging.getLogger("rlox").warning(text)
        generator = self.streams.torch("networks")
        return {"model": Network(partial(Networks, self.replay.env, self.config, generator))}

    def make_optimizer(self, name: str, network: nn.Module, **options: Any) -> FlatOptimizer:
        """Return LaProp with adaptive gradient clipping."""
        return FlatOptimizer(network, partial(LaProp), clip=AdaptiveClip(self.config.agc))

    def step_size(self) -> float:
        """Return the step size, which rises from 0 over the first updates."""
        done = self.clock.gradient_steps + 1
        warm: float = min(done / max(self.config.warmup, 1), 1.0)
        return super().step_size() * warm

    def predict(
        self,
        obs: npt.ArrayLike,
        deterministic: bool = True,
        *,
        state: Any = UNSET,
        episode_start: npt.ArrayLike | None = None,
    ) -> Any:
        """Return an action for one observation, or actions for a batch.

        Args:
            obs: one observation or a batch (B, *shape), nested like the observation space.
            deterministic: use the modes of state and policy; else samples.
            state: the state returned with the last actions; ``None`` begins episodes. If left out,
                episodes begin too, and no state is returned.
            episode_start: bool or (B,) bools, whether an episode begins with the observation;
                ``None``: none does.

        Raises:
            ValueError: an argument has another shape.
        """
        memory = {"state": None if state is UNSET else state, "episode_start": episode_start}
        actions, after = self._predict(obs, deterministic, **memory)
        return actions if state is UNSET else (actions, after)
