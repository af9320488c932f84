"""Configs: one flat, frozen, strict pydantic model per algorithm.

Every field is made by a helper of this module, which demands bounds, a sentence, a unit and a
source; the CLI's flags, the documentation's tables and the JSON schema are generated from these.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo

from rlox.config.composition import composed_class, without_foreign_defaults
from rlox.config.files import read_mapping, to_yaml
from rlox.config.presets import fill_in
from rlox.config.schedules import Linear, Piecewise
from rlox.config.schedules import ScheduleValue as ScheduleValue  # noqa: PLC0414  # for configs
from rlox.errors import ConfigError, suggest
from rlox.files import write_atomically

Group = Literal["run", "env", "learning", "network", "speed"]

GROUPS: dict[str, str] = {
    "run": "Run",
    "env": "Env and observations",
    "learning": "Learning",
    "network": "Network",
    "speed": "Speed",
}
"""Headings of the groups, in their order of display."""

UNITS: dict[str, Group] = {
    "units": "network",
    "layers": "network",
    "threads": "speed",
    "actors": "speed",
    "workers": "speed",
    "envs": "env",
}
"""Groups of options by unit; names in :data:`NAMES` win."""

NAMES: dict[Group, tuple[str, ...]] = {
    "run": ("seed", "preset", "save_replay_buffer", "log_completions", "num_completions_to_print"),
    "env": (
        "act_dim", "act_high", "clip_rewards", "env_backend", "env_kwargs", "frame_stack",
        "n_actions", "n_agents", "n_envs", "normalize_observations", "normalize_rewards",
        "obs_dim", "opponents", "pool_interval", "pool_share", "pool_size", "reward_scale",
        "reward_shift", "team_reward",
    ),
    "network": (
        "activation", "bins", "blocks", "conv", "critic", "critic_obs", "decoder_keys", "depth",
        "deter_dim", "distributional", "dropout", "dueling", "encoder_keys", "gain", "hyper_size",
        "latent_dim", "layer_norm", "log_std", "lora_alpha", "lora_dropout", "lora_rank",
        "lora_target_modules", "memory_size", "mixing_size", "n_atoms", "n_quantiles", "network",
        "noisy", "noisy_std", "recurrent", "share_parameters", "shared", "size", "stoch_classes",
        "stoch_dim",
    ),
    "speed": (
        "actor_backend", "amp_dtype", "backend", "bf16", "compile", "compute_dtype", "device",
        "enable_amp", "gradient_checkpointing", "layout", "matmul_precision", "max_restarts",
        "micro_batch_size", "overlap", "queue_size", "vectorization", "worker_timeout",
    ),
}  # fmt: skip
"""Groups of options that mean the same in every config; the default group is learning."""

GROUP_OF = {name: group for group, names in NAMES.items() for name in names}


def group_of(name: str, field: FieldInfo) -> Group:
    """Return the group of an option, by its name or else by its unit."""
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    return GROUP_OF.get(name) or UNITS.get(str(extra.get("unit")), "learning")


LARGEST = {
    "envs": 1 << 16,
    "units": 1 << 13,
    "env steps per env": 10**6,
    "threads": 1 << 10,
    "actors": 1 << 10,
    "layers": 1 << 8,
    "blocks": 1 << 10,
    "categoricals": 1 << 12,
    "classes": 1 << 12,
    "bins": 1 << 12,
    "numbers": 1 << 24,
}
"""Largest plausible number by unit. Larger ones are mistakes, reported before they exhaust the
memory, or the threads, without which OpenMP ends the process."""


def option(
    default: Any,
    *,
    help: str,  # noqa: A002
    unit: str,
    source: str,
    selects: str | None = None,
    **bounds: Any,
) -> Any:
    """Return a config field with its documentation.

    Args:
        default: value when none is given.
        help: one sentence on the field's effect.
        unit: ``"env steps"``, ``"gradient steps"``, ``"nats"``, ``"1"`` (dimensionless), ...
        source: where the default or the idea comes from.
        selects: the hook, such as ``"rlox_buffers"``, of the plugin that the field names; the
            config then has the plugin's options too.
        bounds: pydantic constraints (``ge``, ``gt``, ``le``, ``lt``, ...).
    """
    extra: dict[str, Any] = {"unit": unit, "source": source}
    if selects is not None:
        extra["selects"] = selects
    return Field(default, description=help, json_schema_extra=extra, **bounds)


def count(default: int | None, *, help: str, unit: str, source: str, ge: int = 1) -> Any:  # noqa: A002
    """Return an integer field of at least ``ge`` and at most the unit's ``LARGEST``."""
    bounds: dict[str, Any] = {"le": LARGEST[unit]} if unit in LARGEST else {}
    return option(default, help=help, unit=unit, source=source, ge=ge, **bounds)


