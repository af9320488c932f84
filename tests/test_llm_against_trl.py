"""Losses, metrics and gradients through whole models against TRL's trainers.

Both get the same completions and rewards. Llama, GPT-2 and a Llama with a LoRA adapter are built
from configs; prompts differ in length, and some completions end with an EOS. GPT-2 is not compared
under left padding: TRL passes no position ids there, so that its numbers depend on the padding.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rlox_llm.dpo import DPO
from rlox_llm.generation import Rollouts
from rlox_llm.grpo import GRPO
from torch import Tensor, nn

trl = pytest.importorskip("trl")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
datasets = pytest.importorskip("datasets")
tokenizers = pytest.importorskip("tokenizers")

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

VOCABULARY, EOS, PAD, GROUP, LIMIT = 24, 1, 0, 3, 6
PROMPTS = [[5, 6, 7, 8], [9, 10, 11, 12]]
RAGGED = [[5, 6, 7, 8], [9, 10]]
COMPLETIONS = [
    [3, 4, 1],
    [5, 6, 7, 8, 9, 10],
    [11, 1],
    [4, 4, 4, 4, 4, 1],
    [12, 13, 14, 15, 16, 17],
    [2, 1],
]
REWARDS = [0.9, 0.3, 0.7, 0.1, 0.5, 0.6]


def seeded(make: Callable[[], Any], seed: int) -> Any:
    """Return what ``make`` makes with weights that a seed fixes, and that matter."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = make()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(6)
    return model.eval()


def llama(seed: int = 0) -> nn.Module:
    """Return a Llama."""
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=32, eos_token_id=EOS, bos_token_id=None,
        pad_token_id=PAD,
    )  # fmt: skip
    return seeded(lambda: transformers.LlamaForCausalLM(config), seed)  # type: ignore[no-any-return]


def gpt2(seed: int = 0) -> nn.Module:
    """Return a GPT-2 without dropout."""
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=32, bos_token_id=None,
        eos_token_id=EOS, pad_token_id=PAD, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return seeded(lambda: transformers.GPT2LMHeadModel(config), seed)  # type: ignore[no-any-return]


def with_adapter(seed: int = 0) -> nn.Module:
    """Return a Llama with an adapter that does something."""
    settings = peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    model = peft.get_peft_model(llama(seed), settings)
    drawn = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora" in name:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=drawn))
    return model.eval()  # type: ignore[no-any-return]


def tokenizer() -> Any:
    """Return a tokenizer of one letter a token, which the trainers want to see."""
    vocabulary = {f"t{i:02d}": i for i in range(VOCABULARY)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="t00"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=f"t{PAD:02d}", eos_token=f"t{EOS:02d}"
    )


def text(ids: list[int]) -> str:
    """Return ids as text."""
    return " ".join(f"t{i:02d}" for i in ids)


class Replay:
    """A sampler that returns fixed completions."""

    in_process = True

    def sync(self, named_parameters: Any, version: int) -> None:
        self.version = version

    def generate(self, prompts: Any, n: int, params: Any) -> Rollouts:
        reasons = ["stop" if row[-1] == EOS else "length" for row in COMPLETIONS]
        return Rollouts(COMPLETIONS, None, reasons, params, self.version)


def gradients_of(model: nn.Module) -> Tensor:
    """Return all gradients as one vector."""
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad])


def close(ours: Tensor, theirs: Tensor, relative: float) -> None:
    """Require that two vectors differ by a small part of their length."""
    assert float((ours - theirs).norm()) <= relative * float(theirs.norm())


def saved(model: nn.Module, folder: Path) -> nn.Module:
    """Return a model as loaded from a folder, which the trainer loads its reference from."""
    model.save_pretrained(str(folder))  # type: ignore[operator]
    loaded: nn.Module = transformers.AutoModelForCausalLM.from_pretrained(str(folder))
    return loaded.eval()


def common(folder: Path, rows: int) -> dict[str, Any]:
    """Return what both trainers are given."""
    return {
        "output_dir": str(folder / "out"), "use_cpu": True, "bf16": False, "report_to": "none",
        "gradient_checkpointing": False, "per_device_train_batch_size": rows,
    }  # fmt: skip


def trl_grpo(
    model: nn.Module, prompts: list[list[int]], folder: Path, **options: Any
) -> tuple[float, float, Tensor, Any]:
    """Return loss, KL and gradients of TRL's trainer, and the trainer."""
    place = {text(prompt): i for i, prompt in enumerate(prompts)}

    def reward(prompts: list[str], completions: Any, **_: Any) -> list[float]:
        return [REWARDS[place[p] * GROUP + i % GROUP] for i, p in enumerate(prompts)]

    arguments = trl.GRPOConfig(
        **common(folder, len(COMPLETIONS)), num_generations=GROUP, max_completion_length=LIMIT,
        **options,
    )  # fmt: skip
    rows = [{"prompt": text(prompt)} for prompt in prompts for _ in range(GROUP)]
    trainer = trl.GRPOTrainer(
        model=model, reward_funcs=reward, args=arguments, processing_class=tokenizer(),
        train_dataset=datasets.Dataset.from_list(rows[::GROUP]),
    )  # fmt: skip
    trainer.current_gradient_accumulation_steps = 1
    trainer._generate_single_turn = lambda *_: (copy.deepcopy(COMPLETIONS), None)
    trainer.model.train()
    inputs = trainer._generate_and_score_completions(rows)
    loss = trainer._compute_loss(trainer.model, inputs)
    trainer.model.zero_grad()
    loss.backward()
    kl = trainer._metrics["train"].get("kl", [0.0])[-1]
    return float(loss.detach()), float(kl), gradients_of(trainer.model), trainer


