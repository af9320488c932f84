"""Config classes that combine the options of an algorithm and of its plugins.

A field made with ``selects="rlox_buffers"`` holds the registered name of a plugin of that hook. If
the plugin's spec names a model of its options, the config's class is a cached subclass of the
algorithm's config class that has these fields too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from pydantic import create_model, model_validator
from pydantic.fields import FieldInfo

from rlox.errors import ConfigError, RloxError
from rlox.registry.table import Registration, get_registry

ClassT = TypeVar("ClassT", bound=type[Any])

RESERVED = frozenset({"callbacks", "config", "env", "env_id", "log_dir", "logger", "name"})
"""Arguments of :func:`rlox.make`, so that no option can have these names."""


@dataclass(frozen=True)
class Selection:
    """A plugin that a config selects, with its own options."""

    name: str
    """Its registered name."""
    options: Any = None
    """An instance of the plugin's model; ``None`` if it has no options of its own."""

    def for_evaluation(self) -> Selection:
        """Return the selection with the plugin's options for evaluations."""
        if not hasattr(self.options, "for_evaluation"):
            return self
        return Selection(self.name, self.options.for_evaluation())


def selectors(cls: type[Any]) -> dict[str, str]:
    """Return the fields of a config class that select plugins, with the plugins' hooks."""
    extras = {name: field.json_schema_extra for name, field in cls.model_fields.items()}
    found = {name: extra for name, extra in extras.items() if isinstance(extra, dict)}
    return {name: str(extra["selects"]) for name, extra in found.items() if "selects" in extra}


def composed_class(cls: ClassT, values: Mapping[str, Any]) -> ClassT:
    """Return the class of a config: ``cls``, or a subclass with the options of selected plugins.

    Args:
        cls: an algorithm's config class, or a class that this function returned.
        values: options by name.

    Raises:
        PluginError: a plugin's model cannot be imported or is not a :class:`rlox.Config`, or one
            of its options has the name of another option.
        PluginConflictError: two distributions claim the name of a selected plugin.
    """
    if cls.selected:
        return cls
    chosen = []
    for field, hook in selectors(cls).items():
        name = values.get(field, cls.model_fields[field].default)
        registration = _registered(hook, name)
        if registration is not None:
            model = registration.options_model()
            if model is not None and model.model_fields:
                chosen.append((field, registration, model))
    return cast("ClassT", _compose(cls, tuple(chosen))) if chosen else cls


def with_env_backend(cls: type[Any], values: dict[str, Any]) -> dict[str, Any]:
    """Select the env backend whose options are given, among those that ``"auto"`` takes.

    Args:
        cls: a config class.
        values: options by name.
    """
    unknown = values.keys() - cls.model_fields.keys()
    if values.get("env_backend", "auto") != "auto":
        return values
    if "env_backend" in cls.selected_names:  # this function has made the class
        return {**values, "env_backend": cls.selected_names["env_backend"]}
    for field, registration, fields in plugin_fields(cls) if unknown else ():
        found = registration.spec
        if field == "env_backend" and (found.env_ids or found.env_prefixes):
            given = ((values[name], fields[name]) for name in unknown & fields.keys())
            if any(str(value) != str(info.get_default()) for value, info in given):
                return {**values, "env_backend": found.name}
    return values


def selection(config: Any, field: str) -> Selection:
    """Return the plugin that a field of a config selects, with its options in one object.

    Args:
        config: a resolved config.
        field: name of the selector, such as ``"buffer"``.
    """
    model = type(config).selected.get(field)
    if model is None:
        return Selection(getattr(config, field))
    given = {k: getattr(config, k) for k in model.model_fields if k in config.model_fields_set}
    return Selection(getattr(config, field), model(**given))


def plugin_fields(cls: type[Any]) -> Iterator[tuple[str, Registration, dict[str, FieldInfo]]]:
    """Yield the options of every usable plugin that a field of ``cls`` can select.

    Yields:
        The selecting field, the plugin and its options; without plugins whose model fails, and
        without buffers of sequences where transitions are stored, or the reverse.
    """
    for field, hook in selectors(cls).items():
        default = _registered(hook, cls.model_fields[field].default)
        sequences = default is not None and _stores_sequences(default)
        for registration in get_registry().usable(hook):
            if _stores_sequences(registration) != sequences:
                continue
            with suppress(RloxError):
                model = registration.options_model()
                if model is not None:
                    yield field, registration, model.model_fields


