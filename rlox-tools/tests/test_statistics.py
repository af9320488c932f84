"""Tests of :mod:`rlox_tools.analysis`."""

import re

import numpy as np
import pytest
from rlox_tools import analysis
from rlox_tools.analysis import bootstrap_iqm, interquartile_mean


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 2.0, 6.0], 3.0),  # of fewer than four none is left out
        ([100.0, 2.0, 3.0, -50.0], 2.5),
        ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 700.0], 3.5),
        ([9.0, 1.0, 2.0, 3.0, 1000.0], 14 / 3),  # of five one at either end
    ],
)
def test_interquartile_mean_of_few_scores(scores, expected):
    """The outer quarters are left out, rounded down."""
    assert interquartile_mean(scores) == pytest.approx(expected)


def test_interval_covers_the_truth_as_often_as_it_says():
    """Of 95 % intervals about 95 % hold the true value, here 0; fewer for few runs, as is known."""
    rng = np.random.default_rng(1)
    hits = 0
    for seed in range(400):
        scores = rng.laplace(size=10)
        found = bootstrap_iqm([scores], n_resamples=400, seed=seed)
        hits += bool(found.low <= 0 <= found.high)
    assert 0.86 <= hits / 400 <= 0.98


def test_strata_keep_their_number_of_runs():
    """Two tasks without spread have an interval without width; pooled, they would have one."""
    strata = [np.zeros(5), np.ones(5)]
    stratified = bootstrap_iqm(strata)
    assert stratified.low == stratified.value == stratified.high == 0.5
    pooled = bootstrap_iqm([np.concatenate(strata)])
    assert pooled.low < 0.5 < pooled.high


def test_curves_are_estimated_point_by_point():
    """A curve's points are those of the numbers, drawn from the same runs."""
    curves = np.random.default_rng(0).normal(size=(7, 4))
    found = bootstrap_iqm([curves], seed=3)
    assert found.value.shape == found.low.shape == found.high.shape == (4,)
    alone = bootstrap_iqm([curves[:, 2]], seed=3)
    assert [found.low[2], found.high[2]] == [alone.low, alone.high]
    assert found.value[2] == alone.value


def test_same_seed_gives_the_same_interval(monkeypatch):
    """Also when the resamples are drawn in smaller parts, up to the draws' order."""
    scores = np.random.default_rng(0).normal(size=12)
    one, other = bootstrap_iqm([scores], seed=1), bootstrap_iqm([scores], seed=1)
    assert (one.low, one.high) == (other.low, other.high)
    assert one.low != bootstrap_iqm([scores], seed=2).low
    monkeypatch.setattr(analysis, "CHUNK", 1)
    assert bootstrap_iqm([scores], seed=1).low == one.low


@pytest.mark.parametrize(
    ("strata", "options", "message"),
    [
        ([], {}, "there are no scores"),
        ([[]], {}, "there are no scores"),
        ([[1.0], []], {}, "there are no scores"),
        ([[1.0, float("nan")]], {}, "scores must be finite"),
        ([[1.0]], {"confidence": 1.0}, "confidence must lie in (0, 1), got 1.0"),
        ([[1.0]], {"n_resamples": 0}, "n_resamples must be at least 1, got 0"),
    ],
)
def test_wrong_input_is_reported(strata, options, message):
    """No statistic of nothing, and none of NaN."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        bootstrap_iqm(strata, **options)
