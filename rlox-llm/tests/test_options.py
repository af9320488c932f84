"""Options under TRL's names, and tables of completions."""

import pytest
import torch
from models import count_sevens, make_grpo, tiny_lm
from rlox.algorithms import GRPO, OnlineDPO
from rlox.errors import ConfigError
from rlox.logging import LoggerCallback
from rlox_llm.configs import DPOConfig, GRPOConfig, OnlineDPOConfig

PROMPTS = torch.arange(12).reshape(4, 3)

GRPO_OPTIONS = {
    "importance_sampling_level": "sequence", "epsilon": 0.1, "epsilon_high": 0.3, "delta": 4.0,
    "num_iterations": 2, "scale_rewards": "batch", "mask_truncated_completions": True,
    "use_bias_correction_kl": False, "entropy_coef": 0.01, "sync_ref_model": True,
    "ref_model_sync_steps": 1, "ref_model_mixup_alpha": 0.5, "reward_weights": (0.5,),
    "temperature": 0.9, "top_p": 0.9, "top_k": 7, "min_p": 0.01, "max_completion_length": 5,
    "gradient_checkpointing": False, "bf16": True, "log_completions": True,
    "num_completions_to_print": 3, "max_grad_norm": 0.5, "learning_rate": 1e-3,
}  # fmt: skip
"""Options of TRL's ``GRPOConfig``, with values that differ from the defaults where compatible."""

OURS = {
    "prompts_per_rollout": 2, "leave_one_out": True, "kl_estimator": "k2", "eos_token_id": (3, 4),
    "pad_token_id": 0,
}  # fmt: skip
"""Further options, which TRL has elsewhere or under another name."""


class Tables(LoggerCallback):
    """Stores tables."""

    def __init__(self):
        self.found = []

    def on_table(self, step, name, table):
        self.found.append((step, name, dict(table)))


def test_every_option_holds_in_one_training():
    """All of them together, in a training of two iterations."""
    grpo = GRPO(
        tiny_lm(), tiny_lm(), count_sevens, sampler="rlox", dataset=PROMPTS, kl_coef=0.1,
        **GRPO_OPTIONS, **OURS,
    )  # fmt: skip
    metrics = grpo.train(4)
    assert metrics["entropy"] > 0
    assert (metrics["prompts"], metrics["completions"]) == (4, 16)
    assert grpo.max_new_tokens == 5
    assert all(hasattr(grpo, name) for name in GRPO.arguments)


def test_lengths_have_one_name_at_a_time():
    """TRL's name is an alias of the option."""
    assert OnlineDPOConfig(max_completion_length=3).max_new_tokens == 3
    assert GRPOConfig(max_completion_length=3).replace(seed=1).max_new_tokens == 3
    with pytest.raises(ConfigError, match="TRL's name of max_new_tokens, got max_new_tokens=4"):
        GRPOConfig(max_completion_length=3, max_new_tokens=4)
    with pytest.raises(ConfigError, match="unknown option 'max_completion_length' for DPOConfig"):
        DPOConfig(max_completion_length=3)


def test_completions_are_logged_as_tables():
    """With rewards and advantages, or with preferences, and only on request."""
    tables = Tables()
    grpo = make_grpo(
        logger=tables, log_completions=True, num_completions_to_print=6, max_new_tokens=2
    )
    metrics = grpo.train_step(PROMPTS)
    step, name, table = tables.found[0]
    assert (step, name) == (1, "completions")
    assert table["prompt"] == ["0 1 2"] * 4 + ["3 4 5"] * 2
    assert all(len(column) == 6 for column in table.values())
    sevens = [text.split().count("7") for text in table["completion"]]
    assert table["reward"] == sevens
    assert metrics["mean_reward"] >= sum(sevens) / 16
    assert sum(table["advantage"][:4]) == pytest.approx(0, abs=1e-5)
    online = OnlineDPO(
        tiny_lm(), tiny_lm(1), lambda pairs: [1] * len(pairs), sampler="rlox", logger=tables,
        log_completions=True,
    )  # fmt: skip
    online.train_step(PROMPTS)
    assert tables.found[1][2]["preferred"] == [False, True] * 4
    plain = Tables()
    make_grpo(logger=plain).train_step(PROMPTS)
    assert not plain.found
