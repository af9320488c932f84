"""What the reference does not write by hand, generated from the code at the start of each build.

Tables (options, registered names, command-line flags, scores) go to
``reference/generated/fragments``, to be included by hand-written pages; API pages go to
``reference/generated/api``. The build warns of a public name that ended up on no page.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import re
import sys
import types
import typing
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from rlox.registry.families import ALGORITHMS
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain
from sphinx.pycode import ModuleAnalyzer
from sphinx.util import logging

sys.path.insert(0, str(Path(__file__).parent))

from api_modules import PATHS, code_map, pages  # beside this file

DOCS = Path(__file__).parents[1]
SCORES = DOCS.parent / "scores"
GENERATED = DOCS / "reference" / "generated"

RUST_CLASSES = {
    "CandleCollector": "rlox_candle", "CartPole": "rlox_native",
    "MmapReplayBuffer": "rlox_native", "VecEnv": "rlox_native",
}  # fmt: skip
"""The classes that the top hands on from Rust, with their homes."""


SHARED_NAMES = {
    "Algorithm": {"rlox": "rlox.algorithm.Algorithm", "rlox_rl8": "rlox_rl8.algorithms.Algorithm"},
    "Distribution": {
        "rlox": "rlox.nn.Distribution",
        "rlox_rl8": "rlox_rl8.distributions.Distribution",
    },
}
"""Classes that two packages call alike, by package."""


class Domain(PythonDomain):
    """Sphinx's, which looks only at the objects that a name can end in: it compares with all."""

    _by_end: tuple[int, dict[str, dict[str, Any]]] = (0, {})

    def find_obj(self, env: Any, modname: str, classname: str, name: str, *more: Any) -> list[Any]:
        """See Sphinx's."""
        everything = self.objects
        if self._by_end[0] != len(everything):
            found = defaultdict[str, dict[str, Any]](dict)
            for full, entry in everything.items():
                found[full.rpartition(".")[2]][full] = entry
            self._by_end = len(everything), found
        self.data["objects"] = self._by_end[1].get(name.removesuffix("()").rpartition(".")[2], {})
        try:
            return super().find_obj(env, modname, classname, name, *more)
        finally:
            self.data["objects"] = everything


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the generator with Sphinx."""
    app.add_domain(Domain, override=True)
    app.connect("config-inited", lambda *_: write_reference())
    app.connect("autodoc-process-docstring", _adapt_docstring, priority=100)
    app.connect("autodoc-process-signature", _shorten_model_signature)
    app.connect("autodoc-skip-member", _skip_keys)
    app.connect("doctree-read", _qualify_names)
    app.connect("missing-reference", _resolve_facade)
    app.connect("env-check-consistency", lambda app, env: _check_coverage(env))
    return {"parallel_read_safe": True}


def write_reference() -> None:
    """Write all fragments and API pages."""
    from rlox.cli.runs.options import RunOptions
    from rlox.registry.table import get_registry, list_algorithms

    get_registry()  # plugins ask the Rust module itself, so before its stub takes its place
    for stub in ("rlox_native._native", "rlox_candle._candle"):
        _load_stub(stub)

    fragments = {
        "configs": "\n".join(config_section(name) for name in list_algorithms()),
        "plugin-options": plugin_options(),
        "registered": "\n".join(registered_section(*kind) for kind in KINDS.items()),
        "algorithms": table(("name", "class"), algorithm_classes()),
        "presets": presets(),
        "code-map": table(("floor", "where", "what"), code_map()),
        "cli-train": table(("flag", "default", "meaning"), run_flags(RunOptions)),
        "cli-resume": table(("flag", "default", "meaning"), command_flags("resume")),
        "cli-eval": table(("flag", "default", "meaning"), command_flags("eval")),
        "cli-export": table(("flag", "default", "meaning"), command_flags("export")),
        "cli-plot": table(("flag", "default", "meaning"), command_flags("plot")),
        "cli-report": table(("flag", "default", "meaning"), command_flags("report")),
        "cli-film": table(("flag", "default", "meaning"), command_flags("film")),
        "cli-tune": table(("flag", "default", "meaning"), command_flags("tune")),
        "cli-verify": table(("flag", "default", "meaning"), command_flags("verify")),
        "cli-explain": table(("flag", "default", "meaning"), command_flags("explain")),
        "cli-list": table(("flag", "default", "meaning"), command_flags("list")),
    }
    fragments |= {f"config-{name}": config_table(name) for name in list_algorithms()}
    fragments |= {f"scores-{name}": scores(name) for name in list_algorithms()}
    for name, text in fragments.items():
        _write(GENERATED / "fragments" / f"{name}.md", text)
    for family in {row.extra for row in ALGORITHMS}:
        _write(GENERATED / "algorithms" / f"{family}.md", family_page(family))
    for page in set((GENERATED / "api").glob("*.md")) - {_page(module) for module in pages()}:
        page.unlink()  # of a module that is gone
    for module, about in pages().items():
        _write(_page(module), api_page(module, about))


def _page(module: str) -> Path:
    return GENERATED / "api" / f"{module}.md"


def _write(path: Path, text: str) -> None:
    """Write ``text``, unless it is there already: Sphinx reads changed files again."""
    text = text.rstrip() + "\n"
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; texts in backquotes are code."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    escaped = text.replace("|", "\\|")
    # in prose an underscore could begin emphasis
    return "".join(
        part if i % 2 else part.replace("_", "\\_").replace("*", "\\*")
        for i, part in enumerate(re.split(r"(`[^`]*`)", escaped))
    )


def config_section(name: str) -> str:
    """Return heading, origin and options of an algorithm."""
    from rlox.registry.table import get_registry

    found = get_registry().get("rlox_algorithms", name)
    return (
        f"## {name}\n\n{found.spec.summary} Class `{found.spec.config.replace(':', '.')}`, from "
        f"`{found.distribution}`.\n\n{config_table(name)}"
    )


def config_table(name: str) -> str:
    """Return the table of an algorithm's options."""
    from rlox.registry.table import config_class

    return options_table(config_class(name))


