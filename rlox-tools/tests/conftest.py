"""The command line with an algorithm that counts, as the tests of core have it."""

import importlib.util
import sys
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "rlox-core" / "tests"


def _load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_core = _load("fixtures_of_core", CORE / "conftest.py")
_cli = _load("fixtures_of_core_cli", CORE / "cli" / "conftest.py")
counting, install, fresh_registry = _core.counting, _core.install, _core.fresh_registry
plugin, run, start, hold, kept = _cli.plugin, _cli.run, _cli.start, _cli.hold, _cli.kept
_workplace, _reference_kernels = _cli._workplace, _core._reference_kernels


@pytest.fixture(autouse=True)
def _tools(_workplace, monkeypatch):
    """Look at the tools too."""
    monkeypatch.setenv("RLOX_PLUGINS", "rlox-counting,rlox-tools")


@pytest.fixture
def trained(run, kept):
    """Train three seeds, one of them with timing, and a run with another option."""

    def make():
        arguments = ("train", "counting", "--env", "CartPole-v1", "--eval-episodes", 2, "--quiet",
                     "--total-timesteps", 80, "--eval-freq", 20)  # fmt: skip
        for seed in range(3):
            timing = ("--callback", "timing") if seed == 0 else ()
            folder = f"runs/sweep/seed-{seed}"
            assert run(*arguments, *timing, "--seed", seed, "--run-dir", folder).code == 0
        assert run(*arguments, "--n-updates", 1, "--run-dir", "runs/other").code == 0

    kept("trained", make)
