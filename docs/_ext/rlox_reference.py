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
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util import logging

DOCS = Path(__file__).parents[1]
SCORES = DOCS.parent / "scores"
GENERATED = DOCS / "reference" / "generated"

API = {
    "rlox.algorithm": "what every algorithm has",
    "rlox.networks.actor_critics": "the default actor-critics",
    "rlox.networks.recurrent": "actor-critics with a memory",
    "rlox.networks": "the networks of off-policy and offline algorithms",
    "rlox.losses": "objectives",
    "rlox.envs.running": "envs in the middle of their episodes",
    "rlox.rollouts.collector": "from envs to rollouts",
    "rlox.batches.rollout": "what a rollout holds",
    "rlox.rollouts.rollout": "how a rollout is filled",
    "rlox.rollouts.actors": "how policies act in a rollout",
    "rlox.spaces.nested": "nested spaces by leaf",
    "rlox.spaces.observation_rows": "observations as they are kept",
    "rlox.preprocessing": "normalisation and frame stacking",
    "rlox.spaces.action_rows": "action rows and masks",
    "rlox.spaces.masks": "where envs give masks",
    "rlox.nn.distributions": "distributions of actions",
    "rlox.trainers": "the introduction's trainers",
    "rlox.callbacks": "hooks into training",
    "rlox.logging": "where metrics go",
    "rlox.protocols": "contracts",
    "rlox.config.model": "configs and their fields",
    "rlox.config.files": "configs as YAML and JSON",
    "rlox.config.common_fields": "the options that configs share",
    "rlox.config.schedules": "values over env steps",
    "rlox.evaluation": "the evaluation loop",
    "rlox.analysis.learning_curves": "logs of runs as curves",
    "rlox.analysis.measure": "measuring speed",
    "rlox.analysis.statistics": "statistics over runs",
    "rlox.training.checkpoint": "writing and reading checkpoints",
    "rlox.envs.make": "from what a user passes to a vector env",
    "rlox.envs.gymnasium": "gymnasium envs",
    "rlox.envs.episodes": "episode statistics",
    "rlox.seeding": "random streams",
    "rlox.registry.table": "names",
    "rlox.registry.specs": "what plugins register",
    "rlox.registry.hookspecs": "the plugin hooks",
    "rlox.registry.plugins": "how plugins are loaded",
    "rlox.training.loop": "the training loop",
    "rlox.registry.entry": "from a registered name to the object",
    "rlox.training.progress": "counters",
    "rlox.networks.predict": "from observations to actions",
    "rlox.learners.rollouts": "what takes the gradient steps",
    "rlox.learners.transitions": "the same for off-policy algorithms",
    "rlox.learners.compiled": "the same by torch.compile",
    "rlox.rollouts.actor_critic": "policy, envs and optimiser together",
    "rlox.replay.loop": "envs, replay buffer and their rhythm together",
    "rlox.replay.collector": "from envs to replay buffers",
    "rlox.replay.observation_codec": "observations as replay buffers keep them",
    "rlox.replay.action_codec": "actions as replay buffers keep them",
    "rlox.replay.goals": "envs that ask for goals",
    "rlox.replay.buffers": "replay buffers by name",
    "rlox.replay.checked_sampling": "batches drawn from replay buffers",
    "rlox.networks.validate": "networks of one's own, tried",
    "rlox.networks.validate_actors": "actor-critics of one's own, tried",
    "rlox.networks.defaults": "networks that fit an env's spaces",
    "rlox.learners.terms": "what gradient steps report, and metrics of it",
    "rlox.nn": "torch parts that families share",
    "rlox.errors": "errors",
    "rlox.validation": "checks of arguments",
    "rlox.training.versions": "what a run was made with",
    "rlox.testing": "the conformance suite for plugins",
    "rlox.kernels": "which kernels run",
    "rlox.preferences": "pairs of completions",
    "rlox.reference": "the NumPy kernels and buffers",
    "rlox_native": "the Rust kernels, buffers and envs",
    "rlox_native.learner": "the native learner backend",
    "rlox_native.replay_learner": "the same for algorithms that learn from batches of transitions",
    "rlox_native.q_learner": "its steps of DQN",
    "rlox_native.actor_critic_learner": "its steps of SAC, TD3, DDPG and TD3+BC",
    "rlox_native.implicit_learner": "its step of IQL",
    "rlox_native.optimizers": "torch's optimisers as it takes them",
    "rlox_native.rollouts": "its rollouts",
    "rlox.offline.base": "what every offline algorithm has",
    "rlox.offline.config": "the options of every offline algorithm",
    "rlox.offline.dataset": "what an offline algorithm needs of a dataset",
    "rlox.offline.batch": "a dataset's samples as networks see them",
    "rlox_offline.awac": "AWAC",
    "rlox_offline.bc": "BC",
    "rlox_offline.cql": "CQL",
    "rlox_offline.fqe": "FQE",
    "rlox_offline.iql": "IQL",
    "rlox_offline.td3_bc": "TD3+BC",
    "rlox_offline.losses": "objectives of the offline algorithms",
    "rlox_offline.networks": "networks of the offline algorithms",
    "rlox_offline.configs": "configs of the offline algorithms",
    "rlox_offline.datasets": "recorded transitions, read and written",
    "rlox_candle": "rollouts collected in Rust",
    "rlox_onpolicy.a2c": "A2C",
    "rlox_onpolicy.agent": "what the on-policy algorithms build alike",
    "rlox_onpolicy.candle_rollouts": "rollouts collected in Rust, for torch",
    "rlox_onpolicy.hybrid_ppo": "HybridPPO",
    "rlox_onpolicy.ppo": "PPO",
    "rlox_onpolicy.ppo_update": "PPO's update",
    "rlox_onpolicy.configs": "configs of the on-policy algorithms",
    "rlox_offpolicy.ddpg": "DDPG",
    "rlox_offpolicy.discrete_sac": "SAC for discrete actions",
    "rlox_offpolicy.dqn": "DQN",
    "rlox_offpolicy.sac": "SAC",
    "rlox_offpolicy.td3": "TD3",
    "rlox_offpolicy.targets": "the targets of Q-learning and its relatives",
    "rlox_offpolicy.action_values": "what DQN learns of an action",
    "rlox_offpolicy.exploration": "noise on actions",
    "rlox_offpolicy.agent": "what the off-policy algorithms build alike",
    "rlox_offpolicy.own_networks": "networks of one's own, for envs with a replay buffer",
    "rlox_offpolicy.metrics": "what the off-policy algorithms report",
    "rlox_offpolicy.configs": "configs of the off-policy algorithms",
    "rlox_offpolicy.replay_config": "the options of every off-policy algorithm",
}
"""The modules with an API page of their own, and what each is about."""