def plugin_options() -> str:
    """Return the tables of the options that installed buffers, env backends and losses have."""
    from rlox.registry.table import get_registry

    tables = []
    for selector, hook in (
        ("buffer", "rlox_buffers"),
        ("env_backend", "rlox_env_backends"),
        ("loss_type", "rlox_policy_losses"),
        ("loss_type", "rlox_preference_losses"),
    ):
        for found in get_registry().usable(hook):
            model = found.options_model()
            if model is not None:
                tables.append(
                    f"### `{selector}={found.spec.name}`\n\n{found.spec.summary} From "
                    f"`{found.distribution}`.\n\n{options_table(model)}"
                )
    return "\n".join(tables)


def options_table(config: Any) -> str:
    """Return the table of the options of a config class."""
    from rlox.cli.flags import default_text, documentation

    rows = []
    for option, field in config.model_fields.items():
        meaning, unit, source = documentation(field)
        unit = "" if unit in NO_UNITS else f" {unit}"
        default = f"`{default_text(field)}`; {_bounds(config, option, field)}{unit}"
        rows.append((f"`{option}`", meaning, default, source))
    return table(("option", "meaning", "default; values", "source"), rows)


NO_UNITS = ("1", "name", "names", "on/off", "choice", "name: value")
"""What options say that are counted in nothing."""


def _bounds(config: Any, option: str, field: Any) -> str:
    if option in config.schedule_bounds:
        low, high = (f"{bound:g}" for bound in config.schedule_bounds[option])
        close = "∞)" if high == "inf" else f"{high}]"
        return f"number or schedule in [{low}, {close}"
    members = typing.get_args(field.annotation) or (field.annotation,)
    if typing.get_origin(field.annotation) is typing.Literal:
        return ", ".join(f"`{member}`" for member in members)
    kinds = {int: "integer", float: "number", str: "text", bool: "`true`, `false`"}
    kind = next((kinds[m] for m in members if m in kinds), "value")
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    limits = [
        f"{sign} {getattr(limit, attribute):g}"
        for limit in field.metadata
        for attribute, sign in signs.items()
        if hasattr(limit, attribute)
    ]
    none = " or `none`" if type(None) in members else ""
    return " ".join([kind, ", ".join(limits)]).strip() + none


