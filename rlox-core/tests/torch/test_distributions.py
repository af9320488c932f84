"""Tests of :mod:`rlox.nn.distributions` and the head against ``torch.distributions``."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from rlox.nn import ActionHead
from rlox.nn.distributions import Categorical
from rlox.spaces.rows import ActionRows
from torch import distributions as td

BOX = spaces.Box(-1, 1, (2,))


def generator(seed=0):
    """Return a seeded generator."""
    return torch.Generator().manual_seed(seed)


def logits(*shape):
    """Return random logits of a wide range."""
    return 5 * torch.randn(*shape, generator=generator(1))


def masks_of(space, size):
    """Return random masks that leave a choice in every column."""
    sizes = [n for leaf in ActionRows(space).leaves for n in leaf.sizes]
    rng = np.random.default_rng(0)
    columns = []
    for n in sizes:
        column = rng.random((size, n)) < 0.4
        column[np.arange(size), rng.integers(n, size=size)] = True
        columns.append(column)
    return torch.from_numpy(np.concatenate(columns, 1))


@pytest.mark.parametrize("sizes", [[3], [2, 4], [4, 1, 3]])
@pytest.mark.parametrize("masked", [False, True])
def test_multi_discrete_is_a_product_of_categoricals(sizes, masked):
    """Log-probabilities and entropies are the sums of torch's, column by column."""
    space = spaces.MultiDiscrete(sizes)
    outputs, masks = logits(50, sum(sizes)), masks_of(space, 50)
    distribution = ActionHead(space)(outputs, masks if masked else None)
    allowed = masks if masked else torch.ones_like(masks)
    parts = [
        td.Categorical(logits=o.masked_fill(~m, -math.inf), validate_args=False)
        for o, m in zip(outputs.split(sizes, 1), allowed.split(sizes, 1), strict=True)
    ]
    actions, log_probs = distribution.sample(generator())
    expected = [part.log_prob(a) for part, a in zip(parts, actions.unbind(1), strict=True)]
    torch.testing.assert_close(log_probs, torch.stack(expected).sum(0))
    torch.testing.assert_close(distribution.log_prob(actions), log_probs)
    torch.testing.assert_close(
        distribution.entropy(), torch.stack([part.entropy() for part in parts]).sum(0),
        atol=1e-4, rtol=1e-4,
    )  # fmt: skip
    modes = [part.probs.argmax(-1) for part in parts]
    assert torch.equal(distribution.mode(), torch.stack(modes, 1))


def test_multi_binary_is_a_product_of_bernoullis():
    """One logit each, that of 1."""
    outputs = logits(50, 4)
    distribution = ActionHead(spaces.MultiBinary(4))(outputs)
    expected = td.Independent(td.Bernoulli(logits=outputs), 1)
    actions, log_probs = distribution.sample(generator())
    torch.testing.assert_close(log_probs, expected.log_prob(actions.float()))
    torch.testing.assert_close(distribution.entropy(), expected.entropy(), atol=1e-5, rtol=1e-5)
    assert torch.equal(distribution.mode(), (outputs > 0).long())
    only_zero = torch.tensor([[True, False] * 4]).expand(50, 8)
    actions, log_probs = ActionHead(spaces.MultiBinary(4))(outputs, only_zero).sample(generator())
    assert not actions.any()
    assert not log_probs.any()


def test_a_box_of_any_shape_is_a_gaussian():
    """Its numbers are columns."""
    head = ActionHead(spaces.Box(-1, 1, (2, 3)), log_std=-0.5)
    mean = logits(50, 6)
    expected = td.Independent(td.Normal(mean, math.exp(-0.5)), 1)
    actions, log_probs = head(mean).sample(generator())
    torch.testing.assert_close(log_probs, expected.log_prob(actions))
    torch.testing.assert_close(head(mean).entropy(), expected.entropy())
    assert torch.equal(head(mean).mode(), mean)


