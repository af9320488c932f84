"""Supervised fine-tuning: a language model learns completions of prompts by heart.

Each gradient step minimises the negative log-likelihood -log π(y|x) of the completions y of its
rows, averaged over their tokens; those of the prompts x do not count. It is the start of the other
algorithms (Ouyang et al. 2022, "Training language models to follow instructions", sec. 3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
from rlox_llm.configs import SFTConfig
from rlox_llm.files import read_rows
from rlox_llm.language import LanguageAlgorithm
from rlox_llm.models import Scores
from rlox_llm.prompts import require_columns, require_fit, token_row

if TYPE_CHECKING:
    from rlox_llm.option_types import SFTOptions, Unpack

__all__ = ["SFT", "Example", "SFTMetrics"]


@dataclass(frozen=True)
class SFTMetrics:
    """What one gradient step reports."""

    loss: float
    """Mean negative log-likelihood of a token of the completions, in nats."""
    token_accuracy: float
    """Share of these tokens that are the likeliest at their place."""
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
        model: the model to train, see :class:`rlox_llm.language.LanguageAlgorithm`.
        learning_rate: Adam's step size.
        callbacks: hooks into training.
        logger: receives the metrics of every gradient step.
        dataset: rows that ``train(n)`` takes: mappings with a ``prompt`` and a ``completion``, each
            token ids, a text or a chat; or the path of a JSONL or Parquet file of them.
        tokenizer: one of transformers, for texts and chats; ``None`` takes that of the model's
            folder.
        schedules: callables ``gradient_steps -> value`` for ``learning_rate``, not saved.
        config: an :class:`SFTConfig`, a mapping, or the path of a YAML or JSON file.
        config_kwargs: options of :class:`SFTConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown or out of range.
    """

    name: ClassVar[str] = "sft"
    config_class: ClassVar[type[Config]] = SFTConfig
    config: SFTConfig

    def __init__(
        self,
        model: ModuleOrFolder,
        learning_rate: ScheduleOption | Unset = UNSET,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
        *,
        dataset: Any = None,
        tokenizer: Any = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        config: SFTConfig | Mapping[str, Any] | str | Path | None = None,
        **config_kwargs: Unpack[SFTOptions],
    ) -> None:
        cfg = resolve_config(SFTConfig, config, learning_rate=learning_rate, **config_kwargs)
        super().__init__(
            model, None, dataset, config=cfg, callbacks=callbacks, logger=logger,
            tokenizer=tokenizer, schedules=schedules,
        )  # fmt: skip

    @property
    def rows_at_once(self) -> int:
        """Rows of one gradient step."""
        return int(self.config.batch_size)

    def parse(self, rows: Any) -> list[Example]:
        """Return prompts with their completions.

        Raises:
            DatasetError: a row has no prompt and completion, or does not fit the model.
            TypeError: a row is no mapping.
            ValueError: there is no row, or one is empty.
        """
        rows = read_rows(rows)
        if not isinstance(rows, Sequence) or isinstance(rows, str) or not rows:
            raise ValueError("rows must be a list with at least one prompt and completion")
        found = []
        for i, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise TypeError(
                    f"rows[{i}] must be a mapping with prompt and completion, got "
                    f"{type(row).__name__}"
                )
            require_columns(f"rows[{i}]", row, ("prompt", "completion"))
            prompt = self.texts.prompt(f"rows[{i}] prompt", row["prompt"])
            answer = self.texts.completion(f"rows[{i}]", row["prompt"], row["completion"])
            device = self.policy.device
            example = Example(
                token_row(f"rows[{i}] prompt", prompt, device),
                token_row(f"rows[{i}] completion", answer, device),
            )
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
        loss, right, learning_rate = 0.0, 0, self.learning_rate
        with torch_threads(self.config.torch_threads), self.learning():
            for part in self.chunks(len(rows)):
                scores = self._score(rows[part])
                part_loss = -scores.logps.sum() / n_tokens
                self.optimizers["model"].backward(part_loss)
                loss += float(part_loss.detach())
                assert scores.likeliest is not None
                right += int(scores.likeliest.sum())
            self.optimizers["model"].apply(learning_rate)
        self.count(hooks, len(rows), len(rows), n_tokens)
        with suppress(StopTraining):
            hooks.train_batch(lambda: {"loss": loss})
        return SFTMetrics(loss, right / n_tokens, learning_rate)

    def _score(self, rows: Sequence[Example]) -> Scores:
        answers = [row.completion for row in rows]
        lengths = torch.tensor([len(row) for row in answers], device=self.policy.device)
        tokens = torch.nn.utils.rnn.pad_sequence(answers, batch_first=True)
        mask = torch.arange(tokens.shape[1], device=self.policy.device) < lengths[:, None]
        return self.policy.score([row.prompt for row in rows], tokens, mask, likeliest=True)

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
        """Return the mean log-likelihood of a token of each completion, in nats."""
        rows = self.evaluated_rows(env, n_episodes)
        with self.policy.mode(training=False):
            found = [float(self._score([row]).logps.mean()) for row in rows]
        return EvaluationResult(np.array(found), np.array([len(row.completion) for row in rows]))
