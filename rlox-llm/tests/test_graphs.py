"""Decoding with graphs of fixed shapes gives the completions of decoding with a growing cache."""

import pytest
import torch
from models import gpt2, llama, sharpened
from rlox_llm.generation import Sampling
from rlox_llm.generators import RloxGenerator
from rlox_llm.graphs import GraphDecoder, captured
from rlox_llm.models import CausalModel

DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    ),
]
PROMPTS = [[1, 2, 3, 4, 5], [4], [5, 6, 7]]


def uncaptured(step):
    """Return the step itself, after taking it once like a capture."""
    step()
    return step


def samplers(make_model, device):
    """Return a model, a sampler with graphs, and one without."""
    model = CausalModel(sharpened(make_model()).to(device), "model")
    by_graph, plain = RloxGenerator(model), RloxGenerator(model)
    by_graph.graphs = GraphDecoder(model, captured if device == "cuda" else uncaptured)
    plain.graphs = None
    return model, by_graph, plain


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("make_model", "more"),
    [
        (llama, {"top_k": 7, "top_p": 0.9, "min_p": 0.01, "temperature": 0.7}),
        (gpt2, {"greedy": True}),
    ],
)
def test_graphs_sample_what_the_growing_cache_samples(make_model, device, more):
    """Also for other prompts, after weights have changed in place, and for another number."""
    model, by_graph, plain = samplers(make_model, device)
    made = []
    for seed, prompts, n in ((0, PROMPTS, 4), (1, PROMPTS[::-1], 4), (2, PROMPTS[:2], 4),
                             (3, PROMPTS, 4)):  # fmt: skip
        params = Sampling(20, eos=(3, 11), seed=seed, **more)
        found, expected = (each.generate(prompts, n, params) for each in (by_graph, plain))
        assert found.token_ids == expected.token_ids
        for a, b in zip(found.logprobs or (), expected.logprobs or (), strict=True):
            assert a == pytest.approx(b, abs=1e-4)
        made.append(len(by_graph.graphs._graphs) if by_graph.graphs else 0)
        with torch.no_grad():
            for parameter in model.module.parameters():
                parameter.mul_(1.01)
    assert made == [1, 1, 2, 2], "a graph was made again, or is missing"


def test_a_model_that_a_graph_does_not_fit_is_sampled_without(recwarn):
    """A model that counts the cache's positions would be sampled wrongly."""

    class Counting(torch.nn.Module):
        """A llama whose logits depend on the length of its cache."""

        def __init__(self):
            super().__init__()
            self.inner = sharpened(llama())
            self.config = self.inner.config

        def forward(
            self, input_ids, attention_mask=None, position_ids=None,
            past_key_values=None, use_cache=None,
        ):  # fmt: skip
            seen = 0 if past_key_values is None else past_key_values.get_seq_length()
            out = self.inner(
                input_ids, attention_mask=attention_mask, position_ids=position_ids,
                past_key_values=past_key_values, use_cache=use_cache,
            )  # fmt: skip
            out.logits[..., 0] += seen
            return out

    model, by_graph, plain = samplers(Counting, "cpu")
    assert model.takes_cache
    params = Sampling(6, seed=5)
    found, expected = (each.generate(PROMPTS, 2, params) for each in (by_graph, plain))
    assert found.token_ids == expected.token_ids
    (warning,) = (w for w in recwarn if issubclass(w.category, RuntimeWarning))
    assert "sampled without CUDA graphs, which is slower: log-prob" in str(warning.message)
    by_graph.generate(PROMPTS, 2, params)
    assert len([w for w in recwarn if issubclass(w.category, RuntimeWarning)]) == 1


def test_a_step_that_cannot_be_captured_is_taken_without():
    """A forward pass that waits for the device, for example."""
    _, by_graph, plain = samplers(llama, "cpu")

    def fails(step):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    by_graph.graphs = GraphDecoder(by_graph.model, fails)
    params = Sampling(6, seed=5)
    with pytest.warns(RuntimeWarning, match="slower: operation not permitted when stream is cap"):
        found = by_graph.generate(PROMPTS, 2, params)
    assert found.token_ids == plain.generate(PROMPTS, 2, params).token_ids
