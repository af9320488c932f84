"""Tokens that go through a transformers model, and those whose logits are computed."""

import pytest
import torch
from models import llama, make_grpo, of_limited_reach, sharpened
from rlox.errors import ConfigError
from rlox_llm.generation import Sampling, complete
from rlox_llm.generators import RloxGenerator
from rlox_llm.models import CausalModel
from torch import nn

N, GROUP, T = 8, 4, 3
LONGEST = 10
PROMPTS = [torch.arange(LONGEST), torch.arange(7)]


def counting(model):
    """Count the positions that a model computes from now on, and return the counts."""
    seen = {"tokens": 0, "logits": 0}

    def tokens(module, given):
        seen["tokens"] += given[0].numel()

    def logits(module, given):
        seen["logits"] += given[0].shape[0] * given[0].shape[1]

    model.model.embed_tokens.register_forward_pre_hook(tokens)
    model.lm_head.register_forward_pre_hook(logits)
    return seen


def test_prompts_go_once_through_the_model_for_all_their_completions():
    """In learning, tokens before the completions get no logits."""
    model = llama()
    seen = counting(model)
    prompts = [prompt for prompt in PROMPTS for _ in range(GROUP)]
    tokens, mask = torch.ones(N, T, dtype=torch.long), torch.ones(N, T, dtype=torch.bool)
    CausalModel(model, "model").logps(prompts, tokens, mask)
    assert seen["tokens"] == len(PROMPTS) * (LONGEST - 1) + N * T
    assert seen["logits"] == len(PROMPTS) + N * T  # a prefix needs at least one


@pytest.mark.parametrize("eos", [(), (3, 5, 8, 13)])
def test_sampling_runs_prompts_once_and_drops_what_has_ended(eos):
    """A pass processes one token of each unfinished completion."""
    model = sharpened(llama(), 3.0)
    seen = counting(model)
    causal = CausalModel(model, "model")
    done = complete(
        RloxGenerator(causal), causal, PROMPTS, Sampling(8, eos=eos), torch.Generator(), GROUP
    )
    lengths = int(done.lengths.sum())
    assert (lengths < 8 * N) == bool(eos)
    assert seen["tokens"] == len(PROMPTS) * (LONGEST - 1) + lengths


RAGGED = [torch.arange(n) % 19 + 1 for n in (2, 17, 9, 1)]


def one_by_one(model, prompts, tokens):
    """Return the log-probabilities of completions, from each whole row alone."""
    found = []
    for prompt, completion in zip(prompts, tokens, strict=True):
        with torch.no_grad():
            logits = model(torch.cat([prompt, completion])[None]).logits.float()
        logps = logits.log_softmax(2)[0, len(prompt) - 1 : -1]
        found.append(logps.gather(1, completion[:, None])[:, 0])
    return torch.stack(found)


@pytest.mark.parametrize("kind", ["sliding", "conv", "state"])
def test_layers_of_limited_reach_see_no_padding(kind):
    """Learning and sampling with prompts of several lengths give single rows' probabilities."""
    model = sharpened(of_limited_reach(kind), 2.0)
    causal = CausalModel(model, "model")
    assert not causal.generates
    prompts = [prompt for prompt in RAGGED for _ in range(2)]
    tokens = torch.arange(80).reshape(8, 10) * 7 % 19 + 1
    with torch.no_grad():
        logps = causal.logps(prompts, tokens, torch.ones(8, 10, dtype=torch.bool))
    torch.testing.assert_close(logps, one_by_one(model, prompts, tokens), atol=1e-4, rtol=0)
    done = complete(RloxGenerator(causal), causal, RAGGED, Sampling(10), torch.Generator(), 2)
    expected = one_by_one(model, prompts, done.tokens)
    torch.testing.assert_close(done.logps, expected, atol=1e-4, rtol=0)
    if kind != "state":
        with pytest.raises(ConfigError, match=r"whose layers of the kind '.*' do not see"):
            CausalModel(model, "model", layout="packed")


def test_a_generate_of_no_module_is_the_models_own():
    """Such as a method of a class defined in a notebook or a document."""

    class Generating(nn.Embedding):
        def forward(self, tokens):
            return torch.zeros(*tokens.shape, 4)

        def generate(self, prompts, max_new_tokens=8):
            return prompts

    Generating.generate.__module__ = None
    assert CausalModel(Generating(4, 2), "model").generates


def test_rows_within_a_sliding_window_share_their_prompts():
    """If the window has no effect, prompts go through the model once."""
    model = of_limited_reach("sliding")
    seen = counting(model)
    prompts = [RAGGED[0], RAGGED[0], RAGGED[3], RAGGED[3]]
    tokens = torch.ones(4, 4, dtype=torch.long)
    causal = CausalModel(model, "model")
    logps = causal.logps(prompts, tokens, torch.ones(4, 4, dtype=torch.bool))
    assert seen["tokens"] == 2 * 1 + 4 * 4
    torch.testing.assert_close(logps, one_by_one(model, prompts, tokens), atol=1e-5, rtol=0)


def test_gradient_checkpointing_leaves_sampling_its_cache():
    """Samples and gradient equal those without it."""

    def learnt(**options):
        grpo = make_grpo(sharpened(llama()), max_new_tokens=4, **options)
        loss = grpo.train_step([[1, 2, 3], [4, 5]])["loss"]
        return loss, grpo.predict([[1, 2, 3]])

    plain, checkpointed = learnt(layout="padded"), learnt(gradient_checkpointing=True)
    assert plain[0] == pytest.approx(checkpointed[0], abs=1e-6)
    assert torch.equal(plain[1], checkpointed[1])
