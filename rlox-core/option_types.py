"""Writes the types of ``rlox.make`` and of the algorithms' options.

Run ``python rlox-core/option_types.py`` after a change of an algorithm's options or arguments, with
all distributions installed; ``--check`` reports a difference instead. They are files, not made at
import, for editors and type checkers to see: a ``TypedDict`` for each config in its family's
``option_types.pyi``, and an overload of ``make`` for each algorithm in ``rlox/make_types.pyi``.
"""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import subprocess
import sys
import types
import typing
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import Any

from rlox.config.composition import plugin_fields
from rlox.config.model import Config
from rlox.config.schedules import Linear, Piecewise
from rlox.families import ALGORITHMS, AlgorithmRow
from rlox.registry.table import algorithm_class, spec

ROOT = Path(__file__).parents[1]
MAKE = ROOT / "rlox-core/src/rlox/make_types.pyi"

IN_MAKE = {"callbacks", "logger", "config"}
"""Arguments of the constructors that ``make`` has in a wider form."""

COMMON = (
    *(("collections.abc", name) for name in ("Callable", "Iterable", "Mapping", "Sequence")),
    *(("typing", name) for name in ("Any", "Literal", "TypeAlias", "overload")),
    ("pathlib", "Path"),
    ("rlox.algorithm", "Algorithm"),
    ("rlox.callbacks", "Callback"),
    ("rlox.config.model", "Config"),
    ("rlox.logging", "LoggerCallback"),
    ("typing_extensions", "Unpack"),
)
"""What every overload uses."""

OPTIONS = '''"""Types of the algorithms' options, for editors and type checkers.

Written by ``python rlox-core/option_types.py`` from the configs, which say what each option is.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from rlox.config.schedules import ScheduleOption
from typing_extensions import Unpack

__all__ = ["Unpack", {names}]
'''

OVERLOADS = '''"""Types of ``rlox.make``: an overload for each algorithm, and one for plugins.

Written by ``python rlox-core/option_types.py``. A plugin's options, and those of algorithms whose
name is no literal, go as ``config={{...}}``: among arguments that every name may bring, no type
checker could report a misspelt one.
"""

{imports}
__all__ = ["make"]

_ConfigFile: TypeAlias = Mapping[str, Any] | str | Path
_Callbacks: TypeAlias = Iterable[Callback | str] | Callback | str
_Logger: TypeAlias = LoggerCallback | str | Iterable[LoggerCallback | str]
'''

OVERLOAD = """
@overload
def make(
    name: {name},
    env: Any = None,
    *,
    config: {config} | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
{arguments}
) -> {result}: ...
"""


def rows() -> list[AlgorithmRow]:
    """Return the algorithms that ``make`` builds."""
    return [row for row in ALGORITHMS if row.registered]


def type_text(annotation: Any) -> str:
    """Return what a config's field accepts, as the text of a type."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        members = list(dict.fromkeys(type_text(member) for member in arguments))
        if "ScheduleOption" in members:
            members = [member for member in members if member in ("ScheduleOption", "None")]
        return " | ".join(members)
    if origin is not None:
        inner = type_text(arguments[0]) if origin is not typing.Literal else ""
        return {
            typing.Annotated: inner,
            typing.Literal: str(annotation).removeprefix("typing."),
            tuple: f"Sequence[{inner}]",
            list: f"Sequence[{inner}]",
            dict: "Mapping[str, Any]",
        }[origin]
    plain = {types.NoneType: "None", Linear: "ScheduleOption", Piecewise: "ScheduleOption"}
    return plain.get(annotation) or str(annotation.__name__)


def option_types(cls: type[Config]) -> dict[str, str]:
    """Return the types of a config's options and of those of rlox's own plugins, by name."""
    found = {name: type_text(field.annotation) for name, field in cls.model_fields.items()}
    for _, plugin, fields in plugin_fields(cls):
        if plugin.distribution.startswith("rlox-"):
            for name, field in fields.items():
                found.setdefault(name, type_text(field.annotation))
    return found


def constructor(cls: type[Any]) -> dict[str, inspect.Parameter]:
    """Return a constructor's arguments by name, without ``self`` and the options."""
    found = inspect.signature(cls.__init__).parameters
    return {
        name: parameter
        for name, parameter in list(found.items())[1:]
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }


def options_name(cls: type[Any]) -> str:
    """Return the name of the ``TypedDict`` of an algorithm's class."""
    return f"{cls.__name__}Options"


def options_module(cls: type[Any]) -> str:
    """Return the module of the ``TypedDict`` of an algorithm's class."""
    return f"{cls.__module__.split('.')[0]}.option_types"


