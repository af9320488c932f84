"""Registers the algorithms for language models with rlox."""

from collections.abc import Iterable

from rlox.registry.hookspecs import hookimpl
from rlox.registry.specs import AlgorithmSpec, CommandSpec


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register GRPO, DPO, OnlineDPO and supervised fine-tuning."""
    yield AlgorithmSpec(
        name="grpo",
        summary="Group relative policy optimisation of a language model, by a reward function.",
        config="rlox_llm.configs:GRPOConfig",
        factory="rlox_llm.grpo:GRPO",
        paper="https://arxiv.org/abs/2402.03300",
        needs=("model", "reward_fn"),
        takes=("ref_model", "dataset", "tokenizer"),
        env=False,
    )
    yield AlgorithmSpec(
        name="dpo",
        summary="Direct preference optimisation: a language model learns from preference pairs.",
        config="rlox_llm.configs:DPOConfig",
        factory="rlox_llm.dpo:DPO",
        paper="https://arxiv.org/abs/2305.18290",
        needs=("model",),
        takes=("ref_model", "dataset", "tokenizer"),
        env=False,
    )
    yield AlgorithmSpec(
        name="online_dpo",
        summary="DPO on pairs that the model samples itself, judged by a preference function.",
        config="rlox_llm.configs:OnlineDPOConfig",
        factory="rlox_llm.online_dpo:OnlineDPO",
        paper="https://arxiv.org/abs/2402.04792",
        needs=("model", "preference_fn"),
        takes=("ref_model", "dataset", "tokenizer"),
        env=False,
    )
    yield AlgorithmSpec(
        name="sft",
        summary="Supervised fine-tuning of a language model on prompts with completions.",
        config="rlox_llm.configs:SFTConfig",
        factory="rlox_llm.sft:SFT",
        paper="https://arxiv.org/abs/2203.02155",
        needs=("model",),
        takes=("dataset", "tokenizer"),
        env=False,
    )


@hookimpl
def rlox_commands() -> Iterable[CommandSpec]:
    """Register ``rlox llm``."""
    yield CommandSpec(
        name="llm",
        summary="Export a trained language model, or let it complete prompts.",
        factory="rlox_llm.commands:llm_app",
    )
