"""Online DPO: preference pairs sampled by the model (Guo et al. 2024).

Each iteration samples two completions of each prompt, asks a preference function which one is
better, and takes one gradient step on DPO's loss of these pairs.

Deviation from the paper: the preference function is any function, not a language model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset, resolve_config
from rlox.config.schedules import ScheduleOption
from rlox.errors import ConfigError
from rlox.evaluation import MAX_STEPS, EvaluationResult
from rlox.logging import LoggerCallback
from rlox.nn import torch_threads
from rlox.training.hooks import Hooks, StopTraining
from torch import Tensor

from rlox_llm.building import ModuleOrFolder
from rlox_llm.configs import OnlineDPOConfig
from rlox_llm.generation import Generator, complete
from rlox_llm.generators import make_generator
from rlox_llm.pairs import Pair
from rlox_llm.preference import PreferenceAlgorithm, require_preference_options
from rlox_llm.prompts import Prompt, fitting_prompts
from rlox_llm.rewards import preferences
from rlox_llm.sampling import Completions, Sampling
from rlox_llm.tables import log_completions

if TYPE_CHECKING:
    from rlox_llm.option_types import OnlineDPOOptions, Unpack

__all__ = ["OnlineDPO", "OnlineDPOMetrics"]

PreferenceFn = Callable[[list[tuple[Tensor, Tensor]]], Any]


@dataclass(frozen=True)
class OnlineDPOMetrics:
    """What one iteration reports."""

    loss: float
    """The loss."""
    chosen_reward: float
    """Mean of β (log π - log π_ref) of the preferred completions."""
    rejected_reward: float
    """The same of the other completions."""
    accuracy: float
    """Share of pairs whose preferred completion has the higher reward."""
    margin: float
    """Mean difference of the two rewards."""
    learning_rate: float
    """Adam's step size."""
    completion_length: float
    """Mean tokens of a completion."""
    same_pairs: float
    """Share of pairs of twice the same completion, which teach nothing."""