def coefficient(default: float | None, *, help: str, unit: str = "1", source: str) -> Any:  # noqa: A002
    """Return a non-negative weight."""
    return option(default, help=help, unit=unit, source=source, ge=0.0)


def positive(default: float | None, *, help: str, unit: str = "1", source: str) -> Any:  # noqa: A002
    """Return a strictly positive number."""
    return option(default, help=help, unit=unit, source=source, gt=0.0)


def probability(default: float, *, help: str, source: str) -> Any:  # noqa: A002
    """Return a number in [0, 1]."""
    return option(default, help=help, unit="1", source=source, ge=0.0, le=1.0)


def discount(default: float, *, help: str, source: str) -> Any:  # noqa: A002
    """Return a discount factor or trace decay in [0, 1]."""
    return option(default, help=help, unit="1", source=source, ge=0.0, le=1.0)


def flag(default: bool, *, help: str, source: str) -> Any:  # noqa: A002
    """Return an on/off switch."""
    return option(default, help=help, unit="on/off", source=source)


def choice(default: str, *, help: str, source: str) -> Any:  # noqa: A002
    """Return a choice among the literals of the field's annotation."""
    return option(default, help=help, unit="choice", source=source)


def schedule(default: Any, *, help: str, unit: str = "1", source: str) -> Any:  # noqa: A002
    """Return a field for a number or a schedule over the training's steps."""
    return option(default, help=help, unit=unit, source=source)


_WIDTHS = TypeAdapter(
    Annotated[tuple[Annotated[int, Field(ge=1, le=LARGEST["units"])], ...], Field(min_length=1)]
)


def _read_widths(value: Any) -> Any:
    several = "," in value if isinstance(value, str) else isinstance(value, (list, tuple))
    parts = value.rstrip(",").split(",") if isinstance(value, str) else value
    try:
        found = _WIDTHS.validate_python(parts if isinstance(parts, (list, tuple)) else [parts])
    except ValidationError:
        most = LARGEST["units"]
        raise ValueError(f"one or more widths from 1 to {most}, such as 64 or 64,64") from None
    return found if several else found[0]


Widths = Annotated[int | tuple[int, ...], BeforeValidator(_read_widths)]
"""Type of :func:`widths`; as text, separated by commas."""
MaybeWidths = Annotated[
    int | tuple[int, ...] | None,
    BeforeValidator(lambda given: given if given is None else _read_widths(given)),
]


Activation = Literal["elu", "gelu", "leaky_relu", "relu", "silu", "tanh"]
Conv = (
    Literal["auto", "impala", "minatar", "nature"]
    | tuple[tuple[PositiveInt, PositiveInt, PositiveInt], ...]
)


def widths(default: int, *, of: str = "", source: str) -> Any:
    """Return the widths of hidden layers: one number for two layers, or a number for each."""
    what = f"width of both hidden layers{of}, or of each one, as in 64,64"
    return option(default, help=what, unit="units", source=source)


def _holds_bool(value: Any) -> bool:
    several = isinstance(value, (list, tuple))
    return any(map(_holds_bool, value)) if several else isinstance(value, bool)


ConfigT = TypeVar("ConfigT", bound="Config")

LONGEST_SHOWN = 300
"""Maximum number of characters of a value in an error."""


class Unset(Enum):
    """The type of :data:`UNSET`."""

    UNSET = "unset"


UNSET = Unset.UNSET
"""Default of an argument that is left to the config."""


def _lines(error: ValidationError, cls: type[Config]) -> list[str]:
    lines = []
    for problem in error.errors():
        name = str(problem["loc"][0]) if problem["loc"] else ""
        value, cause = problem["input"], problem.get("ctx", {}).get("error")
        if problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1:
            remedy = suggest(name, cls.model_fields)
            lines.append(f"unknown option '{name}' for {cls.__name__}{remedy}")
        elif problem["type"] == "missing" and len(problem["loc"]) == 1:
            lines.append(f"option '{name}' is missing")
        elif not name or isinstance(cause, ConfigError):  # its text is complete
            lines.append(problem["msg"] if cause is None else str(cause))
        else:
            expected = (
                problem["msg"] if problem["type"] != "int_parsing_size" else "a smaller integer"
            )
            for prefix in ("Input should be ", "Value error, ", "String should have "):
                expected = expected.removeprefix(prefix)
            line = f"{name}: expected {expected}, got {_shown(value)}"
            if isinstance(value, str) and value.lower() == "none":
                line += "; None is null in a file"
            if callable(value) and name in cls.schedule_bounds:
                line += f"; pass functions of the steps done as schedules={{'{name}': function}}"
            if line not in lines:
                lines.append(line)
    return lines


