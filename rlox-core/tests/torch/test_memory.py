"""Tests of :mod:`rlox.nn.mlp`."""

import pytest
import torch
from rlox.nn import Memory

KINDS = ("lstm", "gru")


def generator():
    """Return a seeded generator."""
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("kind", KINDS)
def test_sequences_are_steps_with_resets(kind):
    """Outputs, last state and gradients are those of one step at a time, for any starts."""
    memory = Memory(3, 5, kind, generator=generator())
    features = torch.randn(12, 4, 3, generator=generator())
    state = torch.randn(4, memory.state_size, generator=generator())
    starts = torch.rand(12, 4, generator=generator()) < 0.2
    starts[0, 1] = True
    outputs, last = memory(features, state, starts)
    outputs.square().sum().backward()
    gradients = [p.grad.clone() for p in memory.parameters() if p.grad is not None]
    memory.zero_grad()
    expected = []
    for step, start in zip(features, starts, strict=True):
        state = state * ~start.unsqueeze(1)
        output, state = memory(step.unsqueeze(0), state, torch.zeros(1, 4, dtype=torch.bool))
        expected.append(output)
    torch.testing.assert_close(outputs, torch.cat(expected))
    torch.testing.assert_close(last, state)
    torch.cat(expected).square().sum().backward()
    assert gradients
    for gradient, parameter in zip(gradients, memory.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_orthogonal_and_seeded(kind):
    """Biases are 0, and torch's global generator plays no part."""
    before = torch.get_rng_state()
    memory = Memory(4, 4, kind, generator=generator())
    assert torch.equal(torch.get_rng_state(), before)
    for name, parameter in memory.named_parameters():
        if "bias" in name:
            assert not parameter.any()
        else:
            torch.testing.assert_close(parameter.T @ parameter, torch.eye(4), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_weights_in_one_piece_give_the_same_bits(kind, monkeypatch):
    """As a GPU is given them; the gradients reach the layer's own."""
    memory = Memory(3, 8, kind)
    features, state = torch.randn(5, 2, 3), torch.randn(2, memory.state_size)
    starts, found = torch.zeros(5, 2, dtype=torch.bool), []
    for on_gpu in (False, True):
        monkeypatch.setattr(torch.Tensor, "is_cuda", on_gpu)
        memory.zero_grad()
        output, after = memory(features, state, starts)
        (output.sum() + after.sum()).backward()
        monkeypatch.undo()
        found.append([output, after, *(p.grad for p in memory.parameters())])
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))
