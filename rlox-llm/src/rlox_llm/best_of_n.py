"""Best-of-N sampling: of N completions of a prompt, the one with the highest reward.

It learns nothing. The KL divergence of what it samples from the model is at most
log N - (N - 1) / N (Beirami et al. 2024, "Theoretical guarantees on the best-of-n alignment
policy").
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch
from rlox.seeding import SeedStreams
from rlox.validation import require_integer
from torch import Tensor, nn

from rlox_llm.configs import SamplingConfig
from rlox_llm.models import CausalModel
from rlox_llm.prompts import parse_rows
from rlox_llm.rewards import RewardFn, RewardFunctions
from rlox_llm.sampling import Completions, Sampling, sample

__all__ = ["BestOfN"]


@final
class BestOfN:
    """Sample N completions of each prompt and return the best.

    Args:
        model: maps token ids (B, L) to logits (B, L, V), or is a causal model of transformers.
        reward_fn: see :class:`rlox_llm.grpo.GRPO`.
        n: completions of each prompt.
        max_new_tokens: most tokens of a completion.
        options: other options of :class:`rlox_llm.configs.SamplingConfig`, such as ``temperature``,
            ``eos_token_id`` and ``seed``.

    Raises:
        ConfigError: an option is unknown or out of range.
        ValueError: ``n`` is not positive.
    """

    def __init__(
        self,
        model: nn.Module,
        reward_fn: RewardFn,
        n: int = 4,
        max_new_tokens: int = 8,
        **options: Any,
    ) -> None:
        config = SamplingConfig(max_new_tokens=max_new_tokens, **options)
        self.n = require_integer("n", n, at_least=1)
        self.config = config
        self.policy = CausalModel(model, "model")
        self.reward_fn = RewardFunctions(reward_fn)
        eos = config.eos_token_id
        known = self.policy.eos if eos is None else (eos,) if isinstance(eos, int) else eos
        self.sampling = Sampling.of(config, self.policy, known)
        pads = [config.pad_token_id, self.policy.pad, *known, 0]
        self.pad = next(pad for pad in pads if pad is not None)
        self.streams = SeedStreams(config.seed or 0)

    def generate(self, prompts: Any) -> Tensor:
        """Return the best completion of each prompt; the first of several best.

        Args:
            prompts: (B, P) token ids, or B rows of any lengths.

        Returns:
            (B, P + T) whole rows; shorter prompts are filled up on the left, shorter completions on
            the right.
        """
        rows = parse_rows("prompts", prompts, self.policy.device)
        done = sample(self.policy, rows, self.sampling, self.streams.torch("completions"), self.n)
        rewards = self.reward_fn(done, self.pad).reshape(len(rows), self.n)
        best = rewards.argmax(1) + np.arange(len(rows)) * self.n
        index = torch.as_tensor(best, device=self.policy.device)
        chosen = Completions(rows, done.tokens[index], done.mask[index], None, done.ended[index])
        return chosen.padded(self.pad)