def _shown(value: Any) -> str:
    """Return a short text of a value of any size, for errors."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length():,} bits"
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def types_in(annotation: Any) -> set[Any]:
    """Return the members of a union or a sequence, nested ones included; else the type itself."""
    several = typing.Union, types.UnionType, typing.Annotated, tuple, list
    if typing.get_origin(annotation) not in several:
        return {annotation}
    return set().union(*(types_in(member) for member in typing.get_args(annotation)))


class Config(BaseModel):
    """Base of all configs: frozen, unknown options refused, infinities and NaN refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    schedule_bounds: ClassVar[Mapping[str, tuple[float, float]]] = {}
    """Closed bounds of the values that a schedule field may take."""

    selected: ClassVar[Mapping[str, type[Config]]] = {}
    """By selecting field, the models of plugins' options whose fields a composed class has; see
    :mod:`rlox.config.composition`."""

    composed_of: ClassVar[type[Config] | None] = None
    """The algorithm's class that a composed class extends."""

    selected_names: ClassVar[Mapping[str, str]] = {}
    """By selecting field, the plugins of a composed class."""

    def __new__(cls: type[ConfigT], **values: Any) -> ConfigT:  # Python 3.10 has no Self
        """Return a config of ``cls``, or of a subclass with the options of selected plugins."""
        return super().__new__(composed_class(cls, fill_in(cls, values)))

    def __init__(self, **values: Any) -> None:
        """Validate ``values``, and the values of the preset that they name.

        Raises:
            UnknownNameError: they name a preset that does not exist.
            ConfigError: an option is unknown or out of range; the text names all of them.
        """
        values = fill_in(type(self), values)
        try:
            super().__init__(**without_foreign_defaults(type(self), values))
        except ValidationError as error:
            raise ConfigError("; ".join(_lines(error, type(self)))) from None

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_bool_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        allowed = types_in(cls.model_fields[str(info.field_name)].annotation)
        if _holds_bool(value) and bool not in allowed and allowed & {int, float}:
            raise ValueError("a number, not a truth value")
        return value

    @field_validator("*", mode="after")
    @classmethod
    def _check_schedule_bounds(cls, value: Any, info: ValidationInfo) -> Any:
        if info.field_name not in cls.schedule_bounds or value is None:
            return value
        low, high = cls.schedule_bounds[str(info.field_name)]
        if isinstance(value, Linear):
            values: tuple[float, ...] = (value.start, value.end)
        elif isinstance(value, Piecewise):
            values = tuple(point[1] for point in value.points)
        else:
            values = (float(value),)
        if any(not low <= v <= high for v in values):
            raise ValueError(f"values in [{low}, {high}]")
        return value

    def replace(self: ConfigT, **changes: Any) -> ConfigT:
        """Return a validated copy with ``changes``; defaults do not count as given options.

        Raises:
            ConfigError: a change is unknown or out of range.
        """
        cls = self.composed_of or type(self)
        return cast("ConfigT", cls(**{**self.given(), **changes}))

    def __reduce__(self) -> Any:
        return _restore, (self.composed_of or type(self), self.given())

    def scheduled(self) -> Config:
        """Return the config whose schedules apply."""
        return self

    def given(self) -> dict[str, Any]:
        """Return the options that were given explicitly; the others have their defaults."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    def to_dict(self) -> dict[str, Any]:
        """Return the config as JSON-able values."""
        return self.model_dump(mode="json")

    def dump(self, path: str | Path) -> None:
        """Write the config as YAML."""
        write_atomically(Path(path), self.to_yaml().encode())

    def to_yaml(self) -> str:
        """Return the config as YAML that :meth:`load` reads back equal."""
        return to_yaml(self.to_dict())

    @classmethod
    def load(cls: type[ConfigT], path: str | Path) -> ConfigT:
        """Read a YAML or JSON file.

        Raises:
            ConfigError: the file is missing, is not a mapping, or holds a wrong option.
        """
        return cls(**read_mapping(path))


def _restore(cls: type[Config], given: Mapping[str, Any]) -> Config:
    return cls(**given)


def changed(config: Config, name: str) -> bool:
    """Return whether an option differs from its default; schedules are compared as text."""
    return str(getattr(config, name)) != str(type(config).model_fields[name].default)


def resolve_config(
    cls: type[ConfigT],
    config: Config | Mapping[str, Any] | str | Path | None,
    **overrides: Any,
) -> ConfigT:
    """Return the config of an algorithm from a base and overrides.

    Args:
        cls: the algorithm's config class.
        config: an instance of ``cls``, a mapping, the path of a YAML or JSON file, or ``None``.
        overrides: options that win over ``config``; those equal to :data:`UNSET` are left out.

    Raises:
        ConfigError: ``config`` has the wrong type or an option is wrong.
    """
    return cls(**given_options(cls, config, **overrides))


def given_options(
    cls: type[Config],
    config: Config | Mapping[str, Any] | str | Path | None,
    **overrides: Any,
) -> dict[str, Any]:
    """Return the options that :func:`resolve_config` makes a config from; see there."""
    if config is None:
        base: dict[str, Any] = {}
    elif isinstance(config, cls):
        base = config.given()
    elif isinstance(config, Mapping):
        base = dict(config)
    elif isinstance(config, (str, Path)):
        base = read_mapping(config)
    else:
        raise ConfigError(
            f"config must be a {cls.__name__}, a mapping or the path of a YAML or JSON file, "
            f"got {type(config).__name__}"
        )
    if not all(isinstance(key, str) for key in base):
        raise ConfigError(
            f"option names must be text, got {[k for k in base if type(k) is not str]}"
        )
    return {**base, **{k: v for k, v in overrides.items() if v is not UNSET}}


def require_integer(name: str, value: object, *, at_least: int) -> int:
    """Return ``value`` as an int.

    Args:
        name: of the argument, for the error's text.
        value: the caller's argument.
        at_least: its lower bound.

    Raises:
        TypeError: it is not an integer; a bool does not count as one.
        ValueError: it is below the bound.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        meant = ""
        with suppress(ValueError):
            number = float(str(value))
            meant = f"; pass {int(number):_}" if number.is_integer() else ""
        raise TypeError(f"{name} must be an integer, got {value!r}{meant}")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value}")
    return int(value)


