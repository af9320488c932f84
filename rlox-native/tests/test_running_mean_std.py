"""Running means and variances against NumPy's of the whole stream."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlox_native import RunningMeanStd

STREAMS = st.lists(st.integers(0, 6), min_size=1, max_size=6)


@given(STREAMS, st.sampled_from([(), (3,), (2, 2)]), st.floats(-1e3, 1e3), st.integers(0, 99))
def test_batches_are_the_whole_stream(sizes, shape, offset, seed):
    """For any division into batches, and if parts are merged."""
    rng = np.random.default_rng(seed)
    batches = [rng.standard_normal((n, *shape)) * 3 + offset for n in sizes]
    stream = np.concatenate(batches)
    running, merged = RunningMeanStd(shape), RunningMeanStd(shape)
    for batch in batches:
        running.update(batch)
        part = RunningMeanStd(shape)
        part.update(batch)
        merged.merge(part)
    for got in (running, merged):
        assert got.count == len(stream)
        expected = (stream.mean(0), stream.var(0)) if len(stream) else (0, 1)
        np.testing.assert_allclose(got.mean, np.broadcast_to(expected[0], shape), atol=1e-9)
        np.testing.assert_allclose(got.var, np.broadcast_to(expected[1], shape), atol=1e-9)


def test_a_large_mean_does_not_hide_the_variance():
    """1e9 and two more: sums of squares would lose all digits."""
    running = RunningMeanStd()
    for value in (1e9, 1e9 + 1, 1e9 + 2):
        running.update([value])
    assert running.mean == 1e9 + 1
    assert running.var == pytest.approx(2 / 3)


def test_merged_with_itself_it_has_seen_everything_twice():
    """No deadlock, and the same mean and variance."""
    running = RunningMeanStd()
    running.update([1.0, 2.0, 6.0])
    running.merge(running)
    assert (running.count, float(running.mean), float(running.var)) == (6, 3.0, 14 / 3)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (np.zeros((2, 2)), r"batch must have shape \(B, 3\), got \(2, 2\)"),
        (np.zeros(3), r"batch must have shape \(B, 3\), got \(3,\)"),
        ([[0, 0, 1e308], [0, 0, -1e308]], "batch must have a finite variance"),
        ([[0, np.nan, 0]], "batch must be finite, got a non-finite value at index 1"),
    ],
)
def test_a_wrong_batch_changes_nothing(batch, message):
    """The error names it, and the moments stay."""
    running = RunningMeanStd(3)
    running.update(np.ones((2, 3)))
    with pytest.raises(ValueError, match=message):
        running.update(batch)
    assert (running.count, running.mean.tolist()) == (2, [1.0] * 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": -1}, "state\\['count'\\] must be an integer that is not negative"),
        ({"mean": np.zeros(2)}, "mean must have"),
        ({"mean": np.full(3, np.inf)}, "mean must be finite"),
        ({"squares": np.full(3, -1.0)}, "a sum of squares is not negative"),
        ({"count": 0}, "count is not a valid state: where nothing was seen"),
    ],
)
def test_what_is_no_state_is_refused(change, message):
    """Nothing changes then."""
    running = RunningMeanStd(3)
    running.update(np.ones((2, 3)))
    with pytest.raises(ValueError, match=message):
        running.set_state(running.state() | change)
    assert running.count == 2
