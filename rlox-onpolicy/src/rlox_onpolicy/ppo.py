"""Proximal policy optimisation with the clipped surrogate (Schulman et al. 2017, algorithm 1).

Each iteration collects T steps of N envs, estimates advantages (eq. 11 and 12, the truncated form
of GAE) and takes several epochs of minibatch steps on eq. 9.

Deviations from the paper, all from common implementations (Huang et al. 2022):
    1. advantages are standardised within each minibatch;
    2. the gradient's norm is clipped;
    3. policy and value function share no parameters;
    4. where an episode was truncated, the value of its true final observation is bootstrapped from;
    5. optional: value clip, dual clip (Ye et al. 2020), stop at a target KL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt
import torch
from rlox.acting import predict
from rlox.algorithm import Algorithm
from rlox.batch import RolloutBatch, RolloutMinibatch
from rlox.callbacks import Callback
from rlox.collectors import RolloutCollector
from rlox.config import UNSET, Config, Unset, resolve_config
from rlox.envs import fixed_env_count
from rlox.errors import ConfigError, suggest
from rlox.logging import LoggerCallback
from rlox.losses import PPOTerms, ppo_loss
from rlox.nn import (
    FlatAdam,
    find_device,
    load_module_state,
    module_state,
    torch_threads,
)
from rlox.policies import make_policy
from rlox.runner import Hooks
from rlox.schedules import evaluate_schedule
from torch import Tensor, nn

from rlox_onpolicy.configs import PPOConfig

__all__ = ["PPO", "PPOMetrics"]

SCHEDULED = ("learning_rate", "clip_eps", "ent_coef")


@dataclass(frozen=True)
class PPOMetrics:
    """What one iteration reports; losses are means over its minibatches."""

    mean_reward: float
    """Mean return of the last 100 finished episodes; NaN before the first."""
    mean_episode_length: float
    """Mean length of the same episodes in env steps."""
    policy_loss: float
    value_loss: float
    entropy: float
    """In nats."""
    approx_kl: float
    """Schulman's k3 estimate of KL(old policy, policy) in nats."""
    clip_fraction: float
    """Share of steps whose ratio lay outside the clip range."""
    explained_variance: float
    """1 - Var(returns - values) / Var(returns) of the rollout; NaN for constant returns."""
    learning_rate: float


