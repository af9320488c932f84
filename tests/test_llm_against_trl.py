"""Losses, metrics and gradients through whole models against TRL's trainers.

Both get the same completions and rewards (``rlox-llm/tests/trl_cases.py``). Run as a script, this
file writes TRL's numbers, which the tests of rlox-llm compare with where TRL is not installed.
"""

import copy
import json
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "rlox-llm" / "tests"))
from trl_cases import (  # a module beside the family's tests
    BETA,
    CASES,
    CHOSEN,
    COMPLETIONS,
    EOS,
    GROUP,
    LIMIT,
    NUMBERS,
    PAD,
    PAIR_LOSSES,
    PROMPTS,
    REJECTED,
    REWARDS,
    SMOOTHING,
    VOCABULARY,
    figures,
    known_numbers,
    make_model,
    ours_dpo,
    ours_grpo,
    require_close,
)

trl = pytest.importorskip("trl")
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")
tokenizers = pytest.importorskip("tokenizers")

pytestmark = [
    pytest.mark.slow,  # rlox-llm's tests compare with the same numbers, which were kept
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

OF_LOSS = ("loss_type", "importance_sampling_level", "epsilon", "epsilon_high", "delta",
           "use_bias_correction_kl")  # fmt: skip
"""Options that a trainer heeds when it computes a loss, not before."""


def tokenizer():
    """Return a tokenizer of one word a token, which the trainers want to see."""
    vocabulary = {f"t{i:02d}": i for i in range(VOCABULARY)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="t00"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=f"t{PAD:02d}", eos_token=f"t{EOS:02d}"
    )


def text(ids):
    """Return ids as text."""
    return " ".join(f"t{i:02d}" for i in ids)


def gradients_of(model):
    """Return all gradients as one vector."""
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad])


def common(folder, rows):
    """Return what both trainers are given."""
    return {
        "output_dir": str(folder / "out"), "use_cpu": True, "bf16": False, "report_to": "none",
        "gradient_checkpointing": False, "per_device_train_batch_size": rows,
    }  # fmt: skip


def policy_and_reference(kind, folder):
    """Return the policy, whose reference the trainer loads from a folder."""
    if kind == "adapter":  # its reference is a copy of the adapter as it came
        return make_model(kind, 1)
    make_model(kind, 1).save_pretrained(str(folder))
    loaded = transformers.AutoModelForCausalLM.from_pretrained(str(folder))
    return loaded.eval()


def move_to_policy(model, kind):
    """Give the policy of a trainer weights other than those of its reference."""
    policy = make_model(kind).state_dict()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in policy:
                parameter.copy_(policy[name])


def rows_of(kind):
    """Return a row of the dataset for each completion."""
    return [{"prompt": text(prompt)} for prompt in PROMPTS[kind] for _ in range(GROUP)]


@cache
def grpo_trainer(kind, options):
    """Return TRL's trainer, whose reference has other weights than the policy, and its batch."""
    prompts = PROMPTS[kind]
    place = {text(prompt): i for i, prompt in enumerate(prompts)}

    def reward(prompts, completions, **_):
        return [REWARDS[place[p] * GROUP + i % GROUP] for i, p in enumerate(prompts)]

    given = dict(options)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arguments = trl.GRPOConfig(
            **common(folder, len(COMPLETIONS)), num_generations=GROUP, max_completion_length=LIMIT,
            beta=given.pop("kl_coef", 0.04), **given,
        )  # fmt: skip
        rows = rows_of(kind)
        trainer = trl.GRPOTrainer(
            model=policy_and_reference(kind, folder), reward_funcs=reward, args=arguments,
            processing_class=tokenizer(), train_dataset=datasets.Dataset.from_list(rows[::GROUP]),
        )  # fmt: skip
    move_to_policy(trainer.model, kind)
    trainer.current_gradient_accumulation_steps = 1
    trainer._generate_single_turn = lambda *_: (copy.deepcopy(COMPLETIONS), None)
    trainer.model.train()
    return trainer, trainer._generate_and_score_completions(rows)