def test_a_nested_space_is_a_product_of_its_leaves():
    """Whole numbers stand beside real ones, masks reach their own leaf."""
    space = spaces.Dict(
        {"a": BOX, "b": spaces.Discrete(3), "c": spaces.Tuple([spaces.MultiBinary(2), BOX])}
    )
    head, outputs, masks = ActionHead(space), logits(50, 9), masks_of(space, 50)
    assert head.output_size == 9
    distribution = head(outputs, masks)
    actions, log_probs = distribution.sample(generator())
    assert actions.dtype == torch.float32
    parts = [
        ActionHead(BOX)(outputs[:, :2]),
        ActionHead(spaces.MultiDiscrete([3]))(outputs[:, 2:5], masks[:, :3]),
        ActionHead(spaces.MultiBinary(2))(outputs[:, 5:7], masks[:, 3:]),
        ActionHead(BOX)(outputs[:, 7:]),
    ]
    columns = actions.split([2, 1, 2, 2], 1)
    expected = [part.log_prob(a) for part, a in zip(parts, columns, strict=True)]
    torch.testing.assert_close(log_probs, torch.stack(expected).sum(0))
    torch.testing.assert_close(
        distribution.entropy(), torch.stack([part.entropy() for part in parts]).sum(0)
    )
    assert space.contains(
        ActionRows(space).take(ActionRows(space).to_env(actions.detach().numpy()), 0)
    )


@given(
    space=st.one_of(
        st.integers(1, 6).map(spaces.Discrete),
        st.lists(st.integers(1, 4), min_size=1, max_size=3).map(spaces.MultiDiscrete),
        st.integers(1, 4).map(spaces.MultiBinary),
    ),
    scale=st.sampled_from([0.0, 1.0, 1e4]),
)
def test_masked_choices_have_no_probability_and_no_gradient(space, scale):
    """Whatever the logits, they are never drawn, and all gradients are finite."""
    head, rows = ActionHead(space), ActionRows(space)
    outputs = (scale * torch.randn(200, head.output_size, generator=generator())).requires_grad_()
    masks = masks_of(space, 200)
    distribution = head(outputs, masks)
    for actions in (distribution.sample(generator())[0], distribution.mode()):
        begin = 0
        for column, n in enumerate(n for leaf in rows.leaves for n in leaf.sizes):
            chosen = actions.reshape(200, -1)[:, column]
            assert masks[torch.arange(200), begin + chosen].all()
            begin += n
    log_probs = distribution.log_prob(distribution.mode())
    entropy = distribution.entropy()
    assert (entropy >= 0).all()
    (log_probs.sum() + entropy.sum()).backward()
    assert outputs.grad.isfinite().all()
    if not isinstance(space, spaces.MultiBinary):
        assert not outputs.grad[~masks].any()


def test_masked_probability_is_exactly_zero():
    """Not merely small, even where the forbidden choice has by far the largest logit."""
    mask = torch.tensor([[False, True, True]])
    distribution = Categorical(torch.tensor([[1e8, 0.0, 0.0]]), mask)
    assert distribution.log_prob(torch.tensor([0])).exp().item() == 0.0
    assert distribution.log_prob(torch.tensor([1])).exp().item() == 0.5
    assert distribution.entropy().item() == pytest.approx(math.log(2))


@torch.no_grad()
def test_masked_samples_have_the_distribution():
    """Pearson's χ² of 20 000 draws stays below the 99.9 % quantile of χ²(2), 13.82."""
    mask = torch.tensor([[True, False, True, True]])
    outputs = torch.tensor([[0.0, 3.0, 1.0, 0.5]])
    distribution = Categorical(outputs.expand(20_000, 4), mask.expand(20_000, 4))
    observed = torch.bincount(distribution.sample(generator())[0], minlength=4)
    expected = 20_000 * torch.softmax(outputs.masked_fill(~mask, -math.inf), -1)[0]
    assert observed[1] == 0
    kept = mask[0]
    assert float(((observed - expected) ** 2 / expected)[kept].sum()) < 13.82