def ours_grpo(
    model: nn.Module, reference: nn.Module | None, prompts: list[list[int]], **options: Any
) -> tuple[float, float, Tensor]:
    """Return loss, KL and gradients of rlox's GRPO, before Adam's step."""
    grpo = GRPO(
        model, reference, lambda rows, prompts: REWARDS, group_size=GROUP, max_new_tokens=LIMIT,
        generator=Replay(), max_grad_norm=None, **options,
    )  # fmt: skip
    optimizer = grpo.optimizers["model"]
    kept: list[Tensor] = []
    optimizer.apply = lambda rate: kept.append(optimizer.gradients.clone())  # type: ignore[method-assign]
    metrics = grpo.train_step(prompts)
    return metrics["loss"], metrics["kl"], kept[0]


CASES: list[Any] = [
    pytest.param(llama, PROMPTS, {}, id="llama"),
    pytest.param(llama, RAGGED, {}, id="llama, ragged prompts"),
    pytest.param(llama, RAGGED, {"loss_type": "grpo"}, id="llama, grpo"),
    pytest.param(llama, RAGGED, {"loss_type": "dr_grpo", "scale_rewards": "none"}, id="dr_grpo"),
    pytest.param(llama, PROMPTS, {"mask_truncated_completions": True}, id="truncated masked"),
    pytest.param(llama, PROMPTS, {"temperature": 0.7}, id="temperature"),
    pytest.param(llama, PROMPTS, {"entropy_coef": 0.05}, id="entropy"),
    pytest.param(gpt2, PROMPTS, {}, id="gpt2"),
    pytest.param(gpt2, PROMPTS, {"loss_type": "bnpo"}, id="gpt2, bnpo"),
]


@pytest.mark.parametrize("layout", ["auto", "padded", "packed"])
@pytest.mark.parametrize(("make_model", "prompts", "options"), CASES)
def test_grpo_through_a_model(
    make_model: Any, prompts: Any, options: dict[str, Any], layout: str, tmp_path: Path
) -> None:
    """Loss and KL to 2e-5, gradients to 2e-4 of their length."""
    reference = saved(make_model(1), tmp_path / "model")
    policy = saved(make_model(1), tmp_path / "model")
    policy.load_state_dict(make_model(0).state_dict())
    ours = ours_grpo(
        copy.deepcopy(policy), reference, prompts, kl_coef=0.04, layout=layout, **options
    )
    loss, kl, gradients, _ = trl_grpo(policy, prompts, tmp_path, beta=0.04, **options)
    assert ours[0] == pytest.approx(loss, abs=2e-5, rel=2e-5)
    assert ours[1] == pytest.approx(kl, abs=2e-5, rel=2e-5)
    close(ours[2], gradients, 2e-4)


def test_grpo_through_an_adapter(tmp_path: Path) -> None:
    """The reference is a copy of the adapter as it came."""
    model = with_adapter()
    ours = ours_grpo(copy.deepcopy(model), copy.deepcopy(model), RAGGED, kl_coef=0.04)
    loss, kl, gradients, _ = trl_grpo(model, RAGGED, tmp_path, beta=0.04)
    assert ours[0] == pytest.approx(loss, abs=2e-5)
    assert ours[1] == pytest.approx(kl, abs=2e-5)
    close(ours[2], gradients, 2e-4)


CHOSEN, REJECTED = [[3, 4, 1], [5, 6, 7, 8, 1]], [[9, 10, 11, 1], [12, 1]]


@pytest.mark.parametrize("make_model", [llama, gpt2, with_adapter])
@pytest.mark.parametrize("loss_type", ["sigmoid", "hinge", "ipo"])
@pytest.mark.parametrize("prompts", [PROMPTS, RAGGED])
def test_dpo_through_a_model(
    make_model: Any, loss_type: str, prompts: list[list[int]], tmp_path: Path
) -> None:
    """Loss and rewards to 2e-5, gradients to 2e-4 of their length; rows filled up on the right."""
    model = make_model(0)
    reference = make_model(1) if make_model is not with_adapter else copy.deepcopy(model)
    dpo = DPO(copy.deepcopy(model), reference, loss_type=loss_type)
    ours, metrics = dpo.compute_loss(prompts, CHOSEN, REJECTED)
    ours.backward()
    rows = [
        {"prompt": text(p), "chosen": text(c[:-1]), "rejected": text(r[:-1])}
        for p, c, r in zip(prompts, CHOSEN, REJECTED, strict=True)
    ]
    trainer = trl.DPOTrainer(
        model=model, ref_model=None if make_model is with_adapter else copy.deepcopy(reference),
        args=trl.DPOConfig(**common(tmp_path, 2), loss_type=[loss_type], beta=0.1),
        train_dataset=datasets.Dataset.from_list(rows), processing_class=tokenizer(),
    )  # fmt: skip
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
    loss = trainer._compute_loss(trainer.model, batch, False)
    trainer.model.zero_grad()
    loss.backward()
    logged = trainer._metrics["train"]
    assert float(ours.detach()) == pytest.approx(float(loss.detach()), abs=2e-5, rel=2e-5)
    for name, theirs in (
        ("chosen_reward", "rewards/chosen"),
        ("rejected_reward", "rewards/rejected"),
    ):
        assert metrics[name] == pytest.approx(logged[theirs][-1], abs=2e-5)
    close(dpo.optimizers["model"].gradients, gradients_of(trainer.model), 2e-4)
