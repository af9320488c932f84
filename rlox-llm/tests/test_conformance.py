"""The algorithms pass core's checks for third parties' algorithms."""

import pytest
import torch
from models import count_sevens, llama, tiny_lm
from rlox.testing import LANGUAGE_CHECKS

PROMPTS = torch.arange(30).reshape(10, 3) % 20


def arguments_of(name, make_model):
    """Return small arguments of an algorithm."""
    common = {"model": make_model(), "learning_rate": 0.01}
    if name == "sft":
        rows = [{"prompt": row, "completion": row.flip(0)} for row in PROMPTS]
        return {**common, "dataset": rows, "batch_size": 4}
    common["ref_model"] = make_model()
    if name == "dpo":
        pairs = [{"prompt": row, "chosen": row, "rejected": row.flip(0)} for row in PROMPTS]
        return {**common, "dataset": pairs, "batch_size": 4, "precompute_ref_log_probs": True}
    common |= {"dataset": PROMPTS, "prompts_per_rollout": 4, "sampler": "rlox"}
    if name == "grpo":
        return {**common, "reward_fn": count_sevens}
    return {**common, "preference_fn": lambda pairs: [int((b == 7).any()) for _, b in pairs]}


@pytest.mark.parametrize(
    ("name", "make_model"),
    [("grpo", llama), ("dpo", tiny_lm), ("online_dpo", tiny_lm), ("sft", tiny_lm)],
)
@pytest.mark.parametrize("check", LANGUAGE_CHECKS)
def test_conformance(check, name, make_model):
    """With a custom module and a transformers model."""
    check(name, lambda: arguments_of(name, make_model))
