"""Rules of the whole repository: who imports whom, what stays light, versions."""

import ast
import importlib
import importlib.util
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
import repository
import rlox
from rlox.registry.families import ALGORITHMS, ELSEWHERE

ROOT = Path(__file__).parents[1]

sys.path.insert(0, str(ROOT / "docs" / "_ext"))

from api_modules import FLOORS, PATHS  # noqa: E402  # the architecture page shows the same

SOURCES = {
    package.name: package
    for distribution in repository.distributions()
    for package in repository.packages(distribution)
}

FAMILIES = sorted(
    set(SOURCES)
    - {"rlox", "rlox_native", "rlox_candle", "rlox_simulators", "rlox_testing", "rlox_tools"}
)

OPTIONAL = {"rlox_candle"}
"""Not in ``rlox-core[all]``, as it takes minutes to build; the session ``candle`` tests with it."""


def module_name(package, path):
    """Return the dotted name of a file of a package."""
    parts = path.relative_to(SOURCES[package]).with_suffix("").parts
    return ".".join([package, *parts]).removesuffix(".__init__")


def imported_modules(path):
    """Yield what a file imports anywhere in it, ``module.name`` for ``from module import name``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def import_graph(package):
    """Return the modules that each module of a package imports, of the same package."""
    modules = {module_name(package, path): path for path in SOURCES[package].rglob("*.py")}
    graph = {}
    for name, path in modules.items():
        found = set()
        for imported in imported_modules(path):
            parent = imported.rpartition(".")[0]
            found.add(imported if imported in modules else parent)
        graph[name] = found & set(modules) - {name}
    return graph


def circle(graph):
    """Return the modules between and on the circles of a graph; none if there is no circle."""
    rest = {name: set(found) for name, found in graph.items()}
    while True:
        imported = set().union(*rest.values())
        kept = {n: f & set(rest) for n, f in rest.items() if f & set(rest) and n in imported}
        if kept == rest:
            return sorted(rest)
        rest = kept


def room(module):
    """Return the package or module directly below ``rlox`` that a module belongs to."""
    return module.split(".")[1] if "." in module else "rlox"


def test_imports_point_from_families_to_core_only():
    """No family and no tool imports a family; core imports neither but in its facades."""
    facades = {
        "callbacks/__init__.py": "rlox_tools",
        "distributed.py": "rlox_distributed",
        "offline/base.py": "rlox_offline",
        "offline/config.py": "rlox_offline",
        "testing.py": "rlox_testing",
    }
    wrong = []
    for package, folder in SOURCES.items():
        for path in folder.rglob("*.py"):
            others = {module.split(".")[0] for module in imported_modules(path)} & set(SOURCES)
            allowed = {package, "rlox"}
            name = str(path.relative_to(folder))
            if package == "rlox" and name == "__init__.py":
                allowed |= {"rlox_candle", "rlox_native"}
            elif package == "rlox" and name in facades:
                allowed.add(facades[name])
            wrong += [f"{path.relative_to(ROOT)} imports {other}" for other in others - allowed]
    assert not wrong


def test_core_imports_downwards_only():
    """A module imports from lower floors and its own package, for types and in functions too."""
    floor = {name: level for level, names in enumerate(FLOORS) for name in names}
    graph = import_graph("rlox")
    paths = {"algorithms", *(path.removeprefix("rlox.") for path in PATHS)}
    inside = {"rlox", "__main__", *paths}
    assert {room(name) for name in graph} == {*floor, *inside}
    wrong = [
        f"{name} imports {other}"
        for name, found in graph.items()
        for other in found
        if room(name) not in inside
        and room(name) != room(other)
        and (room(other) in paths or floor.get(room(other), -1) >= floor[room(name)])
        and room(other) != "rlox"
    ]
    assert not wrong


@pytest.mark.parametrize("package", sorted(SOURCES))
def test_no_modules_import_each_other_in_a_circle(package):
    """Imports for types and in functions count."""
    assert circle(import_graph(package)) == []


def test_native_works_without_core():
    """The Rust classes import nothing of core; what rlox-native registers does."""
    code = "import sys, rlox_native; print('rlox' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"


def light_modules():
    """Return the modules that must not load torch."""
    core = ["algorithm", "cli", "envs.evaluation", "registry", "testing", "training.checkpoint"]
    named = {"cli", "configs", "datasets", "plugin", "replay_config"}
    families = [
        module_name(package, path)
        for package in (*FAMILIES, "rlox_tools")
        for path in SOURCES[package].rglob("*.py")
        if named & set(path.relative_to(SOURCES[package]).with_suffix("").parts)
    ]
    return ["rlox", *(f"rlox.{name}" for name in core), *families, "rlox_native"]


def test_modules_import_without_torch():
    """What the command line and the registry need loads neither torch nor an algorithm."""
    heavy = ("torch", "tensorboard", *(row.module for row in ALGORITHMS))
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1].split(','):\n"
        "    importlib.import_module(name)\n"
        f"    loaded = [m for m in {heavy!r} if m in sys.modules]\n"
        "    if loaded: sys.exit(f'{name} loads {loaded}')\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, ",".join(light_modules())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_importing_rlox_loads_no_third_party_package():
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


def test_every_module_imports():
    """No module hides an error that only its import would show."""
    for name in SOURCES:
        if name in OPTIONAL and importlib.util.find_spec(name) is None:
            continue
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(module.name)


def test_the_table_of_algorithms_is_what_the_families_register():
    """Where a family is not installed, asking for one of its algorithms says how to install it."""
    plugins = {package: importlib.import_module(f"{package}.plugin") for package in FAMILIES}
    registered = {
        spec.name: (spec.factory, package.removeprefix("rlox_"))
        for package, plugin in plugins.items()
        for spec in getattr(plugin, "rlox_algorithms", tuple)()
    }
    table = {
        row.name: (f"{row.module}:{row.class_name}", row.extra)
        for row in ALGORITHMS
        if row.registered
    }
    assert registered == table


def test_names_of_other_distributions_are_where_core_says():
    """An error for one that is not installed names its extra."""
    for (hook, name), extra in ELSEWHERE.items():
        family = "simulators" if hook == "rlox_env_backends" else extra
        plugin = importlib.import_module(f"rlox_{family}.plugin")
        assert name in {spec.name for spec in getattr(plugin, hook)()}


def test_the_facades_are_what_the_table_says():
    """``python rlox-core/facades.py`` writes them."""
    spec = importlib.util.spec_from_file_location("facades", ROOT / "rlox-core" / "facades.py")
    facades = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(facades)
    assert facades.differences() == []


def test_every_distribution_is_an_extra_of_core():
    """``pip install "rlox-core[marl]"`` installs ``rlox-marl``; without extras core is alone."""
    core = repository.project(ROOT / "rlox-core")
    names = {name.removeprefix("rlox-") for name in repository.distributions()} - {"core"}
    assert not names - set(core["optional-dependencies"])
    assert not [text for text in core["dependencies"] if text.startswith("rlox")]


def test_extras_of_families_bring_rust():
    """Whoever installs a family need not know of rlox-native."""
    extras = repository.project(ROOT / "rlox-core")["optional-dependencies"]
    for family in {row.extra for row in ALGORITHMS} | {"distributed"}:
        assert f"rlox-native=={rlox.__version__}" in extras[family], family


def test_install_commands_take_ours():
    """Messages and pages name our distributions, without a version; ``rlox`` is another's."""
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.py")]
    texts += [path for folder in SOURCES.values() for path in folder.rglob("*.py")]
    texts += [path for folder in SOURCES.values() for path in folder.rglob("*.yaml")]
    texts += [ROOT / name / "README.md" for name in repository.distributions()]
    ours = "|".join(repository.distributions())
    wrong = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in texts
        if "_build" not in path.parts
        for command in re.findall(
            r"(?:pip install|needs:) ([^`&\n]*)", path.read_text(encoding="utf-8")
        )
        for word in re.findall(r"(?<![\w./-])rlox[\w-]*(?:\[[^]]*\])?[<>=~!]*", command)
        if not re.fullmatch(rf"({ours})(\[.+\])?", word)
    ]
    assert wrong == []
