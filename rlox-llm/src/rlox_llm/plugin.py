"""Registers the algorithms for language models with rlox."""

from collections.abc import Iterable

from rlox.registry.specs import AlgorithmSpec, CommandSpec, LossSpec, hookimpl

ALGORITHMS = (
    ("GRPO", "grpo",
     "Group relative policy optimisation of a language model, by a reward function.",
     "2402.03300", ("reward_fn",)),
    ("DPO", "dpo",
     "Direct preference optimisation: a language model learns from preference pairs.",
     "2305.18290", ()),
    ("OnlineDPO", "online_dpo",
     "DPO on pairs that the model samples itself, judged by a preference function.",
     "2402.04792", ("preference_fn",)),
    ("SFT", "sft", "Supervised fine-tuning of a language model on prompts with completions.",
     "2203.02155", ()),
)  # fmt: skip
"""Class, name, summary, paper on arXiv, and needed functions."""


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register GRPO, DPO, OnlineDPO and supervised fine-tuning."""
    for cls, name, summary, paper, functions in ALGORITHMS:
        takes = (*(() if name == "sft" else ("ref_model",)), "dataset", "tokenizer")
        yield AlgorithmSpec.of(
            "rlox_llm", cls, name, summary, f"https://arxiv.org/abs/{paper}",
            needs=("model", *functions), takes=takes, env=False,
        )  # fmt: skip


@hookimpl
def rlox_policy_losses() -> Iterable[LossSpec]:
    """Register the losses of :mod:`rlox_llm.losses.policy`."""
    summaries = {
        "grpo": "Clipped ratio, mean over each completion.",
        "bnpo": "Clipped ratio, mean over the tokens.",
        "dr_grpo": "Clipped ratio, divided by the greatest length.",
        "dapo": "Clipped ratio, mean over the tokens of the whole batch.",
        "cispo": "Truncated ratio as a weight of the log-likelihood.",
        "sapo": "Sigmoid of the ratio instead of clipping.",
        "luspo": "Clipped ratio, summed over each completion.",
        "vespo": "Smooth weight for the whole completion.",
    }
    options = {"sapo": "rlox_llm.configs:SAPOOptions", "vespo": "rlox_llm.configs:VESPOOptions"}
    for name, summary in summaries.items():
        yield LossSpec(name, summary, f"rlox_llm.losses.policy:{name}", options.get(name))


@hookimpl
def rlox_preference_losses() -> Iterable[LossSpec]:
    """Register the losses of :mod:`rlox_llm.losses.pairwise`."""
    summaries = {
        "sigmoid": "Logistic loss of the difference: DPO.",
        "hinge": "Hinge loss of the difference.",
        "ipo": "Squared distance of the difference per token to 1 / (2 β).",
        "robust": "Logistic loss, unbiased under wrong labels.",
        "cdpo": "Logistic loss with smoothed labels.",
        "sppo_hard": "Squared distances of both log-ratios to ±1 / (2 β).",
        "nca_pair": "Logistic losses of both completions.",
        "bco_pair": "Logistic losses of both completions around a reward between them.",
        "apo_zero": "Raises the chosen completions, lowers the rejected ones.",
        "apo_down": "Lowers both, the rejected ones more.",
        "exo_pair": "Reverse KL divergence to smoothed labels.",
        "aot": "Logistic loss of differences sorted over the batch.",
        "discopop": "Mixture of the logistic and the exponential loss.",
        "sigmoid_norm": "Logistic loss of the difference per token.",
    }
    options = {
        "bco_pair": "rlox_llm.configs:BCOOptions",
        "discopop": "rlox_llm.configs:DiscoPOPOptions",
    }
    for name, summary in summaries.items():
        yield LossSpec(
            name, summary, f"rlox_llm.losses.pairwise:{name}", options.get(name),
            adds_up=name != "aot",
        )  # fmt: skip


@hookimpl
def rlox_commands() -> Iterable[CommandSpec]:
    """Register ``rlox llm``."""
    yield CommandSpec(
        name="llm",
        summary="Export a trained language model, or let it complete prompts.",
        factory="rlox_llm.commands:llm_app",
    )
