"""Options of ``rlox train`` and ``rlox resume`` beyond the config; parts, and plugins' options.

A spec's needs other than an env become flags: ``dataset`` is ``--dataset``, ``reward_fn`` is
``--reward``. A name that ends in ``_fn`` is code, ``module:function``; no file of a run names code,
so that it must be given again to resume.
"""

import dataclasses
import importlib
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO

import typer
from pydantic import TypeAdapter, ValidationError

from rlox.cli.flags import whole_number
from rlox.cli.output import print_progress
from rlox.errors import ConfigError, PluginWarning, RloxError
from rlox.registry.table import get_registry

HELP = {
    "dataset": "dataset to learn from, for algorithms that need one: a file or minari:<id>; "
    "stream: before it keeps it out of memory",
    "policy": "policy to evaluate: a file that `rlox export` wrote",
    "model": "language model to train: a folder that transformers saved",
    "ref_model": "reference that the model is held to: a folder; left out: the model as it is now",
    "reward_fn": "function that rewards completions",
    "preference_fn": "function that picks the better of two completions",
}
"""Descriptions of the parts of rlox's own families."""


EnvAgain = Annotated[
    str | None, typer.Option(help="Id of the env; left out: the one trained on.", metavar="ID")
]
Best = Annotated[
    bool, typer.Option("--best", help="Take a run folder's best checkpoint by --eval-freq.")
]
Sampled = Annotated[
    bool, typer.Option("--stochastic", help="Sample actions instead of taking the mode.")
]
RewardAgain = Annotated[
    str | None,
    typer.Option(help="Function that rewards completions, given again.", metavar="MODULE:FUNCTION"),
]
PreferenceAgain = Annotated[
    str | None,
    typer.Option(
        help="Function that picks the better completion, given again.", metavar="MODULE:FUNCTION"
    ),
]


def code_given(reward: str | None, preference: str | None) -> dict[str, str]:
    """Return the functions to give to a checkpoint again, by the names of their parts."""
    given = {"reward_fn": reward, "preference_fn": preference}
    return {name: text for name, text in given.items() if text is not None}


def is_code(name: str) -> bool:
    """Return whether a part is a function, which a file must not name."""
    return name.endswith("_fn")


def flag_of(name: str) -> str:
    """Return the flag of a part, such as ``--reward`` for ``reward_fn``."""
    return f"--{name.removesuffix('_fn').replace('_', '-')}"


def part_parameters(needs: Collection[str], takes: Iterable[str]) -> Iterator[inspect.Parameter]:
    """Return keyword parameters for typer to make flags of.

    Args:
        needs: names of required parts.
        takes: names of optional parts.
    """
    for name in dict.fromkeys([*needs, *takes]):
        if name == "env":
            continue
        metavar = "MODULE:FUNCTION" if is_code(name) else "NAME"
        option = typer.Option(
            flag_of(name), help=HELP.get(name, name.replace("_", " ")), metavar=metavar
        )
        yield inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if name in needs else None,
            annotation=Annotated[str if name in needs else str | None, option],
        )


def load_parts(parts: Mapping[str, str]) -> dict[str, Any]:
    """Import the parts that are functions; return other parts as text.

    The working directory is searched for modules, as ``python -m`` does.

    Raises:
        ConfigError: a text does not name an importable function.
    """
    return {name: _function(name, text) if is_code(name) else text for name, text in parts.items()}


def _function(name: str, text: str) -> Any:
    module, _, attribute = text.partition(":")
    flag = flag_of(name)
    if not module or not attribute:
        raise ConfigError(f"{flag} must look like module:function, got '{text}'")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{flag} {text}: there is no module '{error.name}'") from None
    except AttributeError:
        raise ConfigError(f"{flag} {text}: '{module}' has no '{attribute}'") from None
    if not callable(found):
        raise ConfigError(f"{flag} {text}: it cannot be called, it is {type(found).__name__}")
    return found


def code_parts(parts: Mapping[str, str]) -> list[str]:
    """Return the flags that give the functions again, for the command that resumes a run."""
    return [word for name, text in parts.items() if is_code(name) for word in (flag_of(name), text)]


