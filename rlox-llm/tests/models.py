"""Small language models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


class TinyLM(nn.Module):
    """The model of the documents: its own generate takes the likeliest token."""

    def __init__(self, vocab_size: int = 100, dim: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, dim)
        self.head = nn.Linear(dim, vocab_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed(x))

    def generate(self, prompts: Tensor, max_new_tokens: int = 8) -> Tensor:
        tokens = prompts.clone()
        for _ in range(max_new_tokens):
            logits = self.forward(tokens)[:, -1, :]
            next_token = logits.argmax(dim=-1, keepdim=True)
            tokens = torch.cat([tokens, next_token], dim=1)
        return tokens


class Bandit(nn.Module):
    """Logits that depend on nothing."""

    def __init__(self, n: int = 2) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(n))

    def forward(self, x: Tensor) -> Tensor:
        return self.logits.expand(*x.shape, -1)


def tiny_lm(seed: int = 0, vocab_size: int = 20) -> TinyLM:
    """Return a model whose weights the seed fixes."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return TinyLM(vocab_size, 8)


def llama(seed: int = 0, **options: Any) -> nn.Module:
    """Return a Llama of transformers, built from a config."""
    import pytest

    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        **{
            "vocab_size": 20, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 2, "max_position_embeddings": 32, "eos_token_id": None,
            "bos_token_id": None, "pad_token_id": None, **options,
        }
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return transformers.LlamaForCausalLM(config)


def gpt2(seed: int = 0) -> nn.Module:
    """Return a GPT-2 of transformers, built from a config."""
    import pytest

    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=20, n_embd=16, n_layer=2, n_head=2, n_positions=32, bos_token_id=None,
        eos_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return transformers.GPT2LMHeadModel(config)


def of_limited_reach(kind: str, seed: int = 0) -> nn.Module:
    """Return a model of transformers with a layer that sees 6 tokens, or that has a state."""
    import pytest

    transformers = pytest.importorskip("transformers")
    sizes = {
        "vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 2, "eos_token_id": None,
        "bos_token_id": None, "pad_token_id": 0,
    }  # fmt: skip
    attention = {"intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2,
                 "max_position_embeddings": 64}  # fmt: skip
    made = {
        "sliding": ("Mistral", {**attention, "sliding_window": 6, "head_dim": 8}),
        "conv": ("Lfm2", {**attention, "layer_types": ["conv", "full_attention"]}),
        "state": ("Mamba", {}),
    }  # fmt: skip
    name, options = made[kind]
    config = getattr(transformers, f"{name}Config")(**sizes, **options)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return getattr(transformers, f"{name}ForCausalLM")(config).eval()


def count_sevens(completions: list[Tensor], prompts: Tensor) -> list[float]:
    """Reward each 7 of a completion."""
    return [float((row[prompts.shape[1] :] == 7).sum()) for row in completions]


LETTERS = "abcdefgh"
TEMPLATE = (
    "{% for m in messages %}{{ m.content }}{{ eos_token if m.role == 'assistant' else '=' }}"
    "{% endfor %}"
)
"""A chat is the question, a sign and the answer."""


def letter_tokenizer() -> Any:
    """Return a tokenizer of single letters with a chat template, trained on nothing."""
    import pytest

    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    tokens = ["<pad>", "<eos>", "=", *LETTERS]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<pad>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    made.decoder = tokenizers.decoders.Fuse()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", chat_template=TEMPLATE
    )


def save_folder(folder: Path, seed: int = 0, **options: Any) -> Path:
    """Write a Llama and its tokenizer into a folder, and return it."""
    model = llama(seed, vocab_size=11, eos_token_id=1, pad_token_id=0, **options)
    sharpened(model).save_pretrained(str(folder))
    letter_tokenizer().save_pretrained(str(folder))
    return folder


def sharpened(model: Any, factor: float = 8.0) -> Any:
    """Return a model whose tokens depend on what came before, unlike those of small weights."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "lora" not in name:
                parameter.mul_(factor)
    return model
