"""Shared fixtures; the suite needs neither torch nor any other rlox distribution."""

import importlib.util
import sys
from pathlib import Path

import cloudpickle
import pytest
from rlox import kernels
from rlox.kernels import reference
from shared_fixtures import fresh_registry, install  # noqa: F401

FOLDER = Path(__file__).parent

collect_ignore = [] if importlib.util.find_spec("torch") else ["torch"]


def _helper(name):
    """Import a helper module that lies beside this file."""
    if name in sys.modules:  # the tests of another distribution share this file
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # a worker process cannot import it by name
    cloudpickle.register_pickle_by_value(module)
    return module


_helper("counting_config")
COUNTING = _helper("counting_algorithm")
SCRIPTED = _helper("scripted_env")


@pytest.fixture(scope="session")
def counting():
    """Return the helper module with an algorithm that counts instead of learning."""
    return COUNTING


@pytest.fixture(scope="session")
def scripted():
    """Return the helper module with an env that plays a script."""
    return SCRIPTED


@pytest.fixture(autouse=True)
def _reference_kernels(monkeypatch):
    """Compute with the NumPy reference, whatever is installed."""
    monkeypatch.setattr(kernels, "backend", lambda: reference)
