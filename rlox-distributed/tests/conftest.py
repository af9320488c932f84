"""Ray's settings, read when a test module imports it, its cluster, and property tests."""

import gc
import os
from pathlib import Path

import pytest
import shared_fixtures  # noqa: F401

# the tests run under `uv run`; see rlox_distributed.ray_cluster.import_ray
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")

OF_RAY = (
    pytest.mark.timeout(900),  # a cluster takes up to a minute to start on a busy machine
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
)


def pytest_collection_modifyitems(items):
    """Mark the tests that start clusters."""
    for item in items:
        if item.path.parent == Path(__file__).parent and item.path.name.startswith("test_ray"):
            for mark in OF_RAY:
                item.add_marker(mark)


@pytest.fixture(scope="module")
def cluster():
    """One cluster for the tests of a file, found by their backends."""
    from rlox_distributed.ray_cluster import import_ray, join_cluster

    joined = join_cluster(None)
    yield
    gc.collect()  # closes what tests left open
    joined.leave()
    assert not import_ray().is_initialized()
