"""Direct preference optimisation (Rafailov et al. 2023, eq. 7).

Each gradient step takes pairs of a chosen completion y_w and a rejected one y_l of a prompt x, and
minimises

    -log σ(β (log π(y_w|x) / π_ref(y_w|x) - log π(y_l|x) / π_ref(y_l|x)))

or another loss of :func:`rlox_llm.losses.dpo_loss`. Log-probabilities are summed over the tokens of
the completions, not of the prompts.

Deviation from the paper: Adam in place of RMSprop, without a warm-up of the step size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
import torch
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset, resolve_config
from rlox.config.schedules import ScheduleOption
from rlox.evaluation import MAX_STEPS, EvaluationResult
from rlox.logging import LoggerCallback
from rlox.nn import torch_threads
from rlox.training.hooks import Hooks, StopTraining
from torch import Tensor

from rlox_llm.building import ModuleOrFolder
from rlox_llm.configs import DPOConfig
from rlox_llm.pairs import (
    Pair,
    pairs_loss,
    parse_pairs,
    with_reference_logps,
    zip_pairs,
)
from rlox_llm.preference import PreferenceAlgorithm, require_preference_options
from rlox_llm.prompts import require_fit

if TYPE_CHECKING:
    from rlox_llm.option_types import DPOOptions, Unpack

__all__ = ["DPO", "DPOMetrics"]


@dataclass(frozen=True)
class DPOMetrics:
    """What one gradient step reports."""

    loss: float
    """The loss."""
    chosen_reward: float
    """Mean of β (log π - log π_ref) of the chosen completions."""
    rejected_reward: float
    """The same of the rejected completions."""
    accuracy: float
    """Share of pairs whose chosen completion has the higher reward."""
    margin: float
    """Mean difference of the two rewards."""
    learning_rate: float
    """Adam's step size."""


@final
class DPO(PreferenceAlgorithm):
    """Direct preference optimisation of a language model.

    Args:
        model: the model to train, see :class:`rlox_llm.language.LanguageAlgorithm`.
        ref_model: the reference, a frozen copy; ``None`` if the model has an adapter or comes from
            a folder.
        beta: how strongly the policy is held to the reference.
        learning_rate: Adam's step size.
        callbacks: hooks into training.
        logger: receives the metrics of every gradient step.
        dataset: pairs that ``train(n)`` takes, see :func:`rlox_llm.pairs.parse_pairs`.
        tokenizer: one of transformers, for texts and chats; ``None`` takes that of the model's
            folder.
        schedules: callables ``gradient_steps -> value`` for ``learning_rate``, not saved.
        config: a :class:`DPOConfig`, a mapping, or the path of a YAML or JSON file.
        config_kwargs: options of :class:`DPOConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown or out of range, or there is no reference.
    """

    name: ClassVar[str] = "dpo"
    config_class: ClassVar[type[Config]] = DPOConfig
    config: DPOConfig

    def __init__(
        self,
        model: ModuleOrFolder,
        ref_model: ModuleOrFolder | None = None,
        beta: float | Unset = UNSET,
        learning_rate: ScheduleOption | Unset = UNSET,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
        *,
        dataset: Any = None,
        tokenizer: Any = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        config: DPOConfig | Mapping[str, Any] | str | Path | None = None,
        **config_kwargs: Unpack[DPOOptions],
    ) -> None:
        cfg = resolve_config(
            DPOConfig, config, beta=beta, learning_rate=learning_rate, **config_kwargs
        )
        require_preference_options(cfg)
        super().__init__(
            model, ref_model, dataset, config=cfg, callbacks=callbacks, logger=logger,
            tokenizer=tokenizer, schedules=schedules, with_reference=True,
        )  # fmt: skip

    @property
    def rows_at_once(self) -> int:
        """Pairs of one gradient step."""
        return int(self.config.batch_size)

    def parse(self, rows: Any) -> list[Pair]:
        """Return preference pairs; see :func:`rlox_llm.pairs.parse_pairs`."""
        pairs = parse_pairs(rows, self.policy.device, self.texts)
        for i, pair in enumerate(pairs):
            require_fit(self.policy, f"pairs[{i}]", pair.prompt, [pair.chosen, pair.rejected])
        if not self.config.precompute_ref_log_probs:
            return pairs
        assert self.reference is not None
        return with_reference_logps(self.reference, pairs, self.config.batch_size)

    def compute_loss(
        self, prompt: Any, chosen: Any, rejected: Any
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss, with gradient, and its metrics; nothing is learnt.

        Args:
            prompt: (B, P) token ids, or B rows of any lengths.
            chosen: (B, C) the preferred completions; each ends with its first EOS.
            rejected: (B, R) the others.
        """
        assert self.reference is not None
        pairs = zip_pairs(prompt, chosen, rejected, self.policy.device, self.eos)
        with self.learning():
            loss, terms = pairs_loss(self.policy, self.reference, pairs, self.config)
        metrics = {name: float(value) for name, value in vars(terms).items()}
        return loss, {"loss": float(loss.detach()), **metrics}

    def train_step(self, prompt: Any, chosen: Any, rejected: Any) -> dict[str, float]:
        """Take one gradient step on pairs; arguments as of :meth:`compute_loss`."""
        return self.step_on(zip_pairs(prompt, chosen, rejected, self.policy.device, self.eos))

    def iterate(self, hooks: Hooks) -> DPOMetrics:
        """Take one gradient step."""
        hooks.enter("learn")
        with torch_threads(self.config.torch_threads):
            metrics = self.learn_pairs(hooks, self.next_rows())
        with suppress(StopTraining):
            hooks.train_batch(lambda: metrics)
        return DPOMetrics(**metrics)

    @torch.no_grad()
    def run_episodes(
        self,
        env: Any = None,
        *,
        n_episodes: int | None = 10,
        deterministic: bool = True,
        seed: int | None = None,
        max_steps: int = MAX_STEPS,
    ) -> EvaluationResult:
        """Return 1 for each pair whose chosen completion has the higher reward, else 0."""
        assert self.reference is not None
        pairs = self.evaluated_rows(env, n_episodes)
        with self.policy.mode(training=False):
            right = [
                float(pairs_loss(self.policy, self.reference, [pair], self._plain)[1].accuracy)
                for pair in pairs
            ]
        return EvaluationResult(np.array(right), np.array([len(pair.chosen) for pair in pairs]))

    @property
    def _plain(self) -> DPOConfig:
        """The config with a loss that takes a single pair."""
        return DPOConfig(beta=self.config.beta)
