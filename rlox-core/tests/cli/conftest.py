"""The command line in this process and in others, with an algorithm that counts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from rlox import cli

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


class Result(NamedTuple):
    """What one call of the command line left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def plugin() -> str:
    """Return the code of the plugin that registers the counting algorithm."""
    return PLUGIN


@pytest.fixture(autouse=True)
def _workplace(
    install: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Install the counting algorithm, look at no other plugin, and work in an empty folder."""
    install("rlox-counting", PLUGIN)
    monkeypatch.setenv("RLOX_PLUGINS", "rlox-counting")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, [tmp_path / "site-packages", TESTS])))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Result]:
    """Return a function that calls the command line in this process."""

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["rlox", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        return Result(int(exit_.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    """Return a function that fills the working folder once, and with copies from then on."""
    base = tmp_path_factory.mktemp("kept")

    def fill(name: str, make: Callable[[], None]) -> None:
        if (base / name).exists():
            shutil.copytree(base / name, ".", dirs_exist_ok=True)
        else:
            make()
            shutil.copytree(".", base / name)

    return fill


@pytest.fixture
def hold() -> Callable[[int | None], None]:
    """Return a function that has trainings wait at a count of env steps, or go on again."""

    def hold(env_steps: int | None) -> None:
        if env_steps is None:
            Path("hold").unlink()
        else:
            Path("new").write_text(str(env_steps), encoding="utf-8")
            Path("new").replace("hold")

    return hold


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts the command line in a process, and kill what is left."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: object, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
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
