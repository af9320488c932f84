"""Group relative policy optimisation (Shao et al. 2024, "DeepSeekMath", sec. 4.1).

Each iteration samples G completions of each prompt and scores them; with r the rewards of a group,

    A_i = (r_i - mean(r)) / (std(r) + 1e-4)

is the advantage of every token of completion i. Then ``num_iterations`` Adam steps minimise
:func:`rlox_llm.losses.grpo_loss`.

Deviations from the paper, all TRL's defaults:

1. the loss is averaged over the tokens of the batch (``loss_type="dapo"``), not per completion;
2. the KL estimate is multiplied by the importance ratio, whose gradient makes it unbiased;
3. the reference stays fixed, unless ``sync_ref_model`` lets it follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
import numpy.typing as npt
import rlox
import torch
from rlox.config.composition import selection
from rlox.envs.evaluation import EvaluationResult
from rlox.errors import ConfigError
from rlox.networks import polyak_update
from rlox.training.hooks import Hooks, StopTraining
from torch import Tensor

from rlox_llm.configs import GRPOConfig
from rlox_llm.generation import Completions, warn_of_copies, warn_of_truncation
from rlox_llm.generators import ModelGenerator
from rlox_llm.language import SamplingAlgorithm
from rlox_llm.losses import grpo_loss
from rlox_llm.losses.policy import policy_loss
from rlox_llm.models import CausalModel
from rlox_llm.prompts import Prompt
from rlox_llm.rewards import RewardFunctions

if TYPE_CHECKING:
    from rlox_llm.option_types import GRPOArguments, Unpack

LOSS_OPTIONS = (
    "importance_sampling_level", "epsilon", "epsilon_high", "delta", "kl_estimator",
    "use_bias_correction_kl",
)  # fmt: skip
"""Options with the names of arguments of :func:`rlox_llm.losses.grpo_loss`."""

EPS = 1e-4
"""Added to standard deviations, as in TRL."""


@dataclass(frozen=True)
class GRPOMetrics:
    """Metrics of one iteration; losses and ratios are means over its gradient steps."""

    loss: float
    """The loss; in a first step without a KL term 0 by construction, or close to it."""
    mean_reward: float
    """Mean reward of the sampled completions with a reward."""
    kl: float
    """Mean estimate of the KL to the reference per token, in nats; 0 with ``kl_coef=0``."""
    reward_std: float
    """Standard deviation of the rewards over the rollout."""
    flat_groups: float
    """Share of groups whose rewards are all equal, which teach nothing."""
    clip_fraction: float
    """Share of tokens, or completions, whose ratio the loss clips."""
    completion_length: float
    """Mean length of a completion in tokens."""
    truncated: float
    """Share of completions without an EOS; 0 if there is no EOS token."""
    learning_rate: float
    """Adam's step size."""
    optional: Mapping[str, float]
    """``entropy`` per token in nats, with ``entropy_coef``; ``engine_ratio``, see the rollout."""


@dataclass(frozen=True)
class GRPORollout:
    """Completions of one iteration with the quantities computed from them."""

    completions: Completions
    rewards: npt.NDArray[np.float64]
    """(N,), NaN for completions without a reward."""
    advantages: Tensor
    """(N,)"""
    mask: Tensor
    """(N, T) True at the tokens that the loss counts."""
    ref_logps: Tensor | None
    """(N, T)"""
    old_logps: Tensor | None
    """(N, T); ``None`` with a single gradient step, where every ratio is 1."""
    engine_ratio: Tensor | None
    """(N,) ratio of each completion's probability to the sampling engine's, 0 beyond
    ``engine_ratio_max``; ``None`` if this process sampled."""

    def select(self, index: Tensor) -> GRPORollout:
        """Return the completions at ``index``."""
        tensors = {
            name: each[index] for name, each in vars(self).items() if isinstance(each, Tensor)
        }
        rewards = self.rewards[index.numpy(force=True)]
        return replace(self, completions=self.completions.select(index), rewards=rewards, **tensors)


