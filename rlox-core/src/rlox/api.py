"""``make`` and its relatives: algorithms, callbacks and loggers by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rlox.callbacks import Callback
from rlox.config.composition import plugin_fields
from rlox.config.model import Config
from rlox.config.presets import full_name
from rlox.errors import ConfigError
from rlox.logging import LoggerCallback, LoggerList
from rlox.logging.base import require_logger
from rlox.registry.specs import AlgorithmSpec
from rlox.registry.table import (
    Registration,
    algorithm_class,
    config_class,
    find_algorithm,
    get_registry,
    spec,
)

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from rlox.algorithm import Algorithm

__all__ = ["explain", "make", "make_callbacks", "make_logger"]


def make(
    name: str,
    env: Any = None,
    *,
    config: Config | Mapping[str, Any] | str | Path | None = None,
    preset: str | None = None,
    callbacks: Iterable[Callback | str] | Callback | str | None = None,
    logger: LoggerCallback | str | Iterable[LoggerCallback | str] | None = None,
    log_dir: str | Path = "runs",
    **overrides: Any,
) -> Algorithm:
    """Build the algorithm registered as ``name``.

    Args:
        name: registered name, ``"ppo"``; :func:`list_algorithms` has them all.
        env: what the algorithm interacts with: a gymnasium id, a callable that makes a gymnasium
            env, a gymnasium env, a gymnasium vector env, or a :class:`rlox.protocols.VecEnv`.
        config: a config object, a mapping, or the path of a YAML or JSON file.
        preset: tuned options for ``env``, over which ``config`` and ``overrides`` win: one of
            :func:`rlox.config.presets.list_presets`, such as ``"tuned"``.
        callbacks: callbacks, as objects or registered names.
        logger: a logger or several, as objects or registered names.
        log_dir: the folder of loggers and callbacks given by name.
        overrides: config options, which win over ``config``, and the algorithm's own arguments.

    Raises:
        UnknownNameError: ``name`` is not registered, or there is no such preset; the text has the
            nearest names.
        ConfigError: an option is unknown or out of range, or a needed argument is missing.

    Example:
        >>> make("pppo", env="CartPole-v1")  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        rlox.errors.UnknownNameError: unknown algorithm 'pppo'; did you mean 'ppo'?
    """
    found = spec(name)
    given = {"env": env, **overrides}
    for need in found.needs:
        if given.get(need) is None and not (need == "env" and given.get("env_fn")):
            renamed = need == "env" and "env_id" in given
            got = "env_id=...; rename env_id to env" if renamed else "none"
            raise ConfigError(f"the algorithm '{name}' needs {need}=..., got {got}")
    if preset is not None:
        given["preset"] = full_name(name, env, preset)
    # the constructors of the documents call their first argument env_id
    arguments = [given.pop("env")] if "env" in found.needs else []
    if given.get("env", ...) is None:
        del given["env"]
    elif "env" in given and not found.env:
        raise ConfigError(f"the algorithm '{name}' takes no env, got {env!r}; leave it out")
    factory = cast("Any", algorithm_class(name))
    made = make_callbacks(callbacks, log_dir)
    algorithm: Algorithm = factory(*arguments, config=config, callbacks=made, logger=None, **given)
    try:
        # last: what is wrong with the rest leaves no file and no tracking service's run behind
        algorithm.logger = make_logger(logger, log_dir)
    except BaseException:
        algorithm.close()
        raise
    return algorithm


def explain(name: str) -> str:
    """Return a text about an algorithm: paper, distribution, and every option with its unit."""
    registration = find_algorithm(name)
    found = cast("AlgorithmSpec", registration.spec)
    lines = [
        f"{found.name}: {found.summary}",
        f"paper: {found.paper or '-'}",
        f"distribution: {registration.distribution}",
        f"needs: {', '.join(found.needs)}",
        "options:",
    ]
    fields = config_class(name).model_fields
    lines += [_option_line(option, field) for option, field in fields.items()]
    for selector, plugin, own in plugin_fields(config_class(name)):
        lines.append(f"options with {selector}='{plugin.spec.name}' ({plugin.distribution}):")
        lines += [_option_line(option, field) for option, field in own.items()]
    return "\n".join(lines)


def _option_line(name: str, field: FieldInfo) -> str:
    extra = cast("dict[str, Any]", field.json_schema_extra or {})
    return (
        f"  {name} = {field.default} [{extra.get('unit', '1')}] {field.description} "
        f"({extra.get('source', '-')})"
    )


def make_callbacks(
    callbacks: Iterable[Callback | str] | Callback | str | None, log_dir: str | Path
) -> list[Callback]:
    """Return callbacks given as objects or registered names.

    Args:
        callbacks: one or several.
        log_dir: the folder of the files that callbacks given by name write.

    Raises:
        UnknownNameError: a name is not registered.
        ConfigError: a name is there twice.
        MissingDependencyError: what a callback needs is not installed.
        PluginError: what a name stands for is broken.
    """

    def make(registration: Registration) -> Any:
        return registration.build(*[log_dir] * registration.spec.in_folder)

    return _made("rlox_callbacks", callbacks, make)


def make_logger(
    loggers: LoggerCallback | str | Iterable[LoggerCallback | str] | None, log_dir: str | Path
) -> LoggerCallback | None:
    """Return one logger for all that are given as objects or registered names.

    Args:
        loggers: one or several.
        log_dir: the folder of loggers given by name.

    Raises:
        TypeError: one of them is no logger.
        UnknownNameError: a name is not registered.
        ConfigError: a name is there twice.
        MissingDependencyError: what a logger needs is not installed.
        PluginError: what a name stands for is broken.
    """
    with ExitStack() as opened:  # closed if a later one fails

        def make(registration: Registration) -> Any:
            logger = registration.build(log_dir)
            opened.callback(logger.close)
            return logger

        made = _made("rlox_loggers", loggers, make)
        if len(made) > 1:
            made = [LoggerList(*made)]
        for logger in made:
            require_logger(logger)
        opened.pop_all()
    return made[0] if made else None


def _made(hook: str, items: Any, make: Callable[[Registration], Any]) -> list[Any]:
    """Return what was given, one or several, with what ``make`` makes of what names stand for."""
    if items is None:
        return []
    several = isinstance(items, Iterable) and not isinstance(items, str)
    listed = list(items) if several else [items]
    names = [item for item in listed if isinstance(item, str)]
    found = dict(zip(names, get_registry().get_all(hook, names), strict=True))
    return [make(found[item]) if isinstance(item, str) else item for item in listed]
