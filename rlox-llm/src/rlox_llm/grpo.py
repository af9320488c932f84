"""Group relative policy optimisation (Shao et al. 2024, "DeepSeekMath", sec. 4.1).

Each iteration samples G completions of each prompt and scores them; with r the rewards of a group,

    A_i = (r_i - mean(r)) / (std(r) + 1e-4)

is the advantage of every token of completion i, and ``num_iterations`` Adam steps are taken on the
loss of :func:`rlox_llm.losses.grpo_loss`.

Deviations from the paper, all of them TRL's defaults:

1. the loss is averaged over the tokens of the batch (``loss_type="dapo"``), not per completion;
2. the KL estimate is multiplied by the importance ratio, whose gradient makes it unbiased;
3. the reference stays fixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import torch
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset, resolve_config
from rlox.errors import ConfigError
from rlox.evaluation import MAX_STEPS, EvaluationResult
from rlox.logging import LoggerCallback
from rlox.nn import torch_threads
from rlox.training.hooks import Hooks, StopTraining
from torch import Tensor, nn

from rlox_llm.configs import GRPOConfig
from rlox_llm.language import LanguageAlgorithm
from rlox_llm.losses import grpo_loss
from rlox_llm.prompts import parse_rows
from rlox_llm.rewards import RewardFn, RewardFunctions, group_advantages
from rlox_llm.sampling import Completions, Sampling, sample, warn_of_copies

__all__ = ["GRPO", "GRPOMetrics", "GRPORollout"]


@dataclass(frozen=True)
class GRPOMetrics:
    """What one iteration reports; losses and ratios are means over its gradient steps."""

    loss: float
    """The loss; without a KL term and on the first step 0 by construction, or close to it."""
    mean_reward: float
    """Mean reward of the sampled completions."""
    kl: float
    """Mean estimate of the KL to the reference per token, in nats; 0 with ``kl_coef=0``."""
    reward_std: float
    """Standard deviation of the rewards over the rollout."""
    flat_groups: float
    """Share of groups whose rewards are all equal, which teach nothing."""
    clip_fraction: float
    """Share of tokens, or completions, whose ratio the loss clips."""
    completion_length: float
    """Mean tokens of a completion."""
    truncated: float
    """Share of completions that no EOS ended; 0 if there is no EOS token."""
    prompts: float
    """Prompts learnt from so far."""
    completions: float
    """Completions learnt from so far."""
    tokens: float
    """Tokens of completions learnt from so far."""


@dataclass(frozen=True)
class GRPORollout:
    """Completions of one iteration with what was made of them."""

    completions: Completions
    rewards: np.ndarray[Any, np.dtype[np.float64]]
    """(N,)"""
    advantages: Tensor
    """(N,)"""
    mask: Tensor
    """(N, T) True at the tokens that the loss counts."""
    ref_logps: Tensor | None
    """(N, T)"""
    old_logps: Tensor | None
    """(N, T); ``None`` if one gradient step learns from all, so that every ratio is 1."""


@final
class GRPO(LanguageAlgorithm):
    """Group relative policy optimisation of a language model.

    Args:
        model: the model to train, see :class:`rlox_llm.language.LanguageAlgorithm`.
        ref_model: the reference, a frozen copy; ``None`` if ``kl_coef`` is 0.
        reward_fn: one function, or several, of N whole rows of token ids (prompt and completion)
            and the prompts (N, P) they begin with; returns N rewards.
        group_size: completions of each prompt.
        learning_rate: Adam's step size.
        kl_coef: weight of the KL to the reference.
        max_new_tokens: most tokens of a completion.
        callbacks: hooks into training.
        logger: receives the metrics of every iteration.
        dataset: prompts that ``train(n)`` takes.
        config: a :class:`GRPOConfig`, a mapping, or the path of a YAML or JSON file.
        config_kwargs: options of :class:`GRPOConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown or out of range, or a needed argument is missing.
    """

    name: ClassVar[str] = "grpo"
    config_class: ClassVar[type[Config]] = GRPOConfig

    def __init__(
        self,
        model: nn.Module,
        ref_model: nn.Module | None = None,
        reward_fn: RewardFn | Sequence[RewardFn] | None = None,
        group_size: int | Unset = UNSET,
        learning_rate: float | Unset = UNSET,
        kl_coef: float | Unset = UNSET,
        max_new_tokens: int | Unset = UNSET,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
        *,
        dataset: Any = None,
        config: GRPOConfig | Mapping[str, Any] | str | Path | None = None,
        **config_kwargs: Any,
    ) -> None:
        cfg = resolve_config(
            GRPOConfig, config, group_size=group_size, learning_rate=learning_rate,
            kl_coef=kl_coef, max_new_tokens=max_new_tokens, **config_kwargs,
        )  # fmt: skip
        if reward_fn is None:
            raise ConfigError("'grpo' needs reward_fn=..., a function of completions and prompts")
        if cfg.kl_coef and ref_model is None:
            raise ConfigError(
                f"kl_coef is {cfg.kl_coef}, which needs ref_model, a frozen copy of the model; "
                "pass it, or kl_coef=0"
            )
        if cfg.kl_estimator == "k1" and cfg.kl_coef and not cfg.use_bias_correction_kl:
            raise ConfigError(
                "the gradient of kl_estimator='k1' alone is 0 in expectation; leave "
                "use_bias_correction_kl on, or take 'k2' or 'k3'"
            )
        if cfg.loss_type == "cispo" and cfg.epsilon_high is None:
            raise ConfigError(
                "loss_type='cispo' needs epsilon_high, its largest ratio; 5.0 is common"
            )
        super().__init__(model, ref_model, dataset, config=cfg, callbacks=callbacks, logger=logger)
        self.reward_fn = RewardFunctions(reward_fn, cfg.reward_weights)
        self.sampling = Sampling.of(self.config, self.policy, self.eos)
        self._checked = False

    @property
    def rows_at_once(self) -> int:
        """Prompts of one rollout."""
        return int(self.config.prompts_per_rollout)

    @property
    def steps_per_iteration(self) -> int:
        """Gradient steps on one rollout."""
        return int(self.config.num_iterations)

    def parse(self, rows: Any) -> list[Tensor]:
        """Return prompts as rows of token ids; see :func:`rlox_llm.prompts.parse_rows`."""
        return parse_rows("prompts", rows, self.policy.device)

    def train_step(self, prompts: Any) -> dict[str, float]:
        """Sample completions of all prompts, learn from them, and return the metrics."""
        return self.step_on(self.parse(prompts))

    def iterate(self, hooks: Hooks) -> GRPOMetrics:
        """Sample, score, and take ``num_iterations`` gradient steps."""
        prompts = self.next_rows()
        losses = []
        with torch_threads(self.config.torch_threads):
            rollout = self._roll_out(prompts)
            hooks.rollout_end(batch=rollout)
            try:
                for _ in range(self.steps_per_iteration):
                    losses.append(self._update(rollout))
                    hooks.train_batch(lambda: losses[-1])
            except StopTraining:
                pass
        done = rollout.completions
        self.counts["prompts"] += len(prompts)
        self.counts["completions"] += len(done.tokens)
        self.counts["tokens"] += int(done.lengths.sum())
        groups = rollout.rewards.reshape(-1, self.config.group_size)
        means = {name: float(np.mean([step[name] for step in losses])) for name in losses[0]}
        return GRPOMetrics(
            mean_reward=float(rollout.rewards.mean()),
            reward_std=float(rollout.rewards.std()),
            flat_groups=float((groups == groups[:, :1]).all(1).mean()),
            completion_length=float(done.lengths.double().mean()),
            truncated=float((~done.ended).double().mean()),
            **means,
            **{name: float(count) for name, count in self.counts.items()},
        )

    def _roll_out(self, prompts: Sequence[Tensor]) -> GRPORollout:
        cfg: GRPOConfig = self.config
        stream = self.streams.torch("completions")
        done = sample(self.policy, prompts, self.sampling, stream, cfg.group_size)
        rewards = self.reward_fn(done, self.pad)
        if not self._checked and cfg.group_size > 1:
            self._checked = True
            warn_of_copies(done, cfg.group_size, self.sampling)
        mask = done.mask & done.ended[:, None] if cfg.mask_truncated_completions else done.mask
        ref_logps = old_logps = None
        with torch.no_grad():
            if cfg.kl_coef:
                assert self.reference is not None
                with self.reference.mode(training=False):
                    ref_logps = self._logps(self.reference, done)
            if cfg.num_iterations > 1:
                with self.policy.mode(training=False):
                    old_logps = self._logps(self.policy, done)
        advantages = torch.as_tensor(
            group_advantages(rewards, cfg.group_size, cfg.scale_rewards, cfg.leave_one_out),
            device=self.policy.device,
        )
        return GRPORollout(done, rewards, advantages, mask, ref_logps, old_logps)

    def _logps(self, model: Any, done: Completions) -> Tensor:
        parts = [
            model.logps(
                done.prompts[part], done.tokens[part], done.mask[part], self.config.temperature
            )
            for part in self.chunks(len(done.tokens))
        ]
        return torch.cat(parts)

    def _update(self, rollout: GRPORollout) -> dict[str, float]:
        """Take one gradient step on a rollout; parts of it add up to the loss of all of it."""
        cfg: GRPOConfig = self.config
        done, mask = rollout.completions, rollout.mask
        n_tokens = mask.sum().clamp(min=1)
        optimizer = self.optimizers["model"]
        sums = dict.fromkeys(("loss", "kl", "clip_fraction"), 0.0)
        with self.learning():
            for part in self.chunks(len(done.tokens)):
                logps = self.policy.logps(
                    done.prompts[part], done.tokens[part], done.mask[part], cfg.temperature
                )
                loss, terms = grpo_loss(
                    logps,
                    None if rollout.old_logps is None else rollout.old_logps[part],
                    None if rollout.ref_logps is None else rollout.ref_logps[part],
                    rollout.advantages[part],
                    mask[part],
                    loss_type=cfg.loss_type,
                    importance_sampling_level=cfg.importance_sampling_level,
                    epsilon=cfg.epsilon,
                    epsilon_high=cfg.epsilon_high,
                    delta=cfg.delta,
                    beta=cfg.kl_coef,
                    kl_estimator=cfg.kl_estimator,
                    use_bias_correction_kl=cfg.use_bias_correction_kl,
                    max_completion_length=cfg.max_new_tokens,
                    num_tokens=n_tokens,
                    num_completions=len(mask),
                )
                optimizer.backward(loss)
                share = float(mask[part].sum() / n_tokens)
                sums["loss"] += float(loss.detach())
                sums["kl"] += share * float(terms.kl)
                sums["clip_fraction"] += share * float(terms.clip_fraction)
        optimizer.apply(cfg.learning_rate)
        return sums

    def predict(self, obs: Any, deterministic: bool = True) -> Tensor:
        """Return whole rows (N, P + T), one completion of each prompt.

        Args:
            obs: prompts.
            deterministic: take the likeliest tokens instead of sampling; a model's own
                ``generate`` decides that itself.
        """
        sampling = Sampling.of(self.config, self.policy, self.eos, deterministic)
        stream = self.streams.torch("predict")
        return sample(self.policy, self.parse(obs), sampling, stream).padded(self.pad)

    def run_episodes(
        self,
        env: Any = None,
        *,
        n_episodes: int | None = 10,
        deterministic: bool = True,
        seed: int | None = None,
        max_steps: int = MAX_STEPS,
    ) -> EvaluationResult:
        """Return the reward of one completion of each prompt, and its length in tokens."""
        prompts = self.evaluated_rows(env, n_episodes)
        sampling = Sampling.of(self.config, self.policy, self.eos, deterministic)
        done = sample(self.policy, prompts, sampling, self.evaluation_generator(seed))
        return EvaluationResult(self.reward_fn(done, self.pad), done.lengths.cpu().numpy())
