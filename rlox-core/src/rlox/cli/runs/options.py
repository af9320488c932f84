"""Run options of ``rlox train`` beyond the algorithm's config."""

import dataclasses
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from rlox.cli.runs.parts import flag_of, is_code
from rlox.errors import ConfigError

NOT_RESUMED = ("config", "preset", "run_dir", "ray", "quiet")
"""Run options that say nothing about the training."""


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """What a training run needs beyond the algorithm's config; each field is a flag."""

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
            min=1,
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
        typer.Option(help="where metrics go; repeatable  [default: jsonl]", metavar="NAME"),
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
            help="env steps between evaluations; 0: only at the end", min=0, metavar="STEPS"
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
    """Parts of the algorithm besides the env, as text; see :mod:`rlox.cli.runs.parts`."""

    def __post_init__(self) -> None:
        _ = self.checkpoint_steps  # raises

    @property
    def checkpoint_steps(self) -> int:
        """Steps between checkpoints that are all kept; 0: there are none.

        Raises:
            ConfigError: the option is neither steps nor a time.
        """
        text = self.checkpoint_freq
        if re.fullmatch(r"\d+", text):
            return int(text)
        if self.checkpoint_seconds:
            return 0
        raise ConfigError(
            "checkpoint_freq must be a time such as 30s or 5min, a whole number of steps, or 0, "
            f"got {text!r}"
        )

    @property
    def checkpoint_seconds(self) -> float:
        """Seconds between checkpoints of which the newest is kept; 0: there are none."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|min|h)", self.checkpoint_freq)
        return float(found[1]) * {"s": 1, "min": 60, "h": 3600}[found[2]] if found else 0.0

    @property
    def loggers(self) -> list[str]:
        """Names of the loggers."""
        return self.logger or ["jsonl"]

    @property
    def callbacks(self) -> list[str]:
        """Names of the callbacks."""
        return self.callback or []

    @property
    def subject(self) -> str:
        """What the run is about, for the name of its folder: the env, or the first of the parts."""
        return self.env or Path(next(iter(self.parts.values()), "run")).name

    def to_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs as JSON-able values, without parts that are code."""
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
        """Return what :meth:`to_dict` wrote; it may come from a file of unknown origin.

        Raises:
            ConfigError: the values are others, or of the wrong type.
        """
        if isinstance(values, dict) and "dataset" in values:  # as runs before had it
            values = dict(values)
            dataset = values.pop("dataset")
            values["parts"] = {} if dataset is None else {"dataset": dataset}
        if isinstance(values, dict) and type(values.get("checkpoint_freq")) is int:
            values = {**values, "checkpoint_freq": str(values["checkpoint_freq"])}
        try:
            return TypeAdapter(cls).validate_python(values)
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            raise ConfigError(f"the run's options are damaged: {reason}") from None
