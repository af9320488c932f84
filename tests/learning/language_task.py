"""Reversing words: a verifiable task for small language models, and who is trained on it.

A model of a million parameters is made from a config, its tokenizer from the letters of the task.
It is fine-tuned to about a third exact answers first, on words of its own; the others begin there.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from rlox_llm.sft import SFT

LETTERS = "abcdefgh"
PAD, EOS, ASKS = 0, 1, 2
LENGTHS = (3, 6)
LIMIT = LENGTHS[1] + 1


@dataclass(frozen=True)
class Task:
    """Prompts of words with their reversals, as token ids."""

    train: list[list[int]]
    test: list[list[int]]


def make_task(seed=0, n=512):
    """Return words of 3 to 6 letters; those of the test are not trained on."""
    rng = np.random.default_rng(seed)
    words = {}
    while len(words) < n + 384:
        word = rng.integers(len(LETTERS), size=rng.integers(LENGTHS[0], LENGTHS[1] + 1)) + 3
        words[tuple(int(w) for w in word)] = None
    rows = [[*word, ASKS] for word in words]
    return Task(rows[:n], rows[n:])


def answer(prompt):
    """Return the right completion."""
    return [*reversed(prompt[:-1]), EOS]


def reward(completions, prompts, prompt_ids, completion_ids):
    """Return 1 for the right completion, else 0."""
    pairs = zip(prompt_ids, completion_ids, strict=True)
    return [float(done.tolist() == answer(asked.tolist())) for asked, done in pairs]


def make_model(seed):
    """Return a Llama of about a million parameters."""
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=len(LETTERS) + 3, hidden_size=160, intermediate_size=384, num_hidden_layers=4,
        num_attention_heads=4, max_position_embeddings=32, eos_token_id=EOS, bos_token_id=None,
        pad_token_id=PAD,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return transformers.LlamaForCausalLM(config).eval()


def accuracy(model, prompts):
    """Return the share of right greedy completions."""
    from rlox_llm.generation import Sampling, complete
    from rlox_llm.generators import RloxGenerator
    from rlox_llm.models import CausalModel

    causal = CausalModel(model, "model")
    rows = [torch.tensor(prompt) for prompt in prompts]
    sampling = Sampling(LIMIT, eos=(EOS,), greedy=True)
    done = complete(RloxGenerator(causal), causal, rows, sampling, torch.Generator())
    found = zip(prompts, done.tokens, done.mask, strict=True)
    return float(np.mean([t[m].tolist() == answer(p) for p, t, m in found]))


def supervised(seed, task, target=1 / 3, limit=3000):
    """Return a model that answers about a third of the test exactly."""
    rows = [{"prompt": prompt, "completion": answer(prompt)} for prompt in make_task(9, 2048).train]
    test = {tuple(p) for p in task.test}
    rows = [row for row in rows if tuple(row["prompt"]) not in test]
    model = make_model(seed)
    sft = SFT(model, learning_rate=1e-3, dataset=rows, batch_size=64, seed=seed, torch_threads=1)
    while accuracy(model, task.test) < target and sft.clock.gradient_steps < limit:
        sft.train(20)
    return copy.deepcopy(model)