FACADES = (
    "rlox",
    "rlox.algorithms",
    "rlox.algorithms.a2c",
    "rlox.algorithms.awac",
    "rlox.algorithms.bc",
    "rlox.algorithms.cql",
    "rlox.algorithms.ddpg",
    "rlox.algorithms.discrete_sac",
    "rlox.algorithms.dqn",
    "rlox.algorithms.fqe",
    "rlox.algorithms.hybrid_ppo",
    "rlox.algorithms.iql",
    "rlox.algorithms.ppo",
    "rlox.algorithms.sac",
    "rlox.algorithms.td3",
    "rlox.algorithms.td3_bc",
)
"""Modules that hand on what other modules define; ``reference/api/rlox.md`` lists their names."""

RUST_CLASSES = {
    "CandleCollector": "rlox_candle", "CartPole": "rlox_native",
    "MmapReplayBuffer": "rlox_native", "VecEnv": "rlox_native",
}  # fmt: skip
"""The classes that the top hands on from Rust, with their homes."""

INTERNAL = (
    "rlox.training.atomic_files",
    "rlox.envs.validate",
    "rlox.cli",
    "rlox.api",
    "rlox_offline.cli",
    "rlox_offline.plugin",
    "rlox_offpolicy.plugin",
    "rlox_onpolicy.plugin",
    "rlox_native.plugin",
    "rlox_native.vector_env",
)
"""Modules, with all below them, that are no API."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the generator with Sphinx."""
    app.connect("config-inited", lambda *_: write_reference())
    app.connect("autodoc-process-docstring", _adapt_docstring, priority=100)
    app.connect("autodoc-process-signature", _shorten_model_signature)
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
        "registered": "\n".join(registered_section(*kind) for kind in KINDS.items()),
        "cli-train": table(("flag", "default", "meaning"), run_flags(RunOptions)),
        "cli-resume": table(("flag", "default", "meaning"), command_flags("resume")),
        "cli-eval": table(("flag", "default", "meaning"), command_flags("eval")),
        "cli-plot": table(("flag", "default", "meaning"), command_flags("plot")),
        "cli-bench": table(("flag", "default", "meaning"), command_flags("bench")),
        "cli-explain": table(("flag", "default", "meaning"), command_flags("explain")),
        "cli-list": table(("flag", "default", "meaning"), command_flags("list")),
    }
    fragments |= {f"config-{name}": config_table(name) for name in list_algorithms()}
    fragments |= {f"scores-{name}": scores(name) for name in list_algorithms()}
    for name, text in fragments.items():
        _write(GENERATED / "fragments" / f"{name}.md", text)
    for page in set((GENERATED / "api").glob("*.md")) - {_page(module) for module in API}:
        page.unlink()  # of a module that is gone
    for module, about in API.items():
        _write(_page(module), api_page(module, about))


