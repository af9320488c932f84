"""Supervised fine-tuning: a language model learns completions of prompts by heart.

Each gradient step minimises the negative log-likelihood -log π(y|x) of its rows' completions y,
averaged over their tokens; tokens of the prompts x do not count. It usually precedes the other
algorithms (Ouyang et al. 2022, "Training language models to follow instructions", sec. 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from rlox.envs.evaluation import EvaluationResult
from rlox.training.hooks import Hooks, StopTraining
from torch import Tensor

from rlox_llm.configs import SFTConfig
from rlox_llm.language import LanguageAlgorithm
from rlox_llm.models import Scores
from rlox_llm.prompts import listed_rows, padded_completions, parse_completions, require_fit

if TYPE_CHECKING:
    from rlox_llm.option_types import SFTArguments, Unpack


@dataclass(frozen=True)
class SFTMetrics:
    """Metrics of one gradient step."""

    loss: float
    """Mean negative log-likelihood per token of the completions, in nats."""
    token_accuracy: float
    """Share of these tokens that are the likeliest in their position."""
    learning_rate: float
    """Adam's step size."""


@dataclass(frozen=True)
class Example:
    """A prompt and its completion, as token ids (L,) each."""

    prompt: Tensor
    completion: Tensor


@final
class SFT(LanguageAlgorithm):
    """Supervised fine-tuning of a language model.

    Args:
        dataset: rows for ``train(n)``: mappings with a ``prompt`` and a ``completion``, each token
            ids, a text or a chat; or the path of a JSONL or Parquet file of such rows.
    """

    name = "sft"
    config_class = SFTConfig
    config: SFTConfig
    takes = ()
    arguments = ("model", "learning_rate", "callbacks", "logger")
    if TYPE_CHECKING:

        def __init__(self, *given: Any, **options: Unpack[SFTArguments]) -> None: ...

    def parse(self, rows: Any) -> list[Example]:
        """Return prompts with their completions.

        Raises:
            DatasetError: a row has no prompt and completion, or does not fit the model.
            TypeError: the rows are not listed, or one is not a mapping.
            ValueError: there is no row, or one is empty.
        """
        found = []
        for i, row in enumerate(listed_rows("rows", rows)):
            parts = parse_completions(
                f"rows[{i}]", row, ("completion",), self.policy.device, self.texts
            )
            example = Example(*parts)
            require_fit(self.policy, f"rows[{i}]", example.prompt, [example.completion])
            found.append(example)
        return found

    def train_step(self, rows: Any) -> dict[str, float]:
        """Take one gradient step on rows and return the metrics."""
        return self.step_on(self.parse(rows))

    def iterate(self, hooks: Hooks) -> SFTMetrics:
        """Take one gradient step."""
        hooks.enter("learn")
        rows = self.next_rows()
        n_tokens = sum(len(row.completion) for row in rows)

        def loss_of(part: slice) -> tuple[Tensor, dict[str, float]]:
            scores = self._score(rows[part])
            assert scores.likeliest is not None
            loss = -scores.logps.sum() / n_tokens
            right = float(scores.likeliest.sum())
            return loss, {"loss": float(loss.detach()), "token_accuracy": right}

        metrics = self.learn(len(rows), loss_of)
        metrics["token_accuracy"] /= n_tokens
        self.count(hooks, len(rows), len(rows), n_tokens)
        with suppress(StopTraining):
            hooks.train_batch(lambda: metrics)
        return SFTMetrics(**metrics)

    def _score(self, rows: Sequence[Example]) -> Scores:
        tokens, mask = padded_completions([row.completion for row in rows])
        return self.policy.score([row.prompt for row in rows], tokens, mask, likeliest=True)

    @torch.no_grad()
    def judge(self, rows: Any, deterministic: bool, seed: int | None) -> EvaluationResult:
        """Return each completion's mean log-likelihood per token, in nats."""
        with self.policy.mode(training=False):
            found = [float(self._score([row]).logps.mean()) for row in rows]
        return EvaluationResult(np.array(found), np.array([len(row.completion) for row in rows]))
