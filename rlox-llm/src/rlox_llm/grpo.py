"""Group relative policy optimisation (Shao et al. 2024, "DeepSeekMath", sec. 4.1).

Each iteration samples G completions of each prompt and scores them; with r the rewards of a group,

    A_i = (r_i - mean(r)) / (std(r) + 1e-4)

is the advantage of every token of completion i, and ``num_iterations`` Adam steps are taken on the
loss of :func:`rlox_llm.losses.grpo_loss`.

Deviations from the paper, all of them TRL's defaults:

1. the loss is averaged over the tokens of the batch (``loss_type="dapo"``), not per completion;
2. the KL estimate is multiplied by the importance ratio, whose gradient makes it unbiased;
3. the reference stays fixed, unless ``sync_ref_model`` lets it follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
import torch
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset, resolve_config
from rlox.config.schedules import ScheduleOption
from rlox.errors import ConfigError
from rlox.evaluation import MAX_STEPS, EvaluationResult
from rlox.logging import LoggerCallback
from rlox.nn import torch_threads
from rlox.training.hooks import Hooks, StopTraining
from torch import Tensor

from rlox_llm.advantages import flat_groups, group_advantages
from rlox_llm.building import ModuleOrFolder
from rlox_llm.configs import GRPOConfig
from rlox_llm.generation import Generator, complete, require_engine_options
from rlox_llm.generators import ModelGenerator, make_generator
from rlox_llm.language import LanguageAlgorithm
from rlox_llm.models import CausalModel
from rlox_llm.prompts import Prompt, fitting_prompts
from rlox_llm.rewards import RewardFn, RewardFunctions
from rlox_llm.rollouts import GRPORollout, logps_in_parts, loss_of_part
from rlox_llm.sampling import Completions, Sampling, warn_of_copies, warn_of_truncation
from rlox_llm.state import move_reference, require_own_weights
from rlox_llm.tables import log_completions

if TYPE_CHECKING:
    from rlox_llm.option_types import GRPOOptions, Unpack

__all__ = ["GRPO", "GRPOMetrics"]


@dataclass(frozen=True)
class GRPOMetrics:
    """What one iteration reports; losses and ratios are means over its gradient steps."""

    loss: float
    """The loss; without a KL term and on the first step 0 by construction, or close to it."""
    mean_reward: float
    """Mean reward of the sampled completions that got one."""
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
    learning_rate: float
    """Adam's step size."""
    optional: Mapping[str, float]
    """``entropy`` per token in nats, with ``entropy_coef``; ``engine_ratio``, see the rollout."""


