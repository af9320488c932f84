"""Small models, completions and options whose losses are compared with TRL's trainers.

Weights are drawn by name from NumPy, so they do not depend on the versions of torch, transformers
and peft; ``trl_numbers.json`` has TRL 1.16's numbers for them. Prompts differ in length, and some
completions end with an EOS. GPT-2 gets prompts of equal length: TRL passes no position ids under
left padding, so its numbers would depend on the padding.
"""

from __future__ import annotations

import copy
import json
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models import Replay, gpt2, keep_gradients, llama, with_adapter
from rlox_llm.dpo import DPO
from rlox_llm.grpo import GRPO

NUMBERS = Path(__file__).with_name("trl_numbers.json")
VOCABULARY, EOS, PAD, GROUP, LIMIT = 24, 1, 0, 3, 6
EVEN = [[5, 6, 7, 8], [9, 10, 11, 12]]
RAGGED = [[5, 6, 7, 8], [9, 10]]
PROMPTS = {"llama": RAGGED, "gpt2": EVEN, "adapter": RAGGED}
COMPLETIONS = [
    [3, 4, 1],
    [5, 6, 7, 8, 9, 10],
    [11, 1],
    [4, 4, 4, 4, 4, 1],
    [12, 13, 14, 15, 16, 17],
    [2, 1],
]
REWARDS = [0.9, 0.3, 0.7, 0.1, 0.5, 0.6]
CHOSEN, REJECTED = [[3, 4, 1], [5, 6, 7, 8, 1]], [[9, 10, 11, 1], [12, 1]]
BETA, SMOOTHING = 0.1, 0.1
CISPO = {"loss_type": "cispo", "epsilon_high": 1.3}


@dataclass(frozen=True)
class Case:
    """A case of GRPO's loss through a model."""

    model: str
    options: dict[str, Any] = field(default_factory=dict)
    """Under rlox's names, which are TRL's except for ``kl_coef``."""
    off_policy: bool = True
    """Whether the old log-probabilities are those of other weights."""

    @property
    def name(self):
        """Return the numbers' name."""
        said = ", ".join(f"{k}={v}" for k, v in self.options.items())
        return f"{self.model}, {'off' if self.off_policy else 'on'}-policy, {said or 'defaults'}"


VARIANTS = [
    *({"loss_type": name} for name in ("grpo", "bnpo", "dr_grpo", "dapo")),
    CISPO,
    *({"loss_type": name} for name in ("sapo", "luspo", "vespo")),
    {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.03},
]
FURTHER = [
    {"loss_type": "luspo", "importance_sampling_level": "sequence"},
    {"epsilon_high": 0.28},
    {"delta": 1.5},
    {"use_bias_correction_kl": False},
    {"kl_coef": 0.0},
    {"mask_truncated_completions": True},
    {"temperature": 0.7},
    {"entropy_coef": 0.05},
    {"scale_rewards": "none"},
    {"scale_rewards": "batch"},
]
CASES = [
    *(Case(model, options) for model in PROMPTS for options in VARIANTS),
    *(Case("llama", options) for options in FURTHER),
    *(Case(model, off_policy=False) for model in PROMPTS),
]
PAIR_LOSSES = (
    "sigmoid", "hinge", "ipo", "robust", "sppo_hard", "nca_pair", "bco_pair", "apo_zero",
    "apo_down", "exo_pair", "aot", "discopop", "sigmoid_norm",
)  # fmt: skip


def make_model(kind, seed=0):
    """Return a model with sizeable weights, drawn by their names and a seed.

    All adapters have the same base.
    """
    special = {"vocab_size": VOCABULARY, "eos_token_id": EOS, "pad_token_id": PAD}
    if kind == "gpt2":
        model = gpt2(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **special)
    else:
        model = llama(**special)
    model = with_adapter(model) if kind == "adapter" else model
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = seed if kind != "adapter" or "lora" in name else 0
            rng = np.random.default_rng([drawn, zlib.crc32(name.encode())])
            values = torch.from_numpy(rng.normal(size=tuple(parameter.shape))).float()
            norm = parameter.dim() == 1 and name.endswith("weight")
            scale = 0.3 if "lora" in name else 0.13 if parameter.dim() == 2 else 0.1
            parameter.copy_(float(norm) + scale * values)
    return model.eval()


def figures(numbers, gradients):
    """Return losses and metrics with the length and two projections of the gradients."""
    rng = np.random.default_rng(0)
    along = torch.from_numpy(rng.normal(size=(2, len(gradients)))).float() / len(gradients) ** 0.5
    return {
        **{name: float(value) for name, value in numbers.items()},
        "gradient_norm": float(gradients.norm()),
        "gradient_0": float(along[0] @ gradients),
        "gradient_1": float(along[1] @ gradients),
    }


def require_close(ours, theirs):
    """Require losses and metrics to 2e-5, gradients to 2e-4 of their length."""
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        if name.startswith("gradient"):
            assert ours[name] == pytest.approx(value, abs=2e-4 * theirs["gradient_norm"]), name
        else:
            assert ours[name] == pytest.approx(value, abs=2e-5, rel=2e-5), name


def old_logps(case, grpo, rollout):
    """Return the log-probabilities of the completions under other weights."""
    other = copy.copy(grpo.policy)
    other.module = make_model(case.model, 2)
    return grpo._logps_without_gradient(other, rollout.completions)


def ours_grpo(case, layout="auto"):
    """Return the figures of rlox's GRPO before Adam's step, and the old log-probabilities."""
    options = {"kl_coef": 0.04, **case.options}
    grpo = GRPO(
        make_model(case.model), make_model(case.model, 1) if options["kl_coef"] else None,
        lambda rows, prompts: REWARDS, group_size=GROUP, max_new_tokens=LIMIT,
        generator=Replay(lambda prompts: COMPLETIONS),
        max_grad_norm=None, layout=layout, **options,
    )  # fmt: skip
    kept = keep_gradients(grpo)
    rollout = grpo._roll_out(grpo.parse(PROMPTS[case.model]))
    old = old_logps(case, grpo, rollout) if case.off_policy else None
    sums = grpo._update(replace(rollout, old_logps=old))
    wanted = {name: sums[name] for name in ("loss", "kl", "clip_fraction")}
    return figures(wanted, kept[0]), old


def ours_dpo(kind, loss_type):
    """Return the figures of rlox's DPO."""
    dpo = DPO(
        make_model(kind), make_model(kind, 1), loss_type=loss_type, beta=BETA,
        label_smoothing=SMOOTHING,
    )  # fmt: skip
    loss, metrics = dpo.compute_loss(PROMPTS[kind], CHOSEN, REJECTED)
    loss.backward()
    return figures(metrics, dpo.optimizers["model"].gradients)


def known_numbers():
    """Return TRL's figures for GRPO and DPO, by the names of the cases."""
    return json.loads(NUMBERS.read_text("utf-8"))