@final
class PPO(Algorithm):
    """Proximal policy optimisation for discrete and continuous actions.

    Args:
        env_id: a gymnasium id, a callable that makes an env, an env or a vector env.
        n_envs: number of envs stepped together; an env that cannot be copied brings its own.
        seed: fixes every random draw; none: drawn from entropy.
        policy: a ``torch.nn.Module`` with the methods of :class:`rlox.protocols.OnPolicyActor`;
            if it has an attribute ``generator`` that is none, it gets the run's random stream to
            draw from. None: MLPs that fit the env's spaces.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training.
        config: a :class:`PPOConfig`, a mapping, or the path of a YAML or JSON file.
        schedules: callables ``env_steps -> value`` for ``learning_rate``, ``clip_eps`` or
            ``ent_coef``; they win over the config and are not saved in checkpoints.
        config_kwargs: options of :class:`PPOConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown or out of range.
        EnvError: the env cannot be built.
        SpaceError: the env's spaces need a ``policy`` of your own.
    """

    name: ClassVar[str] = "ppo"
    config_class: ClassVar[type[Config]] = PPOConfig

    def __init__(
        self,
        env_id: Any,
        n_envs: int | Unset = UNSET,
        seed: int | Unset | None = UNSET,
        policy: nn.Module | None = None,
        logger: LoggerCallback | None = None,
        callbacks: Iterable[Callback] | None = None,
        *,
        config: PPOConfig | Mapping[str, Any] | str | Path | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        **config_kwargs: Any,
    ) -> None:
        resolved = resolve_config(PPOConfig, config, n_envs=n_envs, seed=seed, **config_kwargs)
        resolved = _fit_to_env(resolved, env_id)
        super().__init__(env_id, config=resolved, callbacks=callbacks, logger=logger)
        cfg: PPOConfig = self.config
        self.schedules = dict(schedules or {})
        for unknown in self.schedules.keys() - SCHEDULED:
            raise ConfigError(f"no schedule is named '{unknown}'{suggest(unknown, SCHEDULED)}")
        self.device = find_device(cfg.device)
        self.collector = RolloutCollector(
            env_id,
            n_envs=cfg.n_envs,
            seed=self.streams.seeds("envs", 1)[0],
            device=self.device,
            gamma=cfg.gamma,
            gae_lambda=cfg.gae_lambda,
            backend=cfg.env_backend,
            vectorization=cfg.vectorization,
        )
        self.resources.callback(self.collector.close)
        env = self.collector.env
        self.policy: Any = policy or make_policy(
            env.observation_space,
            env.action_space,
            hidden=cfg.hidden,
            generator=self.streams.torch("policy"),
        )
        if getattr(self.policy, "generator", ...) is None:
            setattr(self.policy, "generator", self.streams.torch("policy"))  # noqa: B010
        self.policy.to(self.device)
        self.optimizer = FlatAdam(
            self.policy,
            learning_rate=self._scheduled("learning_rate"),
            eps=cfg.adam_eps,
            max_grad_norm=cfg.max_grad_norm,
        )

    def iterate(self, hooks: Hooks) -> PPOMetrics:
        """Collect T steps of N envs, then take several epochs of minibatch steps."""
        cfg: PPOConfig = self.config
        rates = {name: self._scheduled(name) for name in SCHEDULED}
        collected: list[PPOTerms] = []
        with torch_threads(cfg.torch_threads):
            batch = self.collector.collect(self.policy, cfg.n_steps, hooks.env_step)
            hooks.rollout_end(batch)
            for minibatch in self._minibatches(batch):
                loss, terms = self._loss(minibatch, rates["clip_eps"], rates["ent_coef"])
                collected.append(terms)
                if cfg.target_kl is not None and terms.approx_kl > 1.5 * cfg.target_kl:
                    break
                self.optimizer.step(loss, rates["learning_rate"])
                hooks.train_batch(lambda terms=terms: _floats([terms]))  # type: ignore[misc]
        variance = batch.returns.var()
        explained = 1 - (batch.returns - batch.values).var() / variance
        return PPOMetrics(
            mean_reward=self.collector.statistics.mean_return,
            mean_episode_length=self.collector.statistics.mean_length,
            explained_variance=float(explained) if variance > 0 else float("nan"),
            learning_rate=rates["learning_rate"],
            **_floats(collected),
        )

    def _minibatches(self, batch: RolloutBatch) -> Iterator[RolloutMinibatch]:
        for _ in range(self.config.n_epochs):
            yield from batch.sample_minibatches(
                self.config.batch_size, generator=self.streams.torch("minibatches")
            )

    def _loss(
        self, minibatch: RolloutMinibatch, clip_eps: float, ent_coef: float
    ) -> tuple[Tensor, PPOTerms]:
        cfg: PPOConfig = self.config
        advantages = minibatch.advantages
        if cfg.normalize_advantages:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        log_probs, entropy = self.policy.get_logprob_and_entropy(minibatch.obs, minibatch.actions)
        return ppo_loss(
            log_probs,
            entropy,
            self.policy.get_value(minibatch.obs),
            minibatch.log_probs,
            minibatch.values,
            advantages,
            minibatch.returns,
            clip_eps=clip_eps,
            vf_coef=cfg.vf_coef,
            ent_coef=ent_coef,
            vf_clip_eps=cfg.vf_clip_eps,
            dual_clip=cfg.dual_clip,
        )

    def _scheduled(self, name: str) -> float:
        schedule = self.schedules.get(name, getattr(self.config, name))
        return evaluate_schedule(schedule, self.clock.env_steps, self.clock.target_env_steps)

    def predict(self, obs: npt.ArrayLike, deterministic: bool = True) -> Any:
        """Return an action for one observation, or actions for a batch; see ``Algorithm``."""
        spaces = self.collector.env.observation_space, self.collector.env.action_space
        with torch_threads(self.config.torch_threads):
            return predict(
                self.policy,
                *spaces,
                obs,
                deterministic,
                generator=self.streams.torch("predict"),
                device=self.device,
            )

    def state_dict(self) -> dict[str, Any]:
        """Return policy, optimiser and collector."""
        return {
            "policy": module_state(self.policy),
            "optimizer": self.optimizer.state_dict(),
            "collector": self.collector.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore policy, optimiser and collector."""
        load_module_state(self.policy, state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.collector.load_state_dict(state["collector"])


def _fit_to_env(config: PPOConfig, env: Any) -> PPOConfig:
    """Return the config with the number of envs that ``env`` is, where it cannot be copied.

    Unless the caller chose ``n_steps``, rollouts keep their number of rows.
    """
    count = fixed_env_count(env)
    if count is None or count == config.n_envs or "n_envs" in config.model_fields_set:
        return config
    n_steps = config.n_steps
    if "n_steps" not in config.model_fields_set:
        n_steps = max(config.n_envs * config.n_steps // count, 1)
    return config.replace(n_envs=count, n_steps=n_steps)


def _floats(terms: list[PPOTerms]) -> dict[str, float]:
    """Return the means over minibatches, in one transfer from the device."""
    names = [field.name for field in fields(PPOTerms)]
    means = torch.stack([torch.stack(list(vars(t).values())) for t in terms]).mean(0)
    return dict(zip(names, np.asarray(means.cpu(), np.float64).tolist(), strict=True))
