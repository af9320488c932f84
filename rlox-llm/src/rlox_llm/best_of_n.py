"""Best-of-N sampling: the completion with the highest reward of N.

It learns nothing. The KL divergence of its samples' distribution from the model's is at most
log N - (N - 1) / N (Beirami et al. 2024, "Theoretical guarantees on the best-of-n alignment
policy").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
from rlox.config.model import require_integer
from rlox.seeding import SeedStreams, draw_seed
from torch import Tensor

from rlox_llm.building import ModuleOrFolder, make_model
from rlox_llm.configs import SamplingConfig
from rlox_llm.generation import Completions, Generator, Sampling, complete
from rlox_llm.generators import make_generator
from rlox_llm.prompts import Prompt, parse_prompts
from rlox_llm.rewards import RewardFn, RewardFunctions


@final
class BestOfN:
    """Sample N completions of each prompt and return the best.

    Args:
        model: a module from token ids (B, L) to logits (B, L, V), a transformers causal model, or
            the folder of one.
        reward_fn: see :class:`rlox_llm.grpo.GRPO`.
        n: completions of each prompt.
        max_new_tokens: maximum length of a completion.
        tokenizer: a transformers tokenizer for texts and chats; ``None``: from the model's
            folder.
        generator: a sampler, used instead of ``sampler``.
        options: other options of :class:`rlox_llm.configs.SamplingConfig`, such as ``temperature``,
            ``eos_token_id`` and ``seed``.

    Raises:
        ConfigError: an option is unknown or out of range.
        ValueError: ``n`` is not positive.
    """

    def __init__(
        self,
        model: ModuleOrFolder,
        reward_fn: RewardFn | Sequence[RewardFn],
        n: int = 4,
        max_new_tokens: int = 8,
        *,
        tokenizer: Any = None,
        generator: Generator | None = None,
        **options: Any,
    ) -> None:
        config = SamplingConfig(max_new_tokens=max_new_tokens, **options)
        self.n = require_integer("n", n, at_least=1)
        self.config = config
        self.streams = SeedStreams(draw_seed() if config.seed is None else config.seed)
        made = make_model(model, tokenizer, config, self.streams)
        self.policy, self.texts, self.pad = made.policy, made.texts, made.pad
        self.reward_fn = RewardFunctions(reward_fn)
        self.sampling = Sampling.of(config, made.eos)
        self.generator = generator or make_generator(config.sampler, self.policy)

    def generate(self, prompts: Any) -> Tensor:
        """Return the best completion of each prompt; the first of several best.

        Args:
            prompts: (B, P) token ids, B rows of any lengths, texts or chats; see
                :func:`rlox_llm.prompts.parse_prompts`.

        Returns:
            (B, P + T) whole rows; shorter prompts are padded on the left, shorter completions on
            the right.
        """
        rows = parse_prompts(prompts, self.policy.device, self.texts)
        return self.best(rows).padded(self.pad)

    def best(self, prompts: Sequence[Prompt]) -> Completions:
        """Return the best completion of each prompt with its log-probabilities.

        Args:
            prompts: see :func:`rlox_llm.prompts.parse_prompts`.
        """
        done = complete(
            self.generator, self.policy, [prompt.ids for prompt in prompts], self.sampling,
            self.streams.torch("completions"), self.n,
        )  # fmt: skip
        columns = [prompt.columns for prompt in prompts for _ in range(self.n)]
        rewards = self.reward_fn(done, self.pad, columns, self.texts).reshape(-1, self.n)
        best = np.nan_to_num(rewards, nan=-np.inf).argmax(1) + np.arange(len(prompts)) * self.n
        return done.select(torch.as_tensor(best, device=self.policy.device))