@final
class GRPO(SamplingAlgorithm):
    """Group relative policy optimisation of a language model.

    Args:
        ref_model: the reference, a frozen copy; ``None`` if ``kl_coef`` is 0, or the model has an
            adapter or comes from a folder.
        reward_fn: one or several functions of N whole rows of token ids (prompt and completion)
            and their prompts (N, P), which return N rewards. See
            :class:`rlox_llm.rewards.RewardFunctions`.
        dataset: prompts for ``train(n)``, see :func:`rlox_llm.prompts.parse_prompts`.
        generator: a sampler, used instead of ``sampler``.
    """

    name = "grpo"
    config_class = GRPOConfig
    config: GRPOConfig
    return_name = "reward"
    functions: ClassVar = {"reward_fn": "a function of completions and prompts"}
    without_reference = "kl_coef=0, which needs none"
    arguments = (
        "model", "ref_model", "reward_fn", "group_size", "learning_rate", "kl_coef",
        "max_new_tokens", "callbacks", "logger", "generator",
    )  # fmt: skip
    if TYPE_CHECKING:

        def __init__(self, *given: Any, **options: Unpack[GRPOArguments]) -> None: ...

    @property
    def needs_reference(self) -> bool:
        """Whether there is a KL term."""
        return self.config.kl_coef > 0

    @property
    def steps_per_iteration(self) -> int:
        """Gradient steps on one rollout."""
        return int(self.config.num_iterations)

    def prepare(self, given: Mapping[str, Any]) -> None:
        """Store reward functions and sampler, and find the loss."""
        cfg = self.config
        self.reward_fn = RewardFunctions(given["reward_fn"], cfg.reward_weights)
        self._loss = policy_loss(cfg.loss_type, selection(cfg, "loss_type").options)
        if cfg.sync_ref_model and self.reference is not None and self.reference.adapter_off:
            raise ConfigError(
                "sync_ref_model moves a reference with weights of its own, but this reference is "
                "the model without its adapter; leave it out, or pass ref_model="
            )
        super().prepare(given)
        if not self.generator.in_process:
            if cfg.top_k or cfg.top_p < 1 or cfg.min_p:
                raise ConfigError(
                    "with top_k, top_p or min_p an engine's log-probabilities are those of the "
                    "filtered tokens, without a ratio to the model's; leave them out"
                )
            if cfg.loss_type == "vespo":
                raise ConfigError(
                    "loss_type='vespo' cannot weight an engine's completions; take 'dapo'"
                )
        self._checked = self._truncation_reported = False

    def iterate(self, hooks: Hooks) -> GRPOMetrics:
        """Sample, score, and take ``num_iterations`` gradient steps."""
        prompts = self.next_rows()
        losses = []
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
        self.hand_on_completions(hooks, done, columns)
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
        done = self.sample(prompts, cfg.group_size)
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

    @torch.no_grad()
    def _logps_without_gradient(self, model: CausalModel, done: Completions) -> Tensor:
        """Return the log-probabilities (N, T) of completions under a model, without dropout."""
        with model.mode(training=False):
            found = [
                model.logps(
                    done.prompts[part], done.tokens[part], done.mask[part], self.config.temperature
                )
                for part in self.chunks(len(done.tokens))
            ]
        return torch.cat(found)

    def _update(self, rollout: GRPORollout) -> dict[str, float]:
        """Take one gradient step on a rollout."""
        places = torch.arange(len(rollout.mask), device=rollout.mask.device)
        if self.config.filter_flat_groups:
            places = rollout.advantages.nonzero()[:, 0]
        sums = self.learn(len(places), lambda part: self._loss_of(rollout, places[part]))
        return {"loss": 0.0, "kl": 0.0, "clip_fraction": 0.0, **sums}

    def _loss_of(self, rollout: GRPORollout, places: Tensor) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of some completions of a rollout, and its terms."""
        cfg, part = self.config, rollout.select(places)
        done, n_tokens = part.completions, rollout.mask.sum().clamp(min=1)
        scores = self.policy.score(
            done.prompts, done.tokens, done.mask, cfg.temperature, entropies=cfg.entropy_coef > 0
        )
        loss, terms = grpo_loss(
            scores.logps, part.old_logps, part.ref_logps, part.advantages, part.mask,
            loss_type=self._loss, beta=cfg.kl_coef, max_completion_length=cfg.max_new_tokens,
            num_tokens=n_tokens, num_completions=len(rollout.mask), engine_ratio=part.engine_ratio,
            **{name: getattr(cfg, name) for name in LOSS_OPTIONS},
        )  # fmt: skip
        numbers = {"kl": float(part.mask.sum() / n_tokens) * float(terms.kl)}
        ratios, n_ratios = part.mask, n_tokens
        if cfg.importance_sampling_level == "sequence":
            ratios, n_ratios = ratios.any(1), rollout.mask.any(1).sum().clamp(min=1)
        numbers["clip_fraction"] = float(ratios.sum() / n_ratios * terms.clip_fraction)
        if scores.entropies is not None:
            entropy = (scores.entropies * part.mask).sum() / n_tokens
            loss = loss - cfg.entropy_coef * entropy
            numbers["entropy"] = float(entropy.detach())
        return loss, {"loss": float(loss.detach()), **numbers}

    @torch.no_grad()
    def _move_reference(self) -> None:
        """Move the reference towards the policy, if it is due at this step."""
        cfg, step = self.config, self.clock.gradient_steps + 1
        if cfg.sync_ref_model and step % cfg.ref_model_sync_steps == 0:
            assert self.ref_model is not None
            polyak_update(self.model, self.ref_model, cfg.ref_model_mixup_alpha)

    def judge(self, rows: Any, deterministic: bool, seed: int | None) -> EvaluationResult:
        """Return the reward of one completion of each prompt, and its length in tokens.

        Completions without a reward are left out.
        """
        stream = self.evaluation_generator(seed)
        done = self.sample_from(self.policy, rows, deterministic, stream)
        rewards = self.reward_fn(done, self.pad, [each.columns for each in rows], self.texts)
        kept = ~np.isnan(rewards)
        return EvaluationResult(rewards[kept], done.lengths.cpu().numpy()[kept])


def group_advantages(
    rewards: npt.NDArray[np.float64], group_size: int, scale: str, leave_one_out: bool
) -> npt.NDArray[Any]:
    """Return the advantages (N,) of whole groups of completions.

    Completions without a reward have an advantage of 0, and means and standard deviations ignore
    them.

    Args:
        rewards: (N,), NaN without a reward.
        group_size: completions of each prompt; a single one has an advantage of 0.
        scale: deviations from the group's mean are divided by the sample standard deviation, plus
            1e-4, of the ``"group"`` or the ``"batch"``, or not at all (``"none"``).
        leave_one_out: subtract the mean of the group's other rewards instead, without division.
    """
    rewarded = ~np.isnan(rewards)
    if not rewarded.all():
        found = np.zeros(len(rewards))
        within = "none" if scale == "batch" else scale
        for start in range(0, len(rewards), group_size):
            kept = start + rewarded[start : start + group_size].nonzero()[0]
            if len(kept):
                found[kept] = group_advantages(rewards[kept], len(kept), within, leave_one_out)
        if scale == "batch" and not leave_one_out:
            found /= rewards[rewarded].std(ddof=int(rewarded.sum() > 1)) + EPS
        return found
    advantages: Any = rlox.compute_batch_group_advantages
    if leave_one_out:
        return np.asarray(
            advantages(rewards, group_size, scale="none") * (group_size / max(group_size - 1, 1))
        )
    ddof = int(group_size > 1)
    return np.asarray(advantages(rewards, group_size, ddof=ddof, eps=EPS, scale=scale))


def flat_groups(rewards: npt.NDArray[np.float64], group_size: int) -> float:
    """Return the share of groups whose rewards are all equal, or missing.

    Args:
        rewards: (N,), NaN without a reward.
        group_size: completions of each prompt.
    """
    groups = rewards.reshape(-1, group_size)
    without = np.isnan(groups)
    highest = np.where(without, -np.inf, groups).max(1)
    return float((highest <= np.where(without, np.inf, groups).min(1)).mean())
