"""The pure functions of DreamerV3 against torchrl's numbers for the same inputs.

The numbers come from its ``symlog``, ``two_hot_decode``, ``two_hot_cross_entropy``,
``categorical_kl_terms`` (1 free nat, 1 % mixed in), ``_replay_value_target`` (horizon 333, λ 0.95)
and ``PercentileValueNorm``, with inputs rounded to 4 digits.
"""

import json
from pathlib import Path

import pytest
import torch
from rlox_dreamer.losses import (
    ReturnScale,
    kl_terms,
    log_of,
    mixed_probs,
    replay_returns,
    symexp_bins,
    symlog,
    two_hot_loss,
    two_hot_mean,
)
from torch.nn import functional

_CONTENT = json.loads(Path(__file__).with_name("torchrl_numbers.json").read_text())
NUMBERS = _CONTENT["numbers"]


def given(name):
    """Return an input."""
    return torch.tensor(_CONTENT["inputs"][name])


def assert_same(got, name, atol=1e-6):
    """Compare with torchrl's number, within a relative 1e-5."""
    torch.testing.assert_close(got, torch.tensor(NUMBERS[name]), rtol=1e-5, atol=atol)


def test_symlog():
    """Values from 0 to ±10⁷."""
    assert_same(symlog(given("targets")), "symlog")


def test_two_hot_loss():
    """Bins at symexp of -20 … 20, and targets that are not logarithms."""
    log_probs = functional.log_softmax(given("head_logits"), -1)
    assert_same(two_hot_loss(log_probs, given("targets"), symexp_bins(255)), "two_hot_loss")


def test_two_hot_mean():
    """Float32 sums of bins as large as 4.9e8 agree within 10."""
    probs = functional.softmax(given("head_logits"), -1)
    assert_same(two_hot_mean(probs, symexp_bins(255)), "two_hot_mean", atol=10.0)


@pytest.mark.parametrize("name", ["prior_logits", "near_logits"])
def test_kl_terms_and_their_gradients(name):
    """Distributions far apart, and closer than the free nat, where there is no gradient."""
    near = name == "near_logits"
    post = (0 * given(name) if near else given("post_logits")).requires_grad_()
    prior = given(name).requires_grad_()
    logs = [log_of(mixed_probs(logits, 0.01)) for logits in (post, prior)]
    dyn, rep = (part.mean() for part in kl_terms(*logs, 1.0))
    expected = NUMBERS[f"kl_{name}"]
    assert dyn.item() == pytest.approx(expected["dynamics"], rel=1e-5)
    assert rep.item() == pytest.approx(expected["representation"], rel=1e-5)
    assert (dyn.item() == 1.0) == near
    for loss, of, other, key in ((dyn, prior, post, "prior"), (rep, post, prior, "posterior")):
        gradient, none = torch.autograd.grad(loss, (of, other), allow_unused=True)
        assert none is None
        wanted = torch.tensor(expected[f"gradient_of_{key}"])
        torch.testing.assert_close(gradient, wanted, rtol=1e-5, atol=1e-7)
        assert (gradient.abs().sum() == 0) == near


def test_replay_returns():
    """With one terminated and one truncated episode."""
    returns = replay_returns(
        given("rewards"), given("terminal"), given("last"), given("values"), 1 - 1 / 333, 0.95
    )
    assert_same(returns, "replay_returns", atol=1e-5)


def test_return_scale():
    """Percentiles of 12 batches."""
    scale = ReturnScale()
    assert_same(torch.stack([scale.update(batch) for batch in given("returns")]), "return_scale")