def write_options(classes: list[type[Any]]) -> str:
    """Return the module of the options of one family's algorithms."""
    names = sorted(map(options_name, classes), key=lambda name: (not name[:-7].isupper(), name))
    text = OPTIONS.format(names=", ".join(f'"{name}"' for name in names))
    for cls in sorted(classes, key=lambda cls: cls.__name__.lower()):
        text += f"\n\nclass {options_name(cls)}(TypedDict, total=False):\n"
        text += f'    """Options of :class:`{cls.config_class.__name__}`."""\n\n'
        arguments = constructor(cls)
        for name, of_type in option_types(cls.config_class).items():
            if name not in arguments:
                text += f"    {name}: {of_type}\n"
    return text


def sources_of(module: types.ModuleType) -> dict[str, tuple[str, str]]:
    """Return where the names of a module come from: by name, module and name there."""
    found = {name: (module.__name__, name) for name in vars(module)}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                found[alias.asname or alias.name] = (node.module, alias.name)
    return found


def names_in(annotation: str) -> set[str]:
    """Return the names that the text of a type uses."""
    return {node.id for node in ast.walk(ast.parse(annotation)) if isinstance(node, ast.Name)}


class Imports:
    """The imports of a stub, a name each; another thing of a known name gets a name of its own."""

    def __init__(self) -> None:
        self._found: dict[str, Any] = {}
        self.lines: set[str] = set()

    def add(self, module: str, name: str) -> str:
        """Import a name, and return what it is called in the stub."""
        # the options' modules are what this script writes: they may not be there yet
        written = name.endswith("Options")
        value = (module, name) if written else getattr(import_module(module), name)
        called = name
        if self._found.get(name, value) != value:
            called = f"{module.partition('.')[0].removeprefix('rlox_').upper()}{name}"
        if called not in self._found:
            self._found[called] = value
            self.lines.add(f"from {module} import {name}{f' as {called}' * (called != name)}\n")
        return called

    def use(self, annotation: str, sources: dict[str, tuple[str, str]]) -> str:
        """Import what the text of a type uses, and return it with the stub's names."""
        for name in sorted(names_in(annotation) & sources.keys()):
            called = self.add(*sources[name])
            annotation = re.sub(rf"\b{name}\b", called, annotation)
        return annotation


def write_overload(row: AlgorithmRow, imports: Imports) -> str:
    """Return the overload of ``make`` for an algorithm."""
    cls, needs = algorithm_class(row.name), spec(row.name).needs
    sources = sources_of(import_module(cls.__module__))
    arguments = constructor(cls)
    first = next(iter(arguments)) if "env" in needs else "env"
    lines = []
    for name, parameter in arguments.items():
        if name in {*IN_MAKE, first, "env"}:
            continue
        annotation = parameter.annotation.replace("Unset | ", "").replace(" | Unset", "")
        default = "" if name in needs else " = ..."
        lines.append(f"    {name}: {imports.use(annotation, sources)}{default},")
    lines.append(f"    **options: Unpack[{imports.add(options_module(cls), options_name(cls))}],")
    return OVERLOAD.format(
        name=f'Literal["{row.name}"]',
        config=imports.add(cls.config_class.__module__, cls.config_class.__name__),
        arguments="\n".join(lines),
        result=imports.add(row.facade, row.class_name),
    )


def write_make() -> str:
    """Return the stub of ``make``."""
    imports = Imports()
    for module, name in COMMON:
        imports.add(module, name)
    overloads = [write_overload(row, imports) for row in rows()]
    overloads.append(
        OVERLOAD.format(
            name="str",
            config="Config",
            arguments="    preset: str | None = None,",
            result="Algorithm",
        )
    )
    return OVERLOADS.format(imports="".join(sorted(imports.lines))) + "".join(overloads)


def formatted(text: str, path: Path) -> str:
    """Return a module as ruff formats it, its imports sorted."""
    ruff = shutil.which("ruff") or str(Path(sys.executable).with_name("ruff"))
    for arguments in (["check", "--fix", "--select", "I,F401,RUF022", "-q"], ["format", "-q"]):
        done = subprocess.run(  # noqa: S603  # ruff, with text that this script made
            [ruff, *arguments, "--stdin-filename", str(path), "-"],
            input=text, capture_output=True, text=True, check=True, cwd=ROOT,
        )  # fmt: skip
        text = done.stdout
    return text


def files() -> dict[Path, str]:
    """Return the text of every module."""
    families: dict[str, list[type[Any]]] = defaultdict(list)
    for row in rows():
        families[row.extra].append(algorithm_class(row.name))
    written = {
        ROOT / f"rlox-{extra}/src/rlox_{extra}/option_types.pyi": write_options(classes)
        for extra, classes in families.items()
    }
    written[MAKE] = write_make()
    return {path: formatted(text, path) for path, text in written.items()}


def differences() -> dict[Path, str]:
    """Return the modules that are not what the configs say, with what they should be."""
    return {
        path: text
        for path, text in files().items()
        if not path.exists() or path.read_text("utf-8") != text
    }


if __name__ == "__main__":
    changed = differences()
    if "--check" in sys.argv and changed:
        sys.exit(f"run python rlox-core/option_types.py to write {', '.join(map(str, changed))}")
    for path, text in changed.items():
        path.write_text(text, "utf-8")
