"""What conftests of several distributions share; importing it sets what property tests may take."""

from __future__ import annotations

import importlib
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings

# they pass on a machine of any speed
settings.register_profile(
    "any-speed",
    deadline=None,
    max_examples=int(os.environ.get("RLOX_EXAMPLES", "15")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("any-speed")


class Result(NamedTuple):
    """What one call of the command line left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Result]:
    """Return a function that calls the command line in this process."""
    from rlox import cli  # rlox-native is tested without

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["rlox", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return Result(int(ended.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def fresh_registry() -> Iterator[None]:
    """Forget the process's registry before and after the test."""
    from rlox import registry

    registry.get_registry.cache_clear()
    yield
    registry.get_registry.cache_clear()


@pytest.fixture
def install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_registry: None
) -> Callable[..., None]:
    """Return a function that installs a distribution whose rlox plugin is the given code."""
    for variable in ("RLOX_PLUGINS", "RLOX_PLUGINS_STRICT", "RLOX_TRACE_PLUGINS"):
        monkeypatch.delenv(variable, raising=False)
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(site)

    def install(distribution: str, code: str, entry_point: str | None = None) -> None:
        module = f"{distribution.replace('-', '_')}_{uuid.uuid4().hex}"
        (site / f"{module}.py").write_text(code, encoding="utf-8")
        info = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n", encoding="utf-8"
        )
        (info / "entry_points.txt").write_text(
            f"[rlox]\n{entry_point or distribution} = {module}\n", encoding="utf-8"
        )
        importlib.invalidate_caches()

    return install