@final
class GRPO(LanguageAlgorithm):
    """Group relative policy optimisation of a language model.

    Args:
        model: the model to train, see :class:`rlox_llm.language.LanguageAlgorithm`.
        ref_model: the reference, a frozen copy; ``None`` if ``kl_coef`` is 0, or the model has an
            adapter or comes from a folder.
        reward_fn: one function, or several, of N whole rows of token ids (prompt and completion)
            and the prompts (N, P) they begin with; returns N rewards. See
            :class:`rlox_llm.rewards.RewardFunctions`.
        group_size: completions of each prompt.
        learning_rate: Adam's step size.
        kl_coef: weight of the KL to the reference.
        max_new_tokens: most tokens of a completion.
        callbacks: hooks into training.
        logger: receives the metrics of every iteration.
        dataset: prompts that ``train(n)`` takes, see :func:`rlox_llm.prompts.parse_prompts`.
        tokenizer: one of transformers, for texts and chats; ``None`` takes that of the model's
            folder.
        generator: who samples completions, in the place of ``sampler``.
        schedules: callables ``gradient_steps -> value`` for ``learning_rate``, not saved.
        config: a :class:`GRPOConfig`, a mapping, or the path of a YAML or JSON file.
        config_kwargs: options of :class:`GRPOConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown or out of range, or a needed argument is missing.
    """

    name: ClassVar[str] = "grpo"
    config_class: ClassVar[type[Config]] = GRPOConfig
    config: GRPOConfig

    def __init__(
        self,
        model: ModuleOrFolder,
        ref_model: ModuleOrFolder | None = None,
        reward_fn: RewardFn | Sequence[RewardFn] | None = None,
        group_size: int | Unset = UNSET,
        learning_rate: ScheduleOption | Unset = UNSET,
        kl_coef: float | Unset = UNSET,
        max_new_tokens: int | Unset = UNSET,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
        *,
        dataset: Any = None,
        tokenizer: Any = None,
        generator: Generator | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        config: GRPOConfig | Mapping[str, Any] | str | Path | None = None,
        **config_kwargs: Unpack[GRPOOptions],
    ) -> None:
        cfg = resolve_config(
            GRPOConfig, config, group_size=group_size, learning_rate=learning_rate,
            kl_coef=kl_coef, max_new_tokens=max_new_tokens, **config_kwargs,
        )  # fmt: skip
        if reward_fn is None:
            raise ConfigError(
                "'grpo' needs reward_fn=..., a function of completions and prompts; on the command "
                "line --reward module:function"
            )
        super().__init__(
            model, ref_model, dataset, config=cfg, callbacks=callbacks, logger=logger,
            tokenizer=tokenizer, schedules=schedules, with_reference=cfg.kl_coef > 0,
            without_reference="kl_coef=0, which needs none",
        )  # fmt: skip
        self.reward_fn = RewardFunctions(reward_fn, cfg.reward_weights)
        self.sampling = Sampling.of(self.config, self.eos)
        if cfg.sync_ref_model:
            require_own_weights(self.reference)
        self.generator = generator or make_generator(self.config.sampler, self.policy)
        if not self.generator.in_process:
            require_engine_options(self.config)
        self._checked = self._truncation_reported = False

    @property
    def rows_at_once(self) -> int:
        """Prompts of one rollout."""
        return int(self.config.prompts_per_rollout)

    @property
    def steps_per_iteration(self) -> int:
        """Gradient steps on one rollout."""
        return int(self.config.num_iterations)

    def parse(self, rows: Any) -> list[Prompt]:
        """Return prompts; see :func:`rlox_llm.prompts.fitting_prompts`."""
        return fitting_prompts(rows, self.policy, self.texts, self.config.max_new_tokens)

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
                    self._move_reference()
                    hooks.train_batch(lambda: losses[-1])
            except StopTraining:
                pass
        done = rollout.completions
        self.count(hooks, len(prompts), len(done.tokens), int(done.lengths.sum()))
        rewards = [None if np.isnan(reward) else float(reward) for reward in rollout.rewards]
        columns = {"reward": rewards, "advantage": rollout.advantages.tolist()}
        log_completions(hooks, self.config, self.texts, done, columns)
        means = {name: float(np.mean([step[name] for step in losses])) for name in losses[0]}
        optional = {name: means.pop(name) for name in ("entropy",) if name in means}
        if rollout.engine_ratio is not None:
            optional["engine_ratio"] = float(rollout.engine_ratio.mean())
        return GRPOMetrics(
            mean_reward=float(np.nanmean(rollout.rewards)),
            reward_std=float(np.nanstd(rollout.rewards)),
            flat_groups=flat_groups(rollout.rewards, self.config.group_size),
            completion_length=float(done.lengths.double().mean()),
            truncated=float((~done.ended).double().mean()),
            optional=optional,
            **means,
        )

    def _roll_out(self, prompts: Sequence[Prompt]) -> GRPORollout:
        cfg = self.config
        done = complete(
            self.generator, self.policy, [prompt.ids for prompt in prompts], self.sampling,
            self.streams.torch("completions"), cfg.group_size, version=self.clock.gradient_steps,
        )  # fmt: skip
        columns = [prompt.columns for prompt in prompts for _ in range(cfg.group_size)]
        rewards = self.reward_fn(done, self.pad, columns, self.texts)
        if not self._checked and cfg.group_size > 1:
            self._checked = True
            warn_of_copies(done, cfg.group_size, own=isinstance(self.generator, ModelGenerator))
        if not self._truncation_reported and not bool(done.ended.any()):
            self._truncation_reported = True
            warn_of_truncation(done, masked=cfg.mask_truncated_completions)
        mask = done.mask & done.ended[:, None] if cfg.mask_truncated_completions else done.mask
        ref_logps = old_logps = engine_ratio = None
        if cfg.kl_coef:
            assert self.reference is not None
            ref_logps = self._logps_without_gradient(self.reference, done)
        if cfg.num_iterations > 1 or not self.generator.in_process:
            old_logps = self._logps_without_gradient(self.policy, done)
        if not self.generator.in_process and old_logps is not None and done.logps is not None:
            ratio = (old_logps - done.logps).sum(1).exp()
            engine_ratio = ratio.masked_fill(ratio > cfg.engine_ratio_max, 0.0)
        advantages = torch.as_tensor(
            group_advantages(rewards, cfg.group_size, cfg.scale_rewards, cfg.leave_one_out),
            device=self.policy.device,
        )
        return GRPORollout(done, rewards, advantages, mask, ref_logps, old_logps, engine_ratio)

    def _logps_without_gradient(self, model: CausalModel, done: Completions) -> Tensor:
        return logps_in_parts(model, done, self.config.temperature, self.chunks(len(done.tokens)))

    def _update(self, rollout: GRPORollout) -> dict[str, float]:
        """Take one gradient step on a rollout; parts of it add up to the loss of all of it."""
        cfg = self.config
        n_tokens = rollout.mask.sum().clamp(min=1)
        n_rows = len(rollout.mask)
        of_rows = cfg.importance_sampling_level == "sequence"
        n_ratios = rollout.mask.any(1).sum().clamp(min=1) if of_rows else n_tokens
        if cfg.filter_flat_groups:
            rollout = rollout.select(rollout.advantages.nonzero()[:, 0])
        done, mask = rollout.completions, rollout.mask
        optimizer = self.optimizers["model"]
        sums = {"loss": 0.0, "kl": 0.0, "clip_fraction": 0.0, "learning_rate": self.learning_rate}
        with self.learning():
            for part in self.chunks(len(done.tokens)):
                scores = self.policy.score(
                    done.prompts[part], done.tokens[part], done.mask[part], cfg.temperature,
                    entropies=cfg.entropy_coef > 0,
                )  # fmt: skip
                loss, terms = loss_of_part(
                    rollout, part, scores.logps, cfg, num_tokens=n_tokens, num_completions=n_rows
                )
                if scores.entropies is not None:
                    entropy = (scores.entropies * mask[part]).sum() / n_tokens
                    loss = loss - cfg.entropy_coef * entropy
                    sums["entropy"] = sums.get("entropy", 0.0) + float(entropy.detach())
                optimizer.backward(loss)
                share = float(mask[part].sum() / n_tokens)
                sums["loss"] += float(loss.detach())
                sums["kl"] += share * float(terms.kl)
                ratios = mask[part].any(1) if of_rows else mask[part]
                sums["clip_fraction"] += float(ratios.sum() / n_ratios * terms.clip_fraction)
        optimizer.apply(sums["learning_rate"])
        return sums

    def _move_reference(self) -> None:
        cfg = self.config
        step = self.clock.gradient_steps + 1
        if cfg.sync_ref_model and step % cfg.ref_model_sync_steps == 0:
            assert self.reference is not None
            move_reference(self.reference, self.policy, cfg.ref_model_mixup_alpha)

    def run_episodes(
        self,
        env: Any = None,
        *,
        n_episodes: int | None = 10,
        deterministic: bool = True,
        seed: int | None = None,
        max_steps: int = MAX_STEPS,
    ) -> EvaluationResult:
        """Return the reward of one completion of each prompt, and its length in tokens.

        Completions without a reward are left out.
        """
        prompts = self.evaluated_rows(env, n_episodes)
        sampling = Sampling.of(self.config, self.eos, deterministic)
        done = self.completions(prompts, sampling, self.evaluation_generator(seed))
        rewards = self.reward_fn(done, self.pad, [each.columns for each in prompts], self.texts)
        kept = ~np.isnan(rewards)
        return EvaluationResult(rewards[kept], done.lengths.cpu().numpy()[kept])