NOT_RESUMED = ("config", "preset", "run_dir", "ray", "quiet")
"""Run options that do not affect the training."""


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Options of a training run beyond the algorithm's config; each field is a flag."""

    env: Annotated[
        str | None,
        typer.Option(
            help="env to train on, such as CartPole-v1; with a dataset, to evaluate in",
            metavar="ID",
        ),
    ] = None
    total_timesteps: Annotated[
        int,
        typer.Option(
            help="env steps to train for, rounded up to whole iterations; with a dataset, "
            "gradient steps, like all steps below; with --preset by default the preset's",
            parser=lambda text: whole_number(text, at_least=1),
            metavar="STEPS",
        ),
    ] = 100_000
    config: Annotated[
        Path | None,
        typer.Option(help="YAML or JSON file with options; flags win over it", metavar="FILE"),
    ] = None
    preset: Annotated[
        str | None,
        typer.Option(
            help="tuned options for the env that `rlox list --presets` shows; --config and flags "
            "win over them",
            metavar="NAME",
        ),
    ] = None
    run_dir: Annotated[
        Path | None,
        typer.Option(
            help="new or empty folder for the results  "
            "[default: runs/<algorithm>-<env>-<seed>-<time>]",
            metavar="FOLDER",
        ),
    ] = None
    logger: Annotated[
        list[str] | None,
        typer.Option(help="where else than metrics.jsonl rows go; repeatable", metavar="NAME"),
    ] = None
    callback: Annotated[
        list[str] | None,
        typer.Option(help="a callback that `rlox list` shows; repeatable", metavar="NAME"),
    ] = None
    ray: Annotated[
        bool,
        typer.Option(
            "--ray",
            help="collect on a Ray cluster: short for --actor-backend ray, or --env-backend ray "
            "where there are no actors",
        ),
    ] = False
    eval_freq: Annotated[
        int,
        typer.Option(
            help="env steps between evaluations; 0: only at the end",
            parser=whole_number,
            metavar="STEPS",
        ),
    ] = 0
    eval_episodes: Annotated[
        int, typer.Option(help="episodes per evaluation", min=1, metavar="N")
    ] = 20
    checkpoint_freq: Annotated[
        str,
        typer.Option(
            help="time between checkpoints, 30s or 5min, of which the newest is kept; env steps "
            "between them, 50000, all of which are kept; 0: only at the end and on Ctrl-C",
            metavar="TIME|STEPS",
        ),
    ] = "30s"
    quiet: Annotated[bool, typer.Option("--quiet", help="show no progress")] = False
    parts: dict[str, str] = dataclasses.field(default_factory=dict)
    """Parts of the algorithm besides the env, as text; see :mod:`rlox.cli.runs.options`."""

    def __post_init__(self) -> None:
        _ = self.checkpoint_steps  # raises

    @property
    def checkpoint_steps(self) -> int:
        """Steps between checkpoints that are all kept; 0 saves none.

        Raises:
            ConfigError: the option is neither a number of steps nor a time.
        """
        text = self.checkpoint_freq
        with suppress(typer.BadParameter):
            return whole_number(text)
        if self.checkpoint_seconds:
            return 0
        raise ConfigError(
            "checkpoint_freq must be a time such as 30s or 5min, a whole number of steps, or 0, "
            f"got {text!r}"
        )

    @property
    def checkpoint_seconds(self) -> float:
        """Seconds between checkpoints, of which only the newest is kept; 0 saves none."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|min|h)", self.checkpoint_freq)
        return float(found[1]) * {"s": 1, "min": 60, "h": 3600}[found[2]] if found else 0.0

    @property
    def loggers(self) -> list[str]:
        """Names of the loggers; the run folder always gets rows, whatever happens to a server."""
        return list(dict.fromkeys([*(self.logger or ()), "jsonl"]))

    @property
    def callbacks(self) -> list[str]:
        """Names of the callbacks."""
        return self.callback or []

    @property
    def subject(self) -> str:
        """Subject of the run, for the name of its folder: the env, or the first part."""
        return self.env or Path(next(iter(self.parts.values()), "run")).resolve().name

    def begin(self, name: str, log: TextIO | None = None) -> None:
        """Check the names and the folder of a run, and print its first line; this imports little.

        Args:
            name: of the algorithm.
            log: file to print to; ``None`` prints on stdout.

        Raises:
            RloxError: a logger or a callback is unknown, or the folder is in use.
        """
        get_registry().get_all("rlox_loggers", self.loggers)
        get_registry().get_all("rlox_callbacks", self.callbacks)
        if self.run_dir is not None:
            require_unused(self.run_dir)
        if not self.quiet:
            print_progress(f"{name} on {self.subject}: {self.total_timesteps:,} steps", log)

    def to_dict(self) -> dict[str, Any]:
        """Return the options for a resumed run as JSON-able values, without parts that are code."""
        kept = {key: value for key, value in vars(self).items() if key not in NOT_RESUMED}
        return {**kept, "parts": {k: v for k, v in self.parts.items() if not is_code(k)}}

    def to_flags(self) -> list[str]:
        """Return the options, parts that are code included, as arguments of the command line."""
        flags = [word for name, text in self.parts.items() for word in (flag_of(name), text)]
        for key, value in self.to_dict().items():
            if key == "parts":
                continue
            for each in value if isinstance(value, list) else [value]:
                flags += [f"--{key.replace('_', '-')}", str(each)] if each is not None else []
        return flags

    @classmethod
    def from_dict(cls, values: Any) -> "RunOptions":
        """Return the options from :meth:`to_dict`'s values, which may come from an untrusted file.

        Raises:
            ConfigError: the values have other names or the wrong type.
        """
        try:
            return TypeAdapter(cls).validate_python(values)
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            raise ConfigError(f"the run's options are damaged: {reason}") from None


def require_unused(path: Path) -> None:
    """Refuse a folder that is not empty.

    Raises:
        ConfigError: it is a file, a dangling link, or not empty.
    """
    if path.is_symlink() and not path.exists():
        raise ConfigError(
            f"run folder '{path}' is a link that leads nowhere; make the folder that it leads to, "
            "or name another with --run-dir"
        )
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(
            f"run folder '{path}' exists and is not empty; name another with --run-dir, leave "
            "--run-dir out for a new one, or finish its run with rlox resume"
        )


Added = list[tuple[Callable[..., int | None], list[inspect.Parameter]]]
"""Functions, each with the parameters that are its options."""


def added_to(command: Literal["train", "resume"], taken: Iterable[str]) -> Added:
    """Return the functions and options that plugins add to a command.

    A function is left out with a warning if it cannot be imported, or if one of its options has
    the name of another option.

    Args:
        command: its name.
        taken: names of its own options.
    """
    names, found = set(taken), []
    for registration in get_registry().usable("rlox_run_options"):
        try:
            function = registration.load(command)
            parameters = inspect.signature(function, eval_str=True).parameters.values()
            options = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
            if twice := sorted(names & {p.name for p in options}):
                raise registration.broken(f"'rlox {command}' has an option '{twice[0]}' already")
        except RloxError as error:
            warnings.warn(str(error), PluginWarning, stacklevel=2)
            continue
        names |= {p.name for p in options}
        found.append((function, options))
    return found


def exit_code_of(added: Added, values: Mapping[str, Any], *arguments: Any) -> int | None:
    """Return the exit code of the first function that takes over the run; ``None``: none does.

    Args:
        added: functions and options of plugins.
        values: of all options, by name.
        arguments: of the functions.
    """
    for function, options in added:
        code = function(*arguments, **{p.name: values[p.name] for p in options})
        if code is not None:
            return code
    return None


def with_options(
    command: Callable[..., None], parameters: Iterable[inspect.Parameter]
) -> Callable[..., None]:
    """Give a function a signature for typer, and return it."""
    found = list(parameters)
    command.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in found}
    return command
