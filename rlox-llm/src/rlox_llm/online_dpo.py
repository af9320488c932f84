"""Online DPO: preference pairs sampled by the model (Guo et al. 2024).

Each iteration samples two completions of each prompt, asks a preference function which one is
better, and takes one gradient step on DPO's loss of these pairs.

Deviation from the paper: the preference function may be any function, not only a language model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
from rlox.envs.evaluation import EvaluationResult
from rlox.errors import ConfigError
from rlox.training.hooks import Hooks

from rlox_llm.configs import OnlineDPOConfig
from rlox_llm.language import SamplingAlgorithm
from rlox_llm.preference import DPOMetrics, Pair, PreferenceAlgorithm
from rlox_llm.rewards import preferences

if TYPE_CHECKING:
    from rlox_llm.option_types import OnlineDPOArguments, Unpack


@dataclass(frozen=True)
class OnlineDPOMetrics(DPOMetrics):
    """Metrics of one iteration; preferred completions are chosen, the others rejected."""

    completion_length: float
    """Mean length of a completion in tokens."""
    same_pairs: float
    """Share of pairs with two equal completions, which teach nothing."""


@final
class OnlineDPO(PreferenceAlgorithm, SamplingAlgorithm):
    """Online direct preference optimisation of a language model.

    Args:
        ref_model: the reference, a frozen copy; ``None`` if the model has an adapter or comes from
            a folder.
        preference_fn: gets a list with one pair of whole rows of token ids per prompt, and returns
            for each pair 0 if the first row is better, 1 if the second is.
        dataset: prompts for ``train(n)``.
        generator: a sampler, used instead of ``sampler``.
    """

    name = "online_dpo"
    config_class = OnlineDPOConfig
    config: OnlineDPOConfig
    functions: ClassVar = {"preference_fn": "a function of pairs of rows"}
    arguments = (
        "model", "ref_model", "preference_fn", "beta", "learning_rate", "max_new_tokens",
        "callbacks", "logger", "generator",
    )  # fmt: skip
    if TYPE_CHECKING:

        def __init__(self, *given: Any, **options: Unpack[OnlineDPOArguments]) -> None: ...

    def prepare(self, given: Mapping[str, Any]) -> None:
        """Store the preference function."""
        super().prepare(given)
        self.preference_fn = given["preference_fn"]
        if not callable(self.preference_fn):
            kind = type(self.preference_fn).__name__
            raise ConfigError(f"preference_fn must be a function of pairs of rows, got {kind}")

    def iterate(self, hooks: Hooks) -> OnlineDPOMetrics:
        """Sample two completions of each prompt and take one gradient step."""
        prompts = self.next_rows()
        done = self.sample(prompts, 2)
        rows = done.rows(self.pad)[0]
        sampled = list(zip(rows[::2], rows[1::2], strict=True))
        better = preferences(self.preference_fn, sampled)
        kept = [tokens[mask] for tokens, mask in zip(done.tokens, done.mask, strict=True)]
        pairs = [
            Pair(prompt.ids, kept[2 * i + first], kept[2 * i + 1 - first])
            for i, (prompt, first) in enumerate(zip(prompts, better, strict=True))
        ]
        hooks.rollout_end(batch=pairs)
        metrics = self.learn_pairs(hooks, pairs)
        preferred = [place == k for place in better for k in (0, 1)]
        self.hand_on_completions(hooks, done, {"preferred": preferred})
        same = [first.tolist() == second.tolist() for first, second in sampled]
        return OnlineDPOMetrics(
            completion_length=float(done.lengths.double().mean()),
            same_pairs=float(np.mean(same)),
            **metrics,
        )

    def judge(self, rows: Any, deterministic: bool, seed: int | None) -> EvaluationResult:
        """Return 1 for each prompt whose completion is preferred to the reference's, else 0."""
        stream = self.evaluation_generator(seed)
        theirs, ours = (
            self.sample_from(model, rows, deterministic, stream)
            for model in (self.reference, self.policy)
        )
        pairs = zip(theirs.rows(self.pad)[0], ours.rows(self.pad)[0], strict=True)
        wins = preferences(self.preference_fn, list(pairs))
        return EvaluationResult(np.array(wins, np.float64), ours.lengths.cpu().numpy())
