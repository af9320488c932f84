"""Shared fixtures; the suite needs neither torch nor any other rlox distribution."""

from __future__ import annotations

import importlib.util
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import cloudpickle
import pytest
from hypothesis import HealthCheck, settings
from rlox import kernels, reference, registry

settings.register_profile(
    "any-speed", deadline=None, suppress_health_check=[HealthCheck.too_slow],
    max_examples=int(os.environ.get("RLOX_EXAMPLES", "15")),
)  # fmt: skip
settings.load_profile("any-speed")

FOLDER = Path(__file__).parent

collect_ignore = [] if importlib.util.find_spec("torch") else ["torch"]


def _helper(name: str) -> ModuleType:
    """Import a helper module that lies beside this file."""
    if name in sys.modules:  # the tests of another distribution share this file
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # a worker process cannot import it by name
    cloudpickle.register_pickle_by_value(module)
    return module


_helper("counting_config")
COUNTING = _helper("counting_algorithm")
SCRIPTED = _helper("scripted_env")


@pytest.fixture(scope="session")
def counting() -> ModuleType:
    """Return the helper module with an algorithm that counts instead of learning."""
    return COUNTING


@pytest.fixture(scope="session")
def scripted() -> ModuleType:
    """Return the helper module with an env that plays a script."""
    return SCRIPTED


@pytest.fixture
def fresh_registry() -> Iterator[None]:
    """Forget the process's registry before and after the test."""
    registry.get_registry.cache_clear()
    yield
    registry.get_registry.cache_clear()


@pytest.fixture(autouse=True)
def _reference_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute with the NumPy reference, whatever is installed."""
    monkeypatch.setattr(kernels, "backend", lambda: reference)


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
