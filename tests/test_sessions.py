"""Nox sessions against the tree: every distribution is tested, and changes call for the right part.

The sessions are read from ``noxfile.py`` with a stand-in for nox, which not every environment has.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import repository

ROOT = Path(__file__).parents[1]
ALWAYS = {"lint", "types", "architecture", "core"}


@pytest.fixture
def noxfile(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, dict[str, dict[str, Any]]]:
    """Return the noxfile and its sessions: what each is declared with, by name."""
    sessions: dict[str, dict[str, Any]] = {}

    def session(function: Any = None, **options: Any) -> Any:
        def declare(function: Any) -> Any:
            sessions[options.get("name", function.__name__)] = {"default": True, **options}
            return function

        return declare if function is None else declare(function)

    nox = ModuleType("nox")
    vars(nox).update(session=session, options=SimpleNamespace(), Session=object)
    monkeypatch.setitem(sys.modules, "nox", nox)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    spec = importlib.util.spec_from_file_location("noxfile", ROOT / "noxfile.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, sessions


def test_every_distribution_is_tested(noxfile: tuple[ModuleType, dict[str, Any]]) -> None:
    """Alone under its name, and by default if ``rlox[all]`` installs it."""
    module, sessions = noxfile
    names = {name.removeprefix("rlox-").replace("-", "_") for name in repository.distributions()}
    assert len(names) >= 6
    assert names <= set(sessions)
    assert set(module.TESTS) == {f"{name}/tests" for name in repository.installed_by("all")}
    assert sessions["families"]["default"]
    assert "rlox-candle" not in repository.installed_by("all"), "its session is `candle`"


def test_a_changed_file_calls_for_sessions_that_there_are(
    noxfile: tuple[ModuleType, dict[str, Any]],
) -> None:
    """Whatever changes."""
    changed = [
        "noxfile.py", "docs/index.md", "rlox-native/crates/a.rs", "rlox-candle/src/lib.rs",
        "examples/a.py", "rlox-core/src/a.py", "tests/test_resume.py",
    ]  # fmt: skip
    for paths in (changed, changed[1:]):
        assert set(repository.affected(paths)) <= set(noxfile[1])


def test_every_file_of_tests_belongs_to_a_session(
    noxfile: tuple[ModuleType, dict[str, Any]],
) -> None:
    """A renamed file does not drop out of the run."""
    assert all((ROOT / path).is_file() for path in noxfile[0].HOUSE_RULES)
    assert all((ROOT / page).is_file() for page in noxfile[0].CANDLE_PAGES)


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("rlox-onpolicy/src/rlox_onpolicy/ppo.py", {"families": ["rlox-onpolicy/tests"]}),
        (
            "rlox-native/python/rlox_native/learner.py",
            {"families": ["rlox-native/tests"], "integration": []},
        ),
        (
            "rlox-native/crates/rlox-py/src/lib.rs",
            {"families": ["rlox-native/tests"], "integration": [], "rust": []},
        ),
        (
            "rlox-distributed/rust/lib.rs",
            {"families": ["rlox-distributed/tests"], "rust": []},
        ),
        ("rlox-candle/src/lib.rs", {"candle": []}),
        ("tests/test_resume.py", {"integration": ["tests/test_resume.py"]}),
        ("_template/new.py", {"integration": ["tests/test_template.py"]}),
        ("docs/index.md", {"snippets": ["docs/index.md"], "docs": []}),
        ("CHANGELOG.md", {"snippets": ["CHANGELOG.md"]}),
        ("examples/plugins/rlox-reinforce/pyproject.toml", {"example_plugin": []}),
        ("LICENSE", {}),
    ],
)
def test_a_change_calls_for_its_part(path: str, more: dict[str, list[str]]) -> None:
    """Beside what is fast and concerns everything."""
    assert repository.affected([path]) == {name: [] for name in ALWAYS} | more


def test_a_change_of_core_calls_for_all_that_need_it() -> None:
    """They may break by it."""
    tested = repository.affected(["rlox-core/src/rlox/config.py"])["families"]
    assert {"rlox-core/tests", "rlox-onpolicy/tests", "rlox-offline/tests"} <= set(tested)
    assert "rlox-native/tests" not in tested


@pytest.mark.parametrize("path", ["uv.lock", "pyproject.toml", "noxfile.py"])
def test_a_change_of_the_build_calls_for_all_python_tests(path: str) -> None:
    """Any of them may break by it."""
    assert {"families", "integration"} <= set(repository.affected([path]))


def test_a_new_distribution_is_found(tmp_path: Path) -> None:
    """From its pyproject, with what it depends on."""
    for name in ("rlox-core", "rlox-onpolicy"):
        (tmp_path / name).mkdir()
        shutil.copy(ROOT / name / "pyproject.toml", tmp_path / name)
    (tmp_path / "rlox-new").mkdir()
    (tmp_path / "rlox-new" / "pyproject.toml").write_text(
        '[project]\ndependencies = ["rlox_onpolicy>=1", "Some.Thing[fast, small]>=2"]\n'
    )
    (tmp_path / "pyproject.toml").write_text(
        '[project]\ndependencies = ["rlox-core"]\n'
        '[project.optional-dependencies]\nall = ["rlox-new", "rlox-onpolicy"]\n'
    )
    assert repository.dependencies("rlox-new", tmp_path) == {
        "rlox-new",
        "rlox-onpolicy",
        "rlox-core",
    }
    assert "rlox-new" in repository.installed_by("all", tmp_path)
    assert repository.split("Some.Thing[fast, small]>=2") == ("some-thing", ("fast", "small"))
    assert repository.third_parties(["rlox-new"], tmp_path) == ["Some.Thing[fast, small]>=2"]
    changed = repository.affected(["rlox-core/src/rlox/config.py"], tmp_path)
    assert "rlox-new/tests" in changed["families"]
