"""Presets reach their scores again: one seed each, by ``nox -s presets``."""

import os
import time

import pytest
import rlox
from rlox.config.presets import list_presets
from rlox.errors import MissingDependencyError

MINUTES = 10
"""Presets that take longer, or nobody knows how long, are trained by name only."""


def parameters():
    """Return every preset that has a score, marked by how long it takes."""
    return [
        pytest.param(
            preset,
            id=f"{preset.algorithm}-{preset.full_name}".replace("/", "-"),
            marks=pytest.mark.presets
            if preset.minutes is not None and preset.minutes <= MINUTES
            else pytest.mark.long_presets,
        )
        for preset in list_presets()
        if preset.score is not None
    ]


@pytest.mark.parametrize("preset", parameters())
def test_preset_reaches_its_score(preset):
    """A training of seed 0 ends above the score less the tolerance."""
    parts = {}
    if preset.dataset is not None:
        parts["dataset"] = os.environ.get("RLOX_PRESET_DATASET")
        if parts["dataset"] is None:
            pytest.skip(f"set RLOX_PRESET_DATASET to the file of {preset.dataset}")
    started = time.perf_counter()
    try:
        algorithm = rlox.make(
            preset.algorithm, preset.env, preset=preset.full_name, seed=0, **parts
        )
    except MissingDependencyError as error:
        pytest.skip(f"{error} ({preset.needs})")
    with algorithm:
        algorithm.train(preset.steps)
        seconds = time.perf_counter() - started
        found = algorithm.evaluate(n_episodes=preset.episodes).mean_return
    assert preset.score is not None
    assert preset.tolerance is not None
    lowest = preset.score - preset.tolerance
    print(
        f"{preset.algorithm} {preset.full_name}: {found:.2f} after {seconds:.0f} s; expected "
        f"{preset.score:g}, at least {lowest:g} ({preset.source})",
        flush=True,
    )
    assert found >= lowest
