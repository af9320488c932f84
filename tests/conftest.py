"""Distributions with plugins for one test; property tests pass on a machine of any speed."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from rlox import cli, registry

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside the tests

settings.register_profile(
    "any-speed",
    max_examples=int(os.environ.get("RLOX_EXAMPLES", "15")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any-speed")


@pytest.fixture(name="install")
def fixture_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., None]]:
    """Return a function that installs a distribution with a plugin."""
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("RLOX_PLUGINS_STRICT", "1")

    def install(distribution: str, code: str) -> None:
        module = f"{distribution.replace('-', '_')}_{abs(hash(tmp_path))}"
        (site / f"{module}.py").write_text(code, encoding="utf-8")
        info = site / f"{distribution}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n", encoding="utf-8"
        )
        (info / "entry_points.txt").write_text(f"[rlox]\n{distribution} = {module}\n", "utf-8")
        importlib.invalidate_caches()

    registry.get_registry.cache_clear()
    yield install
    registry.get_registry.cache_clear()


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Return a function that calls the command line here: exit code, output and errors."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["rlox", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run