@final
class OnlineDPO(PreferenceAlgorithm):
    """Online direct preference optimisation of a language model.

    Args:
        model: the model to train, see :class:`rlox_llm.language.LanguageAlgorithm`.
        ref_model: the reference, a frozen copy; ``None`` if the model has an adapter or comes from
            a folder.
        preference_fn: gets one pair of whole rows of token ids per prompt, and answers 0 if the
            first is better, 1 if the second is.
        beta: how strongly the policy is held to the reference.
        learning_rate: Adam's step size.
        max_new_tokens: most tokens of a completion.
        callbacks: hooks into training.
        logger: receives the metrics of every iteration.
        dataset: prompts that ``train(n)`` takes.
        tokenizer: one of transformers, for texts and chats; ``None`` takes that of the model's
            folder.
        generator: who samples completions, in the place of ``sampler``.
        schedules: callables ``gradient_steps -> value`` for ``learning_rate``, not saved.
        config: an :class:`OnlineDPOConfig`, a mapping, or the path of a YAML or JSON file.
        config_kwargs: options of :class:`OnlineDPOConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown or out of range, or a needed argument is missing.
    """

    name: ClassVar[str] = "online_dpo"
    config_class: ClassVar[type[Config]] = OnlineDPOConfig
    config: OnlineDPOConfig

    def __init__(
        self,
        model: ModuleOrFolder,
        ref_model: ModuleOrFolder | None = None,
        preference_fn: PreferenceFn | None = None,
        beta: float | Unset = UNSET,
        learning_rate: ScheduleOption | Unset = UNSET,
        max_new_tokens: int | Unset = UNSET,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
        *,
        dataset: Any = None,
        tokenizer: Any = None,
        generator: Generator | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        config: OnlineDPOConfig | Mapping[str, Any] | str | Path | None = None,
        **config_kwargs: Unpack[OnlineDPOOptions],
    ) -> None:
        cfg = resolve_config(
            OnlineDPOConfig, config, beta=beta, learning_rate=learning_rate,
            max_new_tokens=max_new_tokens, **config_kwargs,
        )  # fmt: skip
        if not callable(preference_fn):
            raise ConfigError(
                f"'online_dpo' needs preference_fn=..., a function of pairs of rows, on the "
                f"command line --preference module:function; got {type(preference_fn).__name__}"
            )
        require_preference_options(cfg)
        super().__init__(
            model, ref_model, dataset, config=cfg, callbacks=callbacks, logger=logger,
            tokenizer=tokenizer, schedules=schedules, with_reference=True,
        )  # fmt: skip
        self.preference_fn = preference_fn
        self.sampling = Sampling.of(self.config, self.eos)
        self.generator = generator or make_generator(self.config.sampler, self.policy)

    @property
    def rows_at_once(self) -> int:
        """Prompts of one iteration."""
        return int(self.config.prompts_per_rollout)

    def parse(self, rows: Any) -> list[Prompt]:
        """Return prompts; see :func:`rlox_llm.prompts.fitting_prompts`."""
        return fitting_prompts(rows, self.policy, self.texts, self.config.max_new_tokens)

    def train_step(self, prompts: Any) -> dict[str, float]:
        """Sample pairs, ask for preferences, take one gradient step, and return the metrics."""
        return self.step_on(self.parse(prompts))

    def iterate(self, hooks: Hooks) -> OnlineDPOMetrics:
        """Sample two completions of each prompt and take one gradient step."""
        prompts = self.next_rows()
        with torch_threads(self.config.torch_threads):
            done = complete(
                self.generator, self.policy, [prompt.ids for prompt in prompts], self.sampling,
                self.streams.torch("completions"), 2, version=self.clock.gradient_steps,
            )  # fmt: skip
            rows = done.rows(self.pad)[0]
            sampled = list(zip(rows[::2], rows[1::2], strict=True))
            better = preferences(self.preference_fn, sampled)
            pairs = [
                Pair(prompt.ids, _row(done, 2 * i + first), _row(done, 2 * i + 1 - first))
                for i, (prompt, first) in enumerate(zip(prompts, better, strict=True))
            ]
            hooks.rollout_end(batch=pairs)
            metrics = self.learn_pairs(hooks, pairs)
        with suppress(StopTraining):
            hooks.train_batch(lambda: metrics)
        preferred = [place == k for place in better for k in (0, 1)]
        log_completions(hooks, self.config, self.texts, done, {"preferred": preferred})
        same = [first.tolist() == second.tolist() for first, second in sampled]
        return OnlineDPOMetrics(
            completion_length=float(done.lengths.double().mean()),
            same_pairs=float(np.mean(same)),
            **metrics,
        )

    def run_episodes(
        self,
        env: Any = None,
        *,
        n_episodes: int | None = 10,
        deterministic: bool = True,
        seed: int | None = None,
        max_steps: int = MAX_STEPS,
    ) -> EvaluationResult:
        """Return 1 for each prompt whose completion is preferred to the reference's, else 0."""
        assert self.reference is not None
        prompts = self.evaluated_rows(env, n_episodes)
        generator = self.evaluation_generator(seed)
        by_model = []
        sampling = Sampling.of(self.config, self.eos, deterministic)
        rows = [prompt.ids for prompt in prompts]
        for model in (self.reference, self.policy):
            sampler = make_generator(self.config.sampler, model)
            by_model.append(complete(sampler, model, rows, sampling, generator))
        theirs, ours = (done.rows(self.pad)[0] for done in by_model)
        wins = preferences(self.preference_fn, list(zip(theirs, ours, strict=True)))
        return EvaluationResult(np.array(wins, np.float64), by_model[1].lengths.cpu().numpy())


def _row(done: Completions, index: int) -> Tensor:
    return done.tokens[index][done.mask[index]]
