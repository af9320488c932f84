"""Writes the types of a family's options, for editors and type checkers.

Each family's build hook runs :func:`write`, so that every installation has ``option_types.pyi``,
which git ignores; ``python rlox-core/option_types.py`` writes those of a clone. It reads source and
needs nothing installed: the family's configs and constructors, and the configs of core that these
derive from.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

CORE = Path(__file__).parent

IMPORTS = {
    "Activation": "rlox.config.model",
    "Any": "typing",
    "Callback": "rlox.callbacks",
    "Iterable": "collections.abc",
    "Literal": "typing",
    "LoggerCallback": "rlox.logging",
    "Mapping": "collections.abc",
    "Path": "pathlib",
    "ScheduleOption": "rlox.config.schedules",
    "Sequence": "collections.abc",
    "TypedDict": "typing",
    "Unpack as Unpack": "typing_extensions",
}
"""What every stub uses, and the modules it comes from."""

CLASSES = '''
class {name}Options(TypedDict, total=False):
    """Options of ``{name}`` besides the arguments of its constructor."""

    {options}

class {name}Arguments({name}Options, total=False):
    """What ``rlox.make`` takes for ``{name}``."""

    callbacks: Iterable[Callback | str] | Callback | str | None
    logger: LoggerCallback | str | Iterable[LoggerCallback | str] | None
    log_dir: str | Path
    {arguments}
'''

IN_MAKE = {"env", "env_id", "callbacks", "logger"}
"""Arguments of constructors that ``make`` has in another form."""

ACCEPTED = {
    r"\bScheduleValue\b": "ScheduleOption",
    r"\bWidths\b": "int | Sequence[int]",
    r"\bMaybeWidths\b": "int | Sequence[int] | None",
    r"\bConv\b": "str | Sequence[Sequence[int]]",
    r"\b(?:tuple|list)\[(\w+)(?:, \.\.\.)?\]": r"Sequence[\1]",
    r"\bdict\[str, \w+\]": "Mapping[str, Any]",
    r"\bUnset \| | \| Unset\b": "",
}
"""From types of values to types of arguments, which may be left out or are converted."""


class Module:
    """The source of a module of the family or of core.

    Args:
        name: dotted.
        family: folder of the distribution.
    """

    def __init__(self, name: str, family: Path) -> None:
        self.name, self.family = name, family
        folder = (CORE if name.startswith("rlox.") else family) / "src"
        path = folder / name.replace(".", "/")
        # not by the folder, which may be what is left of a package that became a module
        door = path / "__init__.py"
        path = door if door.is_file() else path.with_suffix(".py")
        tree = ast.parse(path.read_text("utf-8"))
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.aliases = {
            ast.unparse(node.targets[0]): ast.unparse(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign)
        }
        self.sources = dict.fromkeys({*self.classes, *self.aliases}, name)
        """The modules that names come from."""
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                names = [alias.name for alias in node.names if alias.asname is None]
                self.sources |= dict.fromkeys(names, str(node.module))

    def options(self, config: str) -> dict[str, str]:
        """Return the types of the options of a config that this module knows, by name."""
        source = self.sources[config]
        if config == "Config" or not source.startswith("rlox"):
            return {}
        if source != self.name:
            return Module(source, self.family).options(config)
        found: dict[str, str] = {}
        for base in reversed(self.classes[config].bases):
            found |= self.options(ast.unparse(base))
        for node in self.classes[config].body:
            if isinstance(node, ast.AnnAssign) and "ClassVar" not in ast.unparse(node.annotation):
                found[ast.unparse(node.target)] = self.accepted(node.annotation)
        return found

    def accepted(self, annotation: ast.expr) -> str:
        """Return the type that an argument accepts."""
        text = re.sub(
            r"\w+", lambda name: self.aliases.get(name[0], name[0]), ast.unparse(annotation)
        )
        for pattern, replacement in ACCEPTED.items():
            text = re.sub(pattern, replacement, text)
        return text

    def algorithms(self) -> dict[str, tuple[dict[str, str], dict[str, str]]]:
        """Return options and arguments of the constructors of this module, by class."""
        found = {}
        for name, cls in self.classes.items():
            values = _values(cls)
            own = {getattr(node, "name", "") for node in cls.body} | values.keys()
            if "config_class" in own and own & {"__init__", "arguments"}:
                options = self.options(ast.unparse(values["config_class"]))
                places = ast.literal_eval(values["arguments"]) if "arguments" in values else ()
                arguments = {k: options.get(k, "Any") for k in places} | self.constructor(name)
                found[name] = options, arguments
        return found

    def constructor(self, name: str) -> dict[str, str]:
        """Return the types of the arguments of a class's constructor, which may be its base's."""
        cls, source = self.classes.get(name), self.sources.get(name, "")
        if cls is None:
            if not source.startswith("rlox") or source == "rlox.algorithm":
                return {}
            base = Module(source, self.family)
            found = base.constructor(name)
            self.sources = base.sources | self.sources
            return found
        methods = {node.name: node for node in cls.body if isinstance(node, ast.FunctionDef)}
        if "__init__" not in methods:
            return self.constructor(re.split(r"\W", ast.unparse(cls.bases[0]))[0])
        given = methods["__init__"].args
        return {
            each.arg: self.accepted(each.annotation)
            for each in [*given.args[1:], *given.kwonlyargs]
            if each.annotation
        }


def _values(cls: ast.ClassDef) -> dict[str, ast.expr]:
    """Return what the attributes of a class are set to, by name."""
    found: dict[str, ast.expr] = {}
    for node in cls.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value:
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            found[ast.unparse(target)] = node.value
    return found


def option_types(family: Path) -> str:
    """Return the text of a family's ``option_types.pyi``.

    Args:
        family: folder of the distribution, in a clone.
    """
    (package,) = [path.parent for path in family.glob("src/*/__init__.py")]
    imports, classes = dict(IMPORTS), ""
    for path in sorted(package.glob("*.py")):
        module = Module(f"{package.name}.{path.stem}", family)
        for name, (options, arguments) in module.algorithms().items():
            own = [f"{k}: {kind}" for k, kind in options.items() if k not in arguments]
            others = [f"{k}: {kind}" for k, kind in arguments.items() if k not in IN_MAKE]
            classes += CLASSES.format(
                name=name, options="\n    ".join(own), arguments="\n    ".join(others)
            )
            used = set(re.findall(r"\w+", str(others))) & module.sources.keys()
            imports |= {each: module.sources[each] for each in used}
    return "".join(f"from {imports[k]} import {k}\n" for k in sorted(imports)) + classes


def write(family: Path) -> None:
    """Write a family's ``option_types.pyi`` if it is missing or out of date.

    Args:
        family: folder of the distribution, in a clone.
    """
    (package,) = [path.parent for path in family.glob("src/*/__init__.py")]
    target, text = package / "option_types.pyi", option_types(family)
    if not target.exists() or target.read_text("utf-8") != text:
        target.write_text(text, "utf-8")


if __name__ == "__main__":
    for hook in CORE.parent.glob("rlox-*/hatch_build.py"):
        write(hook.parent)