def family_page(family: str) -> str:
    """Return the page that lists the pages of a family's algorithms."""
    titles = {
        "onpolicy": "On-policy", "offpolicy": "Off-policy", "offline": "From datasets",
        "llm": "Language models", "marl": "Teams", "dreamer": "World models",
        "rl8": "Envs of tensors",
    }  # fmt: skip
    pages = [f"/reference/algorithms/{row.name}" for row in ALGORITHMS if row.extra == family]
    listed = "\n".join([":maxdepth: 1", "", *pages])
    return f"# {titles.get(family, family)}\n\n```{{toctree}}\n{listed}\n```\n"


def algorithm_classes() -> Iterator[Sequence[str]]:
    """Yield the documented paths of every algorithm's class, and its home."""
    for row in sorted(ALGORITHMS, key=lambda row: row.class_name.lower()):
        paths = (f"rlox.algorithms.{row.class_name}", f"{row.facade}.{row.class_name}")
        home = f"{{class}}`{row.module}.{row.class_name}`"
        yield ", ".join(f"`{path}`" for path in paths), home


KINDS = {
    "Env backends": "rlox_env_backends",
    "Replay buffers": "rlox_buffers",
    "Learner backends": "rlox_learner_backends",
    "Actor backends": "rlox_actor_backends",
    "Policy losses": "rlox_policy_losses",
    "Preference losses": "rlox_preference_losses",
    "Loggers": "rlox_loggers",
    "Callbacks": "rlox_callbacks",
    "Commands": "rlox_commands",
    "Files of presets": "rlox_presets",
}


def registered_section(title: str, hook: str) -> str:
    """Return heading and table of everything registered through a hook."""
    from rlox.registry.table import get_registry

    found = [get_registry().get(hook, name) for name in get_registry().names(hook)]
    rows = [(f"`{r.spec.name}`", f"`{r.distribution}`", r.spec.summary) for r in found]
    return f"## {title}\n\n{table(('name', 'distribution', 'summary'), rows)}"


def presets() -> str:
    """Return a heading and a table for the presets of every algorithm that has any."""
    from rlox.config.presets import list_presets

    sections = []
    for name in dict.fromkeys(preset.algorithm for preset in list_presets()):
        rows = [
            (
                f"`{preset.env}`",
                f"`{preset.name}`",
                f"{preset.steps:,}",
                "–" if preset.score is None else f"{preset.score:g}",
                "–" if preset.tolerance is None else f"{preset.score - preset.tolerance:g}",
                preset.evidence,
                preset.source,
            )
            for preset in list_presets(name)
        ]
        columns = ("env", "preset", "steps", "score", "at least", "evidence", "source")
        sections.append(f"## {name}\n\n{table(columns, rows)}")
    return "\n".join(sections)


def run_flags(options: Any) -> Iterator[Sequence[str]]:
    """Yield flag, default and meaning of the flags that every training has."""
    import dataclasses

    from rlox.cli.runs.options import added_to
    from rlox.registry.table import list_algorithms

    names = {field.name for field in dataclasses.fields(options)}
    names |= {option.name for _, options in added_to("train", ()) for option in options}

    for row, name in _flags(_command("train").get_command(None, list_algorithms()[0])):
        if name in names:
            yield row


def command_flags(command: str) -> Iterator[Sequence[str]]:
    """Yield flag, default and meaning of a command's flags."""
    for row, _ in _flags(_command(command)):
        yield row


def _command(name: str) -> Any:
    import typer
    from rlox.cli.app import build_app

    return typer.main.get_command(build_app()).get_command(None, name)  # type: ignore[attr-defined]


