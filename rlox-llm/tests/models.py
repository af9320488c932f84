"""Small language models."""

import pytest
import rlox
import torch
from rlox_llm.generation import Rollouts
from torch import Tensor, nn


class TinyLM(nn.Module):
    """The documents' model: its own generate takes the likeliest token."""

    def __init__(self, vocab_size=100, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, dim)
        self.head = nn.Linear(dim, vocab_size)

    def forward(self, x):
        return self.head(self.embed(x))

    def generate(self, prompts, max_new_tokens=8):
        tokens = prompts.clone()
        for _ in range(max_new_tokens):
            logits = self.forward(tokens)[:, -1, :]
            next_token = logits.argmax(dim=-1, keepdim=True)
            tokens = torch.cat([tokens, next_token], dim=1)
        return tokens


class Bandit(nn.Module):
    """Constant logits."""

    def __init__(self, n=2):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(n))

    def forward(self, x):
        return self.logits.expand(*x.shape, -1)


class Replay:
    """A sampler of fixed completions.

    Args:
        answer: maps prompts to the token ids of all their completions.
    """

    in_process = True

    def __init__(self, answer):
        self.answer = answer

    def sync(self, named_parameters, version):
        self.version = version

    def generate(self, prompts, n, params):
        rows = self.answer(prompts)
        return Rollouts(rows, None, params, self.version)


def keep_gradients(algorithm):
    """Store the gradients of each step instead of applying them, and return the store."""
    optimizer, kept = algorithm.optimizers["model"], list[Tensor]()
    optimizer.apply = lambda rate: kept.append(optimizer.gradients.clone())
    return kept


def seeded(seed, make):
    """Return a model with weights fixed by the seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()


def of_transformers(name, seed=0, kind="ForCausalLM", **options):
    """Return a transformers model, built from a config."""
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{name}Config")(
        **{"vocab_size": 20, "eos_token_id": None, "bos_token_id": None, **options}
    )
    return seeded(seed, lambda: getattr(transformers, f"{name}{kind}")(config))


def tiny_lm(seed=0, vocab_size=20):
    """Return the documents' model, smaller."""
    return seeded(seed, lambda: TinyLM(vocab_size, 8))


def llama(seed=0, **options):
    """Return a Llama."""
    sizes = {
        "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "max_position_embeddings": 32, "pad_token_id": None,
    }  # fmt: skip
    return of_transformers("Llama", seed, **{**sizes, **options})


def gpt2(seed=0, **options):
    """Return a GPT-2."""
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
    return of_transformers("GPT2", seed, "LMHeadModel", **sizes, **options)


def of_limited_reach(kind, seed=0):
    """Return a transformers model with a layer that sees only 6 tokens, or that has a state."""
    attention = {"intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2,
                 "max_position_embeddings": 64}  # fmt: skip
    made = {
        "sliding": ("Mistral", {**attention, "sliding_window": 6, "head_dim": 8}),
        "conv": ("Lfm2", {**attention, "layer_types": ["conv", "full_attention"]}),
        "state": ("Mamba", {}),
    }
    name, options = made[kind]
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "pad_token_id": 0}
    return of_transformers(name, seed, **sizes, **options).eval()


def with_adapter(model, **options):
    """Return a peft model, with a new adapter on all layers."""
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM", **options)
    return peft.get_peft_model(model, settings)


def count_sevens(completions, prompts):
    """Reward each 7 of a completion."""
    return [float((row[prompts.shape[1] :] == 7).sum()) for row in completions]


def make_grpo(model=None, reward_fn=count_sevens, **options):
    """Return a GRPO that samples, without a reference."""
    options = {"kl_coef": 0.0, "sampler": "rlox", **options}
    return rlox.algorithms.GRPO(tiny_lm() if model is None else model, None, reward_fn, **options)


def weights(algorithm):
    """Return a copy of all trained weights."""
    return torch.cat([p.detach().flatten() for p in algorithm.model.parameters()]).clone()


LETTERS = "abcdefgh"
TEMPLATE = (
    "{% for m in messages %}{{ m.content }}{{ eos_token if m.role == 'assistant' else '=' }}"
    "{% endfor %}"
)
"""A chat is the question, a sign and the answer."""


def letter_tokenizer():
    """Return a tokenizer of single letters with a chat template, without training."""
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


def save_folder(folder, seed=0, **options):
    """Write a Llama and its tokenizer into a folder, and return it."""
    model = llama(seed, vocab_size=11, eos_token_id=1, pad_token_id=0, **options)
    sharpened(model).save_pretrained(str(folder))
    letter_tokenizer().save_pretrained(str(folder))
    return folder


def sharpened(model, factor=8.0):
    """Return a model with weights large enough for tokens to depend on earlier ones."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "lora" not in name:
                parameter.mul_(factor)
    return model