def _page(module: str) -> Path:
    return GENERATED / "api" / f"{module}.md"


def _write(path: Path, text: str) -> None:
    """Write ``text``, unless it is there already: Sphinx reads changed files anew."""
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
    from rlox.cli.flags import default_text, documentation
    from rlox.registry.table import config_class

    config = config_class(name)
    rows = []
    for option, field in config.model_fields.items():
        meaning, unit, source = documentation(field)
        rows.append(
            (
                f"`{option}`", f"`{default_text(field)}`", _bounds(config, option, field), unit,
                meaning, source,
            )
        )  # fmt: skip
    return table(("option", "default", "values", "unit", "meaning", "source"), rows)


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


KINDS = {
    "Env backends": "rlox_env_backends",
    "Replay buffers": "rlox_buffers",
    "Learner backends": "rlox_learner_backends",
    "Loggers": "rlox_loggers",
    "Callbacks": "rlox_callbacks",
    "Commands": "rlox_commands",
}


def registered_section(title: str, hook: str) -> str:
    """Return heading and table of everything registered through a hook."""
    from rlox.registry.table import get_registry

    found = [get_registry().get(hook, name) for name in get_registry().names(hook)]
    rows = [(f"`{r.spec.name}`", f"`{r.distribution}`", r.spec.summary) for r in found]
    return f"## {title}\n\n{table(('name', 'distribution', 'summary'), rows)}"


def run_flags(options: Any) -> Iterator[Sequence[str]]:
    """Yield flag, default and meaning of the flags that every training has."""
    import dataclasses

    names = {field.name for field in dataclasses.fields(options)}
    from rlox.registry.table import list_algorithms

    for row, name in _flags(_command("train").commands[list_algorithms()[0]]):
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
    code = ModuleAnalyzer.for_module(module).code
    for name in getattr(importlib.import_module(module), "__all__", ()):
        value = getattr(importlib.import_module(module), name)
        has_home = inspect.isclass(value) or inspect.isroutine(value)
        if has_home or re.search(rf"^{name}\b.*=", code, re.MULTILINE):
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


def _resolve_facade(app: Sphinx, env: Any, node: Any, contnode: Any) -> Any:
    """Point references such as ``rlox.Algorithm`` to the page of the module that defines it."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or not target.startswith("rlox."):
        return None
    rlox = importlib.import_module("rlox")
    name, _, rest = target.removeprefix("rlox.").partition(".")
    home = rlox._MODULES.get(name) or RUST_CLASSES.get(name)
    if home is None:
        return None
    full = ".".join(filter(None, (home, name, rest)))
    domain = env.get_domain("py")
    return domain.resolve_xref(
        env, node["refdoc"], app.builder, node["reftype"], full, node, contnode
    )


def missing_names(documented: Container[str]) -> list[str]:
    """Return the public names of the API's modules that are not among ``documented``."""
    names = [f"{module}.{name}" for module in API for name in public_names(module)]
    return [name for name in names if name not in documented]


def _check_coverage(env: Any) -> None:
    log = logging.getLogger(__name__)
    for name in missing_names(env.get_domain("py").objects):
        log.warning("public name '%s' is on no page of the reference", name)
