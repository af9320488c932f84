"""DreamerV3 (Hafner et al. 2025, "Mastering diverse control tasks through world models").

Every update draws sequences of T rows and, in this order,

    world model   h_t, z_t from the rows; from them observation, reward and continuation
                  L = L_pred + β_dyn max(1, KL[sg(q) || p]) + β_rep max(1, KL[q || sg(p)]) eq. 4, 5
    imagination   H steps of the policy in the model, from every replayed state
    critic        two-hot cross-entropy to λ-returns, imagined and replayed                eq. 7, 10
    actor         REINFORCE with the advantage over S, the range of returns                eq. 6, 8

and minimises the sum with one LaProp step behind adaptive gradient clipping.

Deviations from the paper (numbers 1 to 4 are the authors' newest code):
    1. LaProp and AGC in the place of Adam and clipping by the norm;
    2. a block-diagonal GRU with RMSNorm and SiLU;
    3. sequences start from stored states, which are written back after every update;
    4. the fast critic bootstraps returns; the slow one regularises it;
    5. ``policy_unimix`` mixes discrete policies as the paper says; the authors' code does not;
    6. observations are normalised, so that small numbers count as much as large ones;
    7. default sizes and rates are small; ``preset`` has the published ones, and no 6.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy.typing as npt
import torch
from rlox.algorithm import Algorithm
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset
from rlox.deployment import PolicyData
from rlox.learners.terms import Scalar, mean_by_name
from rlox.learners.transitions import (
    ChosenReplayLearner,
    Parts,
    ReplayTask,
    StepResult,
    choose_replay_learner,
)
from rlox.logging import LoggerCallback
from rlox.networks import polyak_update
from rlox.nn import (
    FlatOptimizer,
    find_device,
    flush_denormals,
    load_parts_state,
    parts_state,
    torch_threads,
)
from rlox.nn.optimizers import AdaptiveClip
from rlox.training.hooks import Hooks
from torch import Tensor

from rlox_dreamer import building
from rlox_dreamer.configs import DreamerV3Config
from rlox_dreamer.heads import continue_loss
from rlox_dreamer.imagination import imagine, policy_loss, replay_returns
from rlox_dreamer.losses import ReturnScale, kl_terms, lambda_returns
from rlox_dreamer.metrics import DreamerV3Metrics
from rlox_dreamer.optim import LaProp
from rlox_dreamer.rssm import Latent
from rlox_dreamer.sequences import SequenceBatch

if TYPE_CHECKING:
    from rlox_dreamer.option_types import DreamerV3Options, Unpack

__all__ = ["DreamerV3"]


@final
class DreamerV3(Algorithm):
    """World model with an actor and a critic that learn in imagination.

    Args:
        env_id: a gymnasium id, a callable that makes an env, an env or a vector env.
        n_envs: number of envs stepped together; an env that cannot be copied brings its own.
        seed: fixes every random draw; ``None`` draws one from entropy.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training.
        config: a :class:`DreamerV3Config`, a mapping, or the path of a YAML or JSON file.
        config_kwargs: options of :class:`DreamerV3Config`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown, out of range or contradicts the env.
        EnvError: the env cannot be built.
        SpaceError: the model does not take the env's observations or actions.
    """

    name: ClassVar[str] = "dreamer_v3"
    config_class: ClassVar[type[Config]] = DreamerV3Config
    config: DreamerV3Config
    learner: ChosenReplayLearner

    def __init__(
        self,
        env_id: Any,
        n_envs: int | Unset = UNSET,
        seed: int | Unset | None = UNSET,
        logger: LoggerCallback | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        *,
        config: DreamerV3Config | Mapping[str, Any] | str | Path | None = None,
        **config_kwargs: Unpack[DreamerV3Options],
    ) -> None:
        resolved = building.resolve(config, env_id, n_envs=n_envs, seed=seed, **config_kwargs)
        super().__init__(env_id, config=resolved, callbacks=callbacks, logger=logger)
        cfg = self.config
        self.device = find_device(cfg.device)
        self.experience = building.make_experience(self)
        self.networks = building.make_networks(self)
        self.slow_value = copy.deepcopy(self.networks.value).requires_grad_(False)
        self.return_scale = ReturnScale(device=self.device)
        self.optimizer = FlatOptimizer(self.networks, partial(LaProp), clip=AdaptiveClip(cfg.agc))
        self.optimizers = {"networks": self.optimizer}
        self._draws = self.streams.torch("learning")
        self.actor = building.make_actor(self)
        self._parts = {
            "networks": self.networks, "slow_value": self.slow_value,
            "optimizer": self.optimizer, "return_scale": self.return_scale,
            "actor": self.actor, "experience": self.experience,
        }  # fmt: skip
        learning = {
            "model": self.networks, "slow_value": self.slow_value,
            "return_scale": self.return_scale,
        }  # fmt: skip
        parts = Parts(learning, self.optimizers, self.device, self.streams.torch)
        task = ReplayTask(building.DreamerObjective.of(cfg), parts, self)
        self.learner = choose_replay_learner(cfg.backend, task)

    def iterate(self, hooks: Hooks) -> DreamerV3Metrics:
        """Step the envs for one iteration and update whenever updates are due."""
        experience, learner = self.experience, self.learner
        collected: list[Mapping[str, Scalar]] = []

        def learn() -> None:
            for _ in experience.updates_due(hooks):
                batch = experience.draw()
                learnt = learner.step("learn", batch, self._learning_rate())
                if learnt.outputs is not None:
                    experience.batches.write_back(batch.indices, Latent(**learnt.outputs))
                collected.append(learnt.terms)
                hooks.train_batch(lambda: mean_by_name(collected[-1:]))

        with (
            torch_threads(self.config.torch_threads),
            flush_denormals(),
            experience.counted_episodes(),
        ):
            learn()  # what an interrupted iteration left
            for _ in range(experience.vector_steps_left):
                with self._precision():
                    experience.step(self.actor.act, hooks)
                learn()
                if hooks.stopped:
                    break
        found = {
            **experience.statistics.metrics(),
            "learning_rate": self._learning_rate(),
            **mean_by_name(collected),
        }
        absent = dict.fromkeys(DreamerV3Metrics.__dataclass_fields__, float("nan"))
        return DreamerV3Metrics(**{**absent, **found})

    def _learning_rate(self) -> float:
        cfg = self.config
        done = self.clock.gradient_steps + 1
        return float(cfg.learning_rate) * min(done / max(cfg.warmup, 1), 1.0)

    def learn(self, parts: Parts, batch: SequenceBatch, learning_rate: float) -> StepResult:
        """Take a gradient step of the world model, the critic and the actor."""
        cfg, net = self.config, self.networks
        with self._precision():
            # world model
            start = net.rssm.initial(len(batch.context_deter))
            if cfg.replay_context:
                start = net.rssm.restored(batch.context_deter, batch.context_stoch)
            tokens = net.encode(batch.obs)
            noise = torch.rand((*batch.rewards.shape, cfg.stoch_dim), generator=self._draws)
            latents, post = net.rssm.observe(
                start, tokens, batch.actions, batch.is_first, noise.to(self.device)
            )
            features = latents.features()
            dynamics, representation = kl_terms(post, net.rssm.prior(latents.deter), cfg.free_nats)
            reconstruction = net.reconstruction_loss(features, batch.obs)
            reward = net.reward.loss(net.reward(features), batch.rewards)
            goes_on = cfg.gamma * (~batch.is_terminal).float()
            continuation = continue_loss(net.continuation(features).squeeze(-1), goes_on)
            model_loss = (
                reconstruction + reward + continuation
                + net.kl_scales[0] * dynamics + net.kl_scales[1] * representation
            ).mean()  # fmt: skip

            # imagination, from every replayed state
            starts = Latent(*(part.detach().flatten(0, 1) for part in latents))
            imagined = imagine(net.rssm, net.policy, starts, cfg.imagination_horizon, self._draws)
            rewards = net.reward.predict(imagined.features)
            slow = self.slow_value.predict(imagined.features)
            with torch.no_grad():
                discounts = torch.sigmoid(net.continuation(imagined.features).squeeze(-1).float())
                weights = discounts.cumprod(0)
            values = net.value(imagined.features)
            means = net.value.mean(values)
            returns = lambda_returns(
                rewards, discounts, slow if cfg.slow_target else means, cfg.return_lambda
            )

            # critic
            both = net.value.loss(values[:-1], returns) + net.value.loss(values[:-1], slow[:-1])
            value_loss = (weights[:-1] * both).mean()
            replay_value_loss = self._replay_value_loss(batch, features, returns[0])

            # actor
            scale = self.return_scale.update(returns)
            baseline = (slow if cfg.slow_target else means)[:-1]
            log_probs, entropy = net.policy.log_prob_and_entropy(
                net.policy(imagined.features[:-1]), imagined.actions[:-1]
            )
            advantages = (returns - baseline) / scale
            actor_loss = policy_loss(
                log_probs, entropy, advantages, weights[:-1], cfg.entropy
            ).mean()

            loss = model_loss + actor_loss + value_loss
            loss = loss + cfg.replay_value_scale * replay_value_loss
        self.optimizer.step(loss, learning_rate)
        polyak_update(net.value, self.slow_value, cfg.slow_rate)
        terms = {
            "model_loss": model_loss.detach(),
            "reconstruction_loss": reconstruction.detach().mean(),
            "reward_loss": reward.detach().mean(),
            "continue_loss": continuation.detach().mean(),
            "dynamics_kl": dynamics.detach().mean(),
            "representation_kl": representation.detach().mean(),
            "policy_loss": actor_loss.detach(),
            "value_loss": value_loss.detach(),
            "replay_value_loss": replay_value_loss.detach(),
            "entropy": entropy.detach().mean(),
            "imagined_return": returns.mean(),
            "return_scale": scale,
        }
        states = latents.detach()._asdict() if cfg.replay_context else None
        return StepResult(terms, outputs=states)

    def _replay_value_loss(self, batch: SequenceBatch, features: Tensor, first: Tensor) -> Tensor:
        """Return the critic's loss on replayed rewards, whose gradient reaches the world model.

        Args:
            batch: the sequences.
            features: (T, B, F) of their states.
            first: (T B,) first imagined return from each state.
        """
        cfg, value = self.config, self.networks.value
        targets = replay_returns(
            batch.rewards, batch.is_terminal, batch.is_last, first.view_as(batch.rewards),
            cfg.gamma, cfg.return_lambda,
        )  # fmt: skip
        log_probs = value(features[:-1])
        slow = self.slow_value.predict(features[:-1].detach())
        losses = value.loss(log_probs, targets) + value.loss(log_probs, slow)
        return ((~batch.is_last[:-1]).float() * losses).mean()

    def _precision(self) -> torch.autocast:
        reduced = self.config.compute_dtype == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=reduced)

    def predict(
        self,
        obs: Any,
        deterministic: bool = True,
        *,
        state: Any = UNSET,
        episode_start: npt.ArrayLike | None = None,
    ) -> Any:
        """Return an action for one observation, or actions for a batch; see ``Actor.predict``."""
        generator = None if deterministic else self.streams.torch("predict")
        given = None if state is UNSET else state, episode_start
        with torch_threads(self.config.torch_threads), self._precision():
            actions, after = self.actor.predict(obs, *given, generator)
        return actions if state is UNSET else (actions, after)

    def policy_data(self) -> PolicyData:
        """Return the policy as data; see :class:`rlox.deployment.Exportable`."""
        return building.describe_policy(self)

    def state_dict(self) -> dict[str, Any]:
        """Return networks, optimiser, envs, what the policy remembers, and the buffer."""
        return parts_state(self._parts)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore all parts."""
        load_parts_state(self._parts, state)