def _flags(command: Any) -> Iterator[tuple[Sequence[str], str]]:
    for parameter in command.params:
        if parameter.name == "help":
            continue
        argument = parameter.param_type_name == "argument"
        spelling = parameter.name.upper() if argument else " ".join(parameter.opts)
        if parameter.metavar and not argument:
            spelling = f"{spelling} {parameter.metavar}"
        help_, _, default = (parameter.help or "").partition("  [default: ")
        if not default:
            value = parameter.default
            default = "required" if parameter.required else "" if value is None else str(value)
        default = {"False": "off", "True": "on"}.get(default.removesuffix("]"), default)
        default = default.removesuffix("]")
        yield (f"`{spelling}`", f"`{default}`" if default else "", help_), parameter.name


def scores(algorithm: str) -> str:
    """Return the table of the stored learning results of an algorithm."""
    rows = []
    for path in sorted(SCORES.glob(f"{algorithm}-*.json")):
        score = json.loads(path.read_text(encoding="utf-8"))
        runs = score["runs"]
        returns = ", ".join(f"{run['mean_return']:.1f}" for run in runs)
        rows.append(
            (
                score["env"], f"{score['env_steps']:,}", returns, f"{score['threshold']:g}",
                f"`scores/{path.name}`",
            )
        )  # fmt: skip
    if not rows:
        return "No results are stored in `scores/` yet.\n"
    head = ("env", "env steps", "mean return per seed", "threshold", "file")
    return table(head, rows)


def api_page(module: str, about: str) -> str:
    """Return the page that documents a module from its docstrings."""
    directives = [f".. automodule:: {module}"]
    if module in RUST_CLASSES.values():
        directives.append("   :inherited-members:")  # the stubs' bases are on no page
    options = [option for config in configs_in(module) for option in config.model_fields]
    if options:
        directives += [
            f"   :exclude-members: {', '.join([*options, 'schedule_bounds', 'model_config'])}",
            "",
            "The options and their meaning are in :doc:`/reference/configs`.",
            "",
        ]
    directives += undocumented_data(module)
    return f"# `{module}`: {about}\n\n```{{eval-rst}}\n{chr(10).join(directives)}\n```\n"


def configs_in(module: str) -> Iterator[Any]:
    """Yield the configs that a module defines."""
    from rlox.config.model import Config

    for value in vars(importlib.import_module(module)).values():
        if inspect.isclass(value) and issubclass(value, Config) and value.__module__ == module:
            yield value


def undocumented_data(module: str) -> Iterator[str]:
    """Yield directives for the public values without a docstring, which autodoc leaves out."""
    documented = ModuleAnalyzer.for_module(module).find_attr_docs()
    for name in public_names(module):
        value = getattr(importlib.import_module(module), name)
        if inspect.isclass(value) or inspect.isroutine(value) or ("", name) in documented:
            continue
        yield f".. py:data:: {name}"
        if isinstance(value, (int, str)):
            yield f"   :value: {value!r}"


def public_names(module: str) -> Iterator[str]:
    """Yield a module's public names, less the values that it imports from another module."""
    loaded = importlib.import_module(module)
    listed = getattr(loaded, "__all__", None)
    code = ModuleAnalyzer.for_module(module).code
    for name in vars(loaded) if listed is None else listed:
        value = getattr(loaded, name)
        has_home = inspect.isclass(value) or inspect.isroutine(value)
        if listed is None:
            if has_home and value.__module__ == module and not name.startswith("_"):
                yield name
        elif has_home or re.search(rf"^{name}\b.*=", code, re.MULTILINE):
            yield name


def _load_stub(name: str) -> None:
    """Let autodoc see the stub of a Rust module, which has the docstrings and signatures."""
    parent, _, own_name = name.partition(".")
    package = importlib.util.find_spec(parent)
    if package is None or package.origin is None:
        return
    for loaded in [module for module in sys.modules if module.split(".")[0] == parent]:
        del sys.modules[loaded]
    if not hasattr(typing, "type_check_only"):  # known to type checkers only
        typing.type_check_only = lambda cls: cls  # type: ignore[attr-defined]
    stub = Path(package.origin).with_name(f"{own_name}.pyi")
    module = types.ModuleType(name)
    sys.modules[name] = module
    # a stub may name a class before it defines it
    text = f"from __future__ import annotations\n{stub.read_text(encoding='utf-8')}"
    exec(compile(text, stub, "exec"), vars(module))  # noqa: S102
    vars(module).setdefault("__version__", "")  # declared in the stub, defined in Rust


