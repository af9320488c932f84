"""Makers of config fields with bounds, unit and source; groups of fields."""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import Field
from pydantic.fields import FieldInfo

Group = Literal["run", "env", "learning", "network", "speed"]

GROUPS: dict[str, str] = {
    "run": "Run",
    "env": "Env, and what is seen of it",
    "learning": "Learning",
    "network": "Network",
    "speed": "Speed",
}
"""Headings of the groups, in the order in which they are shown."""

UNITS: dict[str, Group] = {
    "units": "network",
    "layers": "network",
    "threads": "speed",
    "actors": "speed",
    "workers": "speed",
    "envs": "env",
}
"""Groups of options that count something; a name of :data:`NAMES` wins."""

NAMES: dict[Group, tuple[str, ...]] = {
    "run": ("seed", "preset", "save_replay_buffer", "log_completions", "num_completions_to_print"),
    "env": (
        "act_dim", "act_high", "clip_rewards", "env_backend", "env_kwargs", "frame_stack",
        "n_actions", "n_agents", "n_envs", "normalize_observations", "normalize_rewards",
        "obs_dim", "opponents", "pool_interval", "pool_share", "pool_size", "reward_scale",
        "reward_shift", "team_reward",
    ),
    "network": (
        "bins", "blocks", "critic", "decoder_keys", "depth", "deter_dim", "distributional",
        "dropout", "dueling", "encoder_keys", "hyper_size", "latent_dim", "lora_alpha",
        "lora_dropout", "lora_rank", "lora_target_modules", "memory_size", "mixing_size", "n_atoms",
        "n_quantiles", "network", "noisy", "noisy_std", "recurrent", "share_parameters", "size",
        "stoch_classes", "stoch_dim",
    ),
    "speed": (
        "actor_backend", "amp_dtype", "backend", "bf16", "compile", "compute_dtype", "device",
        "enable_amp", "gradient_checkpointing", "layout", "max_restarts", "micro_batch_size",
        "overlap", "queue_size", "vectorization", "worker_timeout",
    ),
}  # fmt: skip
"""Options that mean the same in every config; those of no other group are about learning."""

GROUP_OF = {name: group for group, names in NAMES.items() for name in names}


def group_of(name: str, field: FieldInfo) -> Group:
    """Return the group of an option.

    Args:
        name: of the option.
        field: its ``group`` wins, which :func:`rlox.option` sets.
    """
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    given = extra.get("group")
    for group in get_args(Group):
        if given == group:
            return group  # type: ignore[no-any-return]
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
"""By unit, sizes beyond which a number is a slip, reported before it exhausts the machine: memory,
or threads, for lack of which OpenMP ends the process."""


def option(
    default: Any,
    *,
    help: str,  # noqa: A002
    unit: str,
    source: str,
    selects: str | None = None,
    group: Group | None = None,
    **bounds: Any,
) -> Any:
    """Return a config field with its documentation.

    Args:
        default: value when none is given.
        help: one sentence, what the field does.
        unit: ``"env steps"``, ``"gradient steps"``, ``"nats"``, ``"1"`` (dimensionless), ...
        source: where the default or the idea comes from.
        selects: the hook, such as ``"rlox_buffers"``, of the plugin that the field names and whose
            own options the config then has too.
        group: under which the help shows it; ``None`` finds it by name and unit
            (:func:`rlox.config.fields.group_of`).
        bounds: pydantic constraints (``ge``, ``gt``, ``le``, ``lt``, ...).
    """
    extra: dict[str, Any] = {"unit": unit, "source": source}
    if selects is not None:
        extra["selects"] = selects
    if group is not None:
        extra["group"] = group
    return Field(default, description=help, json_schema_extra=extra, **bounds)


def count(default: int | None, *, help: str, unit: str, source: str, ge: int = 1) -> Any:  # noqa: A002
    """Return an integer field that is at least ``ge``, and no larger than machines are."""
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
    """Return a field that takes a number or a schedule over the training's steps."""
    return option(default, help=help, unit=unit, source=source)
