"""The command line in this process and in others, with an algorithm that counts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from shared_fixtures import run  # noqa: F401

PLUGIN = """
import rlox

@rlox.hookimpl
def rlox_algorithms():
    yield rlox.AlgorithmSpec(
        name="counting", summary="Counts instead of learning.", paper="https://example.org/paper",
        config="counting_config:CountingConfig",
        factory="counting_algorithm:CountingAlgorithm",
    )
"""
TESTS = Path(__file__).parents[1]


@pytest.fixture
def plugin():
    """Return the code of the plugin that registers the counting algorithm."""
    return PLUGIN


@pytest.fixture(autouse=True)
def _workplace(install, monkeypatch, tmp_path):
    """Install the counting algorithm, look at no other plugin, and work in an empty folder."""
    install("rlox-counting", PLUGIN)
    monkeypatch.setenv("RLOX_PLUGINS", "rlox-counting")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, [tmp_path / "site-packages", TESTS])))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)


@pytest.fixture(scope="session")
def kept(tmp_path_factory):
    """Return a function that fills the working folder once, and with copies from then on."""
    base = tmp_path_factory.mktemp("kept")

    def fill(name, make):
        if (base / name).exists():
            shutil.copytree(base / name, ".", dirs_exist_ok=True)
        else:
            make()
            shutil.copytree(".", base / name)

    return fill


@pytest.fixture
def hold():
    """Return a function that has trainings wait at a count of env steps, or go on again."""

    def hold(env_steps):
        if env_steps is None:
            Path("hold").unlink()
        else:
            Path("new").write_text(str(env_steps), encoding="utf-8")
            Path("new").replace("hold")

    return hold


@pytest.fixture
def start():
    """Return a function that starts the command line in a process, and kill what is left."""
    processes = []

    def start(*arguments, stdout=subprocess.PIPE):
        process = subprocess.Popen(
            [sys.executable, "-c", "import rlox.cli; rlox.cli.main()", *map(str, arguments)],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()