def _adapt_docstring(
    _app: Sphinx, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]
) -> None:
    """Turn the house's docstrings into reStructuredText: stars of shapes, indented equations."""
    adapted: list[str] = []
    for i, line in enumerate(lines):
        blank_before = i > 0 and not lines[i - 1].strip()
        starts_block = line.startswith("    ") and blank_before
        previous = next((p for p in reversed(adapted) if p.strip()), "")
        if starts_block and previous and not previous.startswith(" "):
            adapted += ["::", ""]
        adapted.append(re.sub(r"(?<=[ (])\*(?=shape)", r"\\*", line))
    lines[:] = adapted


def _shorten_model_signature(
    _app: Sphinx, _what: str, _name: str, obj: Any, *_: Any
) -> tuple[str, str] | None:
    """Show a pydantic model's fields and defaults, without the types that carry its checks."""
    if not (inspect.isclass(obj) and issubclass(obj, BaseModel)):
        return None
    from rlox.config.model import Config

    if issubclass(obj, Config):
        return "(**options)", ""
    fields = [
        name if field.is_required() else f"{name}={field.default!r}"
        for name, field in obj.model_fields.items()
    ]
    return f"(*, {', '.join(fields)})", ""


def _skip_keys(_app: Sphinx, _what: str, name: str, *_: Any) -> bool | None:
    """Leave out the keys of a ``TypedDict`` that are no attributes, such as ``"env/steps"``."""
    return None if name.isidentifier() else True


def _qualify_names(_app: Sphinx, doctree: Any) -> None:
    """Point the short names of annotations that two packages share to that of their package."""
    for node in doctree.findall(addnodes.pending_xref):
        homes = SHARED_NAMES.get(node.get("reftarget", ""))
        if homes is not None and node.get("refdomain") == "py":
            package = str(node.get("py:module") or "").partition(".")[0]
            node["reftarget"] = homes.get(package, homes["rlox"])


def _resolve_facade(app: Sphinx, env: Any, node: Any, contnode: Any) -> Any:
    """Point references to the page of what they name: its package's, or its home's.

    ``rlox.Algorithm`` is documented as ``rlox.algorithm.Algorithm``, and
    ``rlox.envs.running.RunningEnvs`` as ``rlox.envs.RunningEnvs``.
    """
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or not target.startswith("rlox"):
        return None
    domain = env.get_domain("py")
    for full in _homes(target):
        found = domain.resolve_xref(
            env, node["refdoc"], app.builder, node["reftype"], full, node, contnode
        )
        if found is not None:
            return found
    return None


def _homes(target: str) -> Iterator[str]:
    """Yield the names under which the reference may have ``target``."""
    rlox = importlib.import_module("rlox")
    package, *parts = target.split(".")
    if package == "rlox" and parts:
        home = rlox._MODULES.get(parts[0]) or RUST_CLASSES.get(parts[0])
        if home is not None:
            yield from _homes(".".join((home, *parts)))
            yield ".".join((home, *parts))
    for path in PATHS:
        if target == path or target.startswith(f"{path}."):
            name = target[len(path) + 1 :]
            module = importlib.import_module(path)
            home = getattr(module, name.split(".")[0] or module.__all__[0]).__module__
            yield from _homes(".".join(filter(None, (home, name))))
    # the package in the place of one of its modules
    for i in range(len(parts) - 1, 0, -1):
        yield ".".join((package, *parts[:i], *parts[i + 1 :]))
        yield ".".join((package, *parts[:i]))


def missing_names(documented: Container[str]) -> list[str]:
    """Return the public names of the API's modules that are not among ``documented``."""
    names = [f"{module}.{name}" for module in pages() for name in public_names(module)]
    return [name for name in names if name not in documented]


def _check_coverage(env: Any) -> None:
    log = logging.getLogger(__name__)
    for name in missing_names(env.get_domain("py").objects):
        log.warning("public name '%s' is on no page of the reference", name)
