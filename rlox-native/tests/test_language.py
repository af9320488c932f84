"""Primitives for language models against plain Python, published numbers, and invariants."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlox_native import (
    compute_batch_group_advantages,
    compute_batch_token_kl,
    compute_group_advantages,
    compute_token_kl,
    compute_token_kl_schulman,
    normalize_advantages,
    pack_sequences,
)

# Far enough apart that Python's statistics distinguish equal and almost equal like two passes.
NUMBERS = st.integers(-(9 * 2**20), 9 * 2**20).map(lambda n: n / 2**20)
GROUPS = st.integers(2, 6).flatmap(
    lambda size: st.tuples(
        st.just(size),
        st.lists(st.lists(NUMBERS, min_size=size, max_size=size), min_size=1, max_size=5),
    )
)
LOG_PROBS = st.lists(st.tuples(st.floats(-9, 0), st.floats(-9, 0)), max_size=30)


@given(GROUPS, st.sampled_from([0, 1]), st.sampled_from([0.0, 1e-4]))
def test_group_advantages_equal_the_definition(groups, ddof, eps):
    """(r - mean) / (std + ε), with Python's own statistics; zeros for equal rewards alone."""
    size, rewards = groups
    expected = []
    for group in rewards:
        std = statistics.stdev(group) if ddof else statistics.pstdev(group)
        mean = statistics.fmean(group)
        expected += [0.0 if std == 0 else (r - mean) / (std + eps) for r in group]
    got = compute_batch_group_advantages(np.ravel(rewards), size, ddof=ddof, eps=eps)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)
    first = compute_group_advantages(rewards[0], ddof=ddof, eps=eps)
    np.testing.assert_array_equal(first, got[:size], strict=True)


@given(st.floats(-1e6, 1e6), st.integers(1, 9), st.sampled_from(["group", "batch", "none"]))
def test_equal_rewards_have_no_advantage(reward, size, scale):
    """Exactly zero at any scale, also in a group of one at any ddof."""
    got = compute_group_advantages([reward] * size, scale=scale, ddof=min(size - 1, 1))
    assert got.tolist() == [0.0] * size
    assert compute_group_advantages([reward], ddof=1).tolist() == [0.0]


def test_scale_of_the_batch_and_none():
    """Deviations from the group's mean, divided by the batch's std or not at all."""
    rewards = [0.0, 2.0, 4.0, 4.0]
    none = compute_batch_group_advantages(rewards, 2, scale="none")
    assert none.tolist() == [-1.0, 1.0, 0.0, 0.0]
    batch = compute_batch_group_advantages(rewards, 2, scale="batch")
    np.testing.assert_allclose(batch, none / np.std(rewards), rtol=1e-15)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([1.0, 2.0, 3.0], 2), {}, "rewards must hold whole groups of group_size = 2, got 3"),
        (([1.0, 2.0], 2), {"ddof": 2}, r"ddof must lie in \[0, 1\], got 2"),
        (([1.0, 2.0], 2), {"scale": "grup"}, "scale must be one of 'group', 'batch', 'none'"),
        ((np.zeros((2, 2)), 2), {}, "rewards must have 1 dimension, got 2"),
    ],
)
def test_wrong_groups_are_refused(arguments, options, message):
    """The error names the argument."""
    with pytest.raises(ValueError, match=message):
        compute_batch_group_advantages(*arguments, **options)


@given(LOG_PROBS)
def test_divergences_equal_their_sums(pairs):
    """Σ e^p (p - q), and Schulman's k3, Σ e^{q-p} - (q - p) - 1, which is never negative."""
    p, q = np.array(pairs).reshape(-1, 2).T
    exact = math.fsum(math.exp(a) * (a - b) for a, b in pairs)
    k3 = math.fsum(math.exp(b - a) - (b - a) - 1 for a, b in pairs)
    assert compute_token_kl(p, q) == pytest.approx(exact, abs=1e-9)
    assert compute_token_kl_schulman(p, q) == pytest.approx(k3, rel=1e-9, abs=1e-9)
    assert compute_token_kl_schulman(p, q) >= 0


def test_a_token_without_probability_adds_nothing():
    """0 log 0 is 0; the divergence is infinite if only the reference has probability 0."""
    assert compute_token_kl([-math.inf, 0.0], [-1.0, 0.0]) == 0.0
    assert compute_token_kl([0.0], [-math.inf]) == math.inf


def test_wrong_log_probs_are_refused():
    """Different lengths, an incomplete sequence, and values that are not numbers."""
    with pytest.raises(ValueError, match="log_q must have length 2 like log_p, got 1"):
        compute_token_kl([0.0, 0.0], [0.0])
    with pytest.raises(ValueError, match="log_p must hold whole sequences of seq_len = 2, got 3"):
        compute_batch_token_kl([0.0] * 3, [0.0] * 3, 2)
    with pytest.raises(TypeError, match="log_p must hold real numbers"):
        compute_token_kl(["a"], [0.0])