SEED = count(
    42, ge=0, unit="1", help="fixes every random draw; None draws one from entropy", source="rlox"
)
"""``int | None``"""

PRESET = option(
    "none", help="tuned options, ENV/NAME as rlox list --presets shows them; given options win",
    unit="name", source="rlox", min_length=1,
)  # fmt: skip
"""``str``"""

ENV_BACKEND = option(
    "auto", help="env backend for ids; auto takes the fastest that has the id",
    unit="name", source="rlox", min_length=1, selects="rlox_env_backends",
)  # fmt: skip
"""``str``"""

ENV_KWARGS = option(
    {}, help="arguments of the env; also of the env that evaluations make of the same id",
    unit="name: value", source="gymnasium.make",
)  # fmt: skip
"""``dict[str, JsonValue]``"""

VECTORIZATION = choice(
    "sync",
    help="gymnasium's and PettingZoo's envs in this process or each in its own",
    source="gymnasium",
)
"""``Literal["sync", "async"]``"""

BACKEND = option(
    "auto", help="learner backend; auto takes the fastest that can do the job",
    unit="name", source="rlox", min_length=1,
)  # fmt: skip
"""``str``"""

COMPUTE_DTYPE = choice(
    "float32", source="rlox",
    help="precision of convolutions and hidden layers; parameters and all else are float32",
)  # fmt: skip
"""``Literal["float32", "bfloat16"]``"""

TORCH_THREADS = count(
    1, unit="threads", source="measured: benchmarks/README.md",
    help="torch threads while training; None keeps torch's setting",
)  # fmt: skip
"""``int | None``"""


class RunConfig(Config):
    """Options of every training."""

    seed: int | None = SEED
    preset: str = PRESET
    device: str = option(
        "cpu", help="torch device of policy and batches", unit="name", source="rlox", min_length=1
    )
    torch_threads: int | None = TORCH_THREADS


class EnvRunConfig(RunConfig):
    """Options of every training in envs made by an env backend."""

    env_backend: str = ENV_BACKEND
    env_kwargs: dict[str, JsonValue] = ENV_KWARGS