def trl_grpo(case, old):
    """Return the figures of TRL's trainer."""
    before = {k: v for k, v in case.options.items() if k not in OF_LOSS}
    trainer, inputs = grpo_trainer(case.model, tuple(before.items()))
    defaults = {"loss_type": "dapo", "importance_sampling_level": "token", "epsilon": 0.2,
                "delta": None, "use_bias_correction_kl": True}  # fmt: skip
    of_loss = defaults | {k: v for k, v in case.options.items() if k in OF_LOSS}
    trainer.loss_type = of_loss["loss_type"]
    trainer.importance_sampling_level = of_loss["importance_sampling_level"]
    trainer.epsilon_low = of_loss["epsilon"]
    trainer.epsilon_high = of_loss.get("epsilon_high", of_loss["epsilon"])
    trainer.args.delta = of_loss["delta"]
    trainer.args.use_bias_correction_kl = of_loss["use_bias_correction_kl"]
    if old is not None:
        inputs = {**inputs, "old_per_token_logps": old}
    trainer._metrics["train"].clear()
    trainer.model.zero_grad()
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    logged = {name: values[-1] for name, values in trainer._metrics["train"].items()}
    numbers = {
        "loss": float(loss.detach()),
        "kl": logged.get("kl", 0.0),
        "clip_fraction": logged.get("clip_ratio/region_mean", logged.get("cispo_clip_ratio", 0.0)),
    }
    return figures(numbers, gradients_of(trainer.model))


@cache
def dpo_trainer(kind):
    """Return TRL's trainer and its batch, rows filled up on the right."""
    prompts = PROMPTS[kind]
    rows = [
        {"prompt": text(p), "chosen": text(c[:-1]), "rejected": text(r[:-1])}
        for p, c, r in zip(prompts, CHOSEN, REJECTED, strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        trainer = trl.DPOTrainer(
            model=make_model(kind, 1), ref_model=make_model(kind, 1) if kind != "adapter" else None,
            args=trl.DPOConfig(**common(Path(folder), 2), beta=BETA, label_smoothing=SMOOTHING),
            train_dataset=datasets.Dataset.from_list(rows), processing_class=tokenizer(),
        )  # fmt: skip
    move_to_policy(trainer.model, kind)
    whole = [p + c for p, c in zip([*prompts, *prompts], [*CHOSEN, *REJECTED], strict=True)]
    width = max(map(len, whole))
    batch = {
        "input_ids": torch.tensor([row + [PAD] * (width - len(row)) for row in whole]),
        "attention_mask": torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in whole]),
        "completion_mask": torch.tensor(
            [[0] * len(p) + [1] * (len(r) - len(p)) + [0] * (width - len(r))
             for p, r in zip([*prompts, *prompts], whole, strict=True)]
        ),
    }  # fmt: skip
    trainer.model.train()
    return trainer, batch


def trl_dpo(kind, loss_type):
    """Return the figures of TRL's trainer."""
    trainer, batch = dpo_trainer(kind)
    trainer.loss_types, trainer.loss_weights = [loss_type], [1.0]
    trainer._metrics["train"].clear()
    trainer.model.zero_grad()
    loss = trainer._compute_loss(trainer.model, batch, False)
    loss.backward()
    logged = trainer._metrics["train"]
    numbers = {
        "loss": float(loss.detach()),
        "chosen_reward": logged["rewards/chosen"][-1],
        "rejected_reward": logged["rewards/rejected"][-1],
        "accuracy": logged["rewards/accuracies"][-1],
        "margin": logged["rewards/margins"][-1],
    }
    return figures(numbers, gradients_of(trainer.model))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_grpo_through_a_model(case):
    """Ours, and the numbers that are kept, are the trainer's."""
    ours, old = ours_grpo(case)
    theirs = trl_grpo(case, old)
    require_close(ours, theirs)
    require_close(known_numbers()["grpo"][case.name], theirs)


@pytest.mark.parametrize("loss_type", PAIR_LOSSES)
@pytest.mark.parametrize("kind", PROMPTS)
def test_dpo_through_a_model(kind, loss_type):
    """Ours, and the numbers that are kept, are the trainer's."""
    theirs = trl_dpo(kind, loss_type)
    require_close(ours_dpo(kind, loss_type), theirs)
    require_close(known_numbers()["dpo"][f"{kind}, {loss_type}"], theirs)


def write():
    """Write TRL's numbers."""
    warnings.simplefilter("ignore")
    numbers = {
        "grpo": {case.name: trl_grpo(case, ours_grpo(case)[1]) for case in CASES},
        "dpo": {f"{kind}, {name}": trl_dpo(kind, name) for kind in PROMPTS for name in PAIR_LOSSES},
    }
    NUMBERS.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