@given(st.lists(st.integers(1, 12), max_size=40), st.integers(12, 20))
def test_packing_holds_every_sequence_once(lengths, max_len):
    """Rows fill from the left, nothing is lost, and no sequence would fit into an earlier row."""
    result = pack_sequences(lengths, max_len)
    packed, masks, positions = result
    assert packed.shape == masks.shape == positions.shape == (len(packed), max_len)
    assert sorted(packed[masks]) == list(range(sum(lengths)))
    assert (packed[~masks] == -1).all()
    assert (positions[~masks] == 0).all()
    assert sorted(result.indices) == list(range(len(lengths)))
    starts = np.cumsum([0, *lengths])
    flat, at = packed[masks], result.cu_seqlens
    assert at.dtype == np.int32
    for k, sequence in enumerate(result.indices):
        expected = np.arange(starts[sequence], starts[sequence + 1])
        np.testing.assert_array_equal(flat[at[k] : at[k + 1]], expected)
        np.testing.assert_array_equal(positions[masks][at[k] : at[k + 1]], expected - expected[0])
    used = np.bincount(result.rows, [lengths[i] for i in result.indices], len(packed))
    np.testing.assert_array_equal(used, masks.sum(1))
    for row in range(1, len(packed)):
        smallest = min(lengths[i] for i in result.indices[result.rows == row])
        assert all(used[:row] + smallest > max_len)


def test_packing_tokens():
    """Tokens of any integer type and lists; 0 is the padding."""
    packed, masks, positions = pack_sequences([np.uint32([7, 8]), [9], [4, 5, 6]], 4)
    assert packed.tolist() == [[4, 5, 6, 9], [7, 8, 0, 0]]
    assert masks.tolist() == [[True] * 4, [True, True, False, False]]
    assert positions.tolist() == [[0, 1, 2, 0], [0, 1, 0, 0]]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([3, 9], 8), ValueError, r"every length must lie in \[1, 8\], got 9"),
        (([[]], 8), ValueError, r"every length must lie in \[1, 8\], got 0"),
        (([[0.5]], 8), TypeError, "tokens must be integers, got dtype float64"),
        (([True], 8), TypeError, "every length must be an integer, got bool"),
        (([np.array([1, 2**63], np.uint64)], 8), ValueError, "tokens must fit int64, got 92.* 1$"),
    ],
)
def test_what_cannot_be_packed_is_refused(arguments, error, message):
    """The error names lengths and tokens of the wrong size or kind."""
    with pytest.raises(error, match=message):
        pack_sequences(*arguments)


@given(st.lists(NUMBERS, min_size=2, max_size=30), st.sampled_from([0, 1]))
def test_normalised_advantages_have_mean_0_and_deviation_1(values, ddof):
    """Unless all are equal; in any shape, in their own type."""
    array = np.array(values)[None]
    got = normalize_advantages(array, ddof=ddof, eps=0.0)
    assert got.shape == array.shape
    if len(set(values)) == 1:
        assert not got.any()
        return
    assert got.mean() == pytest.approx(0, abs=1e-6)
    assert got.std(ddof=ddof) == pytest.approx(1, rel=1e-6)
    assert normalize_advantages(np.float32(values)).dtype == np.float32


@pytest.mark.parametrize("size", [1e-30, 1e-9, 1.0, 1e30])
def test_advantages_do_not_depend_on_the_unit_of_rewards(size):
    """Differences of tiny rewards are not lost."""
    rewards = size * np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(compute_group_advantages(rewards), [-(1.5**0.5), 0, 1.5**0.5])
    np.testing.assert_allclose(normalize_advantages(rewards, eps=0.0), [-1, 0, 1])


@pytest.mark.parametrize(
    "function",
    [
        compute_group_advantages,
        normalize_advantages,
        lambda rewards, ddof: compute_batch_group_advantages(rewards, 3, ddof=ddof),
    ],
)
@pytest.mark.parametrize(
    ("ddof", "error", "message"),
    [
        (-1, ValueError, "ddof must be at least 0, got -1"),
        (3, ValueError, r"ddof must lie in \[0, 2\], got 3"),
        (1.0, TypeError, "ddof must be an integer, got float"),
    ],
)
def test_degrees_of_freedom_are_checked_alike(function, ddof, error, message):
    """A ddof that leaves none is refused everywhere."""
    with pytest.raises(error, match=message):
        function([1.0, 2.0, 3.0], ddof=ddof)
