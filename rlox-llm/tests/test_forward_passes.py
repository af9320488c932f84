"""Which tokens go through a model of transformers, and of which of them logits are computed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from models import llama, sharpened
from rlox.algorithms import DPO, SFT
from rlox_llm.generation import complete
from rlox_llm.generators import RloxGenerator
from rlox_llm.models import CausalModel
from rlox_llm.sampling import Sampling

N, GROUP, T = 8, 4, 3
LONGEST = 10
PROMPTS = [torch.arange(LONGEST), torch.arange(7)]


def counting(model: Any) -> dict[str, int]:
    """Return where the places are counted that a model computes from now on."""
    seen = {"tokens": 0, "logits": 0}

    def tokens(module: Any, given: Any) -> None:
        seen["tokens"] += given[0].numel()

    def logits(module: Any, given: Any) -> None:
        seen["logits"] += given[0].shape[0] * given[0].shape[1]

    model.model.embed_tokens.register_forward_pre_hook(tokens)
    model.lm_head.register_forward_pre_hook(logits)
    return seen


def test_prompts_go_once_through_the_model_for_all_their_completions() -> None:
    """In learning; of what comes before the completions no logits are computed."""
    model = llama()
    seen = counting(model)
    prompts = [prompt for prompt in PROMPTS for _ in range(GROUP)]
    tokens, mask = torch.ones(N, T, dtype=torch.long), torch.ones(N, T, dtype=torch.bool)
    CausalModel(model, "model").logps(prompts, tokens, mask)
    assert seen["tokens"] == len(PROMPTS) * (LONGEST - 1) + N * T
    assert seen["logits"] == len(PROMPTS) + N * T  # one of a prefix is the least one can ask for


def test_prompts_of_pairs_go_once_through_the_model() -> None:
    """For the chosen completion and the rejected one."""
    model = llama()
    dpo = DPO(model, llama(1))
    seen = counting(model)
    prompts = torch.arange(N * LONGEST).reshape(N, LONGEST) % 20
    dpo.compute_loss(prompts, prompts[:, :T], prompts[:, -T:])
    assert seen["tokens"] == N * (LONGEST - 1) + 2 * N * T
    assert seen["logits"] == N + 2 * N * T


def test_logits_of_whole_rows_are_those_of_their_completions() -> None:
    """Where each prompt has one: at its completion, and one place behind it."""
    model = llama()
    sft = SFT(model)
    seen = counting(model)
    rows = torch.arange(N * LONGEST).reshape(N, LONGEST) % 20
    sft.train_step([{"prompt": row, "completion": row[:T]} for row in rows])
    assert seen["tokens"] == N * (LONGEST + T)
    assert seen["logits"] == N * (T + 1)


@pytest.mark.parametrize("eos", [(), (3, 5, 8, 13)])
def test_sampling_runs_prompts_once_and_drops_what_has_ended(eos: tuple[int, ...]) -> None:
    """A pass takes one token of each completion that goes on."""
    model = sharpened(llama(), 3.0)
    seen = counting(model)
    causal = CausalModel(model, "model")
    done = complete(
        RloxGenerator(causal), causal, PROMPTS, Sampling(8, eos=eos), torch.Generator(), GROUP
    )
    lengths = int(done.lengths.sum())
    assert (lengths < 8 * N) == bool(eos)
    assert seen["tokens"] == len(PROMPTS) * (LONGEST - 1) + lengths