def _stores_sequences(registration: Registration) -> bool:
    return getattr(registration.spec, "sequences", False)


def local_options(cls: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the plugins whose envs are on other machines, and their options.

    Args:
        cls: a config class.
        values: options by name.
    """
    kept = {**values}
    for field, hook in selectors(cls).items():
        registration = _registered(hook, values.get(field))
        if registration is not None and getattr(registration.spec, "remote", False):
            model = registration.options_model()
            for name in (field, *(model.model_fields if model is not None else ())):
                kept.pop(name, None)
    return kept


def without_foreign_defaults(cls: type[Any], values: dict[str, Any]) -> dict[str, Any]:
    """Drop options of plugins that are not selected, if they have their defaults.

    Args:
        cls: a config class.
        values: options by name.

    Raises:
        ConfigError: an option of a plugin that is not selected was changed.
        UnknownNameError: an option is unknown, and the plugin that may have it is not registered.
    """
    unknown = values.keys() - cls.model_fields.keys()
    if not unknown:
        return values
    owners: dict[str, list[tuple[str, str, FieldInfo]]] = {}
    for field, registration, fields in plugin_fields(cls):
        for name in unknown & fields.keys():
            owners.setdefault(name, []).append((field, registration.spec.name, fields[name]))
    for name, found in owners.items():
        defaults = [info.get_default(call_default_factory=True) for _, _, info in found]
        if not any(str(values[name]) == str(default) for default in defaults):
            field = found[0][0]
            names = " or ".join(f"'{plugin}'" for _, plugin, _ in found)
            got = values.get(field, cls.model_fields[field].default)
            raise ConfigError(f"{name} needs {field}={names}, got {field}={got!r}")
    if unknown - owners.keys():
        for field, hook in selectors(cls).items():
            name = values.get(field)
            if isinstance(name, str) and name != cls.model_fields[field].default:
                get_registry().get(hook, name)
    return {name: value for name, value in values.items() if name not in owners}


def _registered(hook: str, name: object) -> Registration | None:
    """Return the registration of a name; ``None`` if missing, which the builder reports."""
    if not isinstance(name, str) or name not in get_registry().names(hook):
        return None
    return get_registry().get(hook, name)


_COMPOSED: dict[tuple[Any, ...], type[Any]] = {}


def _compose(cls: type[Any], chosen: tuple[tuple[str, Registration, type[Any]], ...]) -> type[Any]:
    names = tuple((field, registration.spec.name) for field, registration, _ in chosen)
    key = (cls, names, tuple(model for _, _, model in chosen))
    if key in _COMPOSED:
        return _COMPOSED[key]
    fields: dict[str, Any] = {}
    owner = dict.fromkeys(cls.model_fields, f"an option of {cls.__name__}")
    owner |= dict.fromkeys(RESERVED, "an argument of rlox.make")
    for _, registration, model in chosen:
        for name, info in model.model_fields.items():
            if name in owner:
                raise registration.broken(
                    f"its option '{name}' is already {owner[name]}; it must have another name"
                )
            owner[name] = f"an option of {registration.described}"
            fields[name] = (info.annotation, info)
    models = {field: model for field, _, model in chosen}
    validator = cast("Any", model_validator(mode="before")(_validate_parts))
    made: Any = create_model(
        cls.__name__,
        __base__=cls,
        __module__=cls.__module__,
        __doc__=cls.__doc__,
        __validators__={"_validate_parts": validator},
        **fields,
    )
    made.selected = models
    made.composed_of = cls
    made.selected_names = dict(names)
    return _COMPOSED.setdefault(key, made)


def _validate_parts(cls: type[Any], values: Any) -> Any:
    """Validate and convert the plugins' options with their own models."""
    if not isinstance(values, Mapping):
        return values
    checked = dict(values)
    for field, model in cls.selected.items():
        name = cls.selected_names[field]
        if values.get(field, name) != name:
            raise ConfigError(
                f"this config was made for {field}='{name}'; use replace() to change it"
            )
        given = {name: values[name] for name in model.model_fields if name in values}
        try:
            part = model(**given)
        except ConfigError as error:
            raise ConfigError(f"{field}='{name}': {error}") from None
        checked |= {name: getattr(part, name) for name in given}
    return checked
