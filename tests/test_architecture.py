"""The rules of the house that no single distribution can check: who may import whom, and when."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import rlox
from rlox.registry.table import EXTRAS

ROOT = Path(__file__).parents[1]

SOURCES = {
    "rlox": ROOT / "rlox-core/src/rlox",
    "rlox_native": ROOT / "rlox-native/python/rlox_native",
    "rlox_candle": ROOT / "rlox-candle/python/rlox_candle",
    "rlox_offline": ROOT / "rlox-offline/src/rlox_offline",
    "rlox_onpolicy": ROOT / "rlox-onpolicy/src/rlox_onpolicy",
    "rlox_offpolicy": ROOT / "rlox-offpolicy/src/rlox_offpolicy",
}

OPTIONAL = {"rlox_candle"}
"""Not in ``rlox[all]``, as it takes minutes to build; the session ``candle`` tests with it."""

FACADES = {
    ("rlox", "rlox_native"): {"__init__.py"},
    ("rlox", "rlox_candle"): {"__init__.py"},
    ("rlox", "rlox_offline"): {
        f"algorithms/{name}.py" for name in ("awac", "bc", "cql", "fqe", "iql", "td3_bc")
    },
    ("rlox", "rlox_onpolicy"): {f"algorithms/{name}.py" for name in ("a2c", "hybrid_ppo", "ppo")},
    ("rlox", "rlox_offpolicy"): {
        "algorithms/ddpg.py",
        "algorithms/discrete_sac.py",
        "algorithms/dqn.py",
        "algorithms/sac.py",
        "algorithms/td3.py",
    },
}
"""The modules of core that hand on another distribution's names and do nothing else."""

TORCH_FREE = [
    "rlox",
    "rlox.cli",
    "rlox.registry.table",
    "rlox.algorithm",
    "rlox.training.checkpoint",
    "rlox.evaluation",
    "rlox.testing",
    "rlox.offline.config",
    "rlox.offline.dataset",
    "rlox_offline.cli",
    "rlox_offline.configs",
    "rlox_offline.datasets",
    "rlox_offline.plugin",
    "rlox_onpolicy.plugin",
    "rlox_onpolicy.configs",
    "rlox_offpolicy.plugin",
    "rlox_offpolicy.configs",
    "rlox_offpolicy.replay_config",
    "rlox_native",
]


def imported_packages(path: Path) -> Iterator[str]:
    """Yield the top-level packages that a file imports anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def test_every_distribution_with_sources_is_checked() -> None:
    """A new family cannot be forgotten here."""
    folders = {path.name.replace("-", "_") for path in ROOT.glob("rlox-*") if path.is_dir()}
    assert folders == {"rlox_core", *SOURCES} - {"rlox"}


def test_imports_point_from_families_to_core_only() -> None:
    """No family imports another, and core imports none but in its facades."""
    wrong = [
        f"{path.relative_to(ROOT)} imports {other}"
        for package, folder in SOURCES.items()
        for path in folder.rglob("*.py")
        for other in set(imported_packages(path)) & set(SOURCES) - {package, "rlox"}
        if str(path.relative_to(folder)) not in FACADES.get((package, other), set())
    ]
    assert not wrong


def test_native_imports_core_in_what_it_registers_only() -> None:
    """The Rust classes work where core is not installed."""
    users = {
        path.name
        for path in SOURCES["rlox_native"].rglob("*.py")
        if "rlox" in imported_packages(path)
    }
    on_policy = {"learner.py", "rollouts.py", "acting.py"}
    off_policy = {"replay_learner.py", "q_learner.py", "actor_critic_learner.py"}
    offline = {"implicit_learner.py", "conservative_learner.py"}
    learners = {*on_policy, *off_policy, *offline, "perceptrons.py", "optimizers.py"}
    assert users <= {"plugin.py", *learners}


@pytest.mark.parametrize("module", TORCH_FREE)
def test_module_imports_without_torch(module: str) -> None:
    """What the command line and the registry need loads neither torch nor an algorithm."""
    code = (
        f"import sys, {module}; "
        "print([m for m in ('torch', 'rlox_onpolicy.ppo', 'tensorboard') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_importing_rlox_loads_no_third_party_package() -> None:
    """``import rlox`` costs nothing but Python's own modules."""
    code = (
        "import sys; before = set(sys.modules); import rlox; "
        "print(sorted({m.split('.')[0] for m in set(sys.modules) - before} "
        "- set(sys.stdlib_module_names) - {'rlox'}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_every_module_imports() -> None:
    """No module hides an error that only its import would show."""
    for name in SOURCES:
        if name in OPTIONAL and importlib.util.find_spec(name) is None:
            continue
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(module.name)


def test_public_names_are_sorted_and_resolve() -> None:
    """``rlox.__all__`` is what ``rlox`` has."""
    assert rlox.__all__ == sorted(rlox.__all__)
    optional = {"CandleCollector"} if importlib.util.find_spec("rlox_candle") is None else set()
    for name in set(rlox.__all__) - optional:
        assert getattr(rlox, name) is not None


def test_files_stay_short() -> None:
    """A file over 300 lines needs splitting."""
    long_files = {
        str(path.relative_to(ROOT)): count
        for folder in SOURCES.values()
        for path in folder.rglob("*.py")
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 300
    }
    assert not long_files


def test_every_algorithm_of_ours_has_its_extra() -> None:
    """Where its family is not installed, asking for one says how to install it."""
    registered = {
        spec.name: family
        for family in ("offline", "offpolicy", "onpolicy")
        for spec in importlib.import_module(f"rlox_{family}.plugin").rlox_algorithms()
    }
    assert registered == EXTRAS
