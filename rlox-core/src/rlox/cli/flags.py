"""Command-line flags generated from the fields of a config.

Every flag takes text and defaults to "not given". The config parses and checks the text, so that a
flag, a file and a keyword argument are checked by the same code.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Annotated, Any, Literal

import typer
import yaml
from pydantic.fields import FieldInfo
from typer.core import TyperCommand

from rlox.config.composition import plugin_fields
from rlox.config.files import parse_yaml
from rlox.config.model import GROUPS, Config, group_of, types_in
from rlox.config.schedules import Linear, Piecewise


def whole_number(text: Any, at_least: int = 0) -> int:
    """Return the number in a text such as ``500000``, ``5e5``, ``500k`` or ``0.5M``.

    Raises:
        typer.BadParameter: it is not such a text, or below the bound.
    """
    found = re.fullmatch(r"(\d[\d_]*(?:\.\d+)?(?:e\+?\d\d?)?)([km]?)", str(text), re.IGNORECASE)
    number = Decimal(found[1]) * {"": 1, "k": 10**3, "m": 10**6}[found[2].lower()] if found else -1
    if number != int(number) or number < at_least:
        raise typer.BadParameter(
            f"expected a whole number of at least {at_least}, such as 500000, 5e5 or 500k, got "
            f"'{text}'"
        )
    return int(number)


METAVARS: dict[Any, str] = {
    int: "INTEGER",
    float: "FLOAT",
    str: "TEXT",
    bool: "true|false",
    type(None): "none",
    tuple[int, ...]: "N,N",
    Linear: "linear(A, B)",
    Piecewise: "",
}
"""Text for a type in the help; a piecewise schedule is too long for a flag's help."""


SELECTED = "Options of the selected env backend or buffer"
"""Heading of the options of plugins."""


class GroupedCommand(TyperCommand):
    """A command whose help groups the options; options without a group belong to the run."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, and refuse a word without its flag before a missing flag."""
        _, words, _ = self.make_parser(ctx).parse_args(list(args))
        if words and not ctx.resilient_parsing:  # as in a shell's completion
            ctx.fail(f"'{words[0]}' stands without its flag, as in --env {words[0]}")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group."""
        headings = dict.fromkeys([*GROUPS.values(), SELECTED])
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in headings}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                panel = getattr(parameter, "rich_help_panel", None)
                sections[panel if panel in sections else GROUPS["run"]].append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def flags_of(config: type[Config]) -> Iterator[inspect.Parameter]:
    """Return a keyword parameter, for typer to make a flag of, for every field of ``config``.

    Options of selectable plugins come last, and their help begins with the selection.
    """
    for name, (field, owner) in all_fields(config).items():
        flag = f"--{name.replace('_', '-')}"
        help_ = f"With {owner}: {_help(field)}" if owner else _help(field)
        panel = SELECTED if owner else GROUPS[group_of(name, field)]
        shown: Any = {"help": help_, "show_default": False, "rich_help_panel": panel}
        if field.annotation is bool:
            switch = typer.Option(f"{flag}/--no-{flag[2:]}", **shown)
            annotation: Any = Annotated[bool | None, switch]
        else:
            option = typer.Option(flag, metavar=_metavar(field.annotation), **shown)
            annotation = Annotated[str | None, option]
        yield inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
        )


def given_options(config: type[Config], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options given as flags, ready for ``config`` to validate."""
    fields = all_fields(config)
    return {
        name: _value(fields[name][0], value) for name, value in flags.items() if value is not None
    }


def all_fields(config: type[Config]) -> dict[str, tuple[FieldInfo, str]]:
    """Return the options of a config class and of its selectable plugins, by name.

    Returns:
        Each option's field, and the selections that have it (``"buffer her"``), empty for options
        of the class itself.
    """
    found = {name: (field, "") for name, field in config.model_fields.items()}
    for selector, registration, fields in plugin_fields(config):
        flag = f"--{selector.replace('_', '-')} {registration.spec.name}"
        for name, field in fields.items():
            first, owner = found.get(name, (field, ""))
            if name not in found or owner:
                found[name] = first, f"{owner} or {flag}" if owner else flag
    return found


def _value(field: FieldInfo, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.lower() == "none" and type(None) in typing.get_args(field.annotation):
        return None
    if types_in(field.annotation) <= {int, type(None)}:
        with suppress(typer.BadParameter):
            return whole_number(value)
    if value[:1] in ("[", "{"):
        try:
            return parse_yaml(value)
        except (yaml.YAMLError, ValueError, RecursionError):
            return value
    return value


def documentation(field: FieldInfo) -> tuple[str, str, str]:
    """Return a field's description, unit and source."""
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    return field.description or "", str(extra.get("unit", "1")), str(extra.get("source", "-"))


def default_text(field: FieldInfo) -> str:
    """Return a field's default in the form of a flag's value."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _help(field: FieldInfo) -> str:
    description, unit, source = documentation(field)
    details = source if unit in ("1", "on/off", "choice", "name") else f"{unit}; {source}"
    return f"{description} ({details})  [default: {default_text(field)}]"


def _metavar(annotation: Any) -> str:
    origin = typing.get_origin(annotation)
    if origin is Literal:
        return f"[{'|'.join(map(str, typing.get_args(annotation)))}]"
    if origin in (typing.Union, types.UnionType):
        return "|".join(filter(None, map(_metavar, typing.get_args(annotation))))
    if origin is Annotated:
        return _metavar(typing.get_args(annotation)[0])
    return METAVARS.get(annotation, "YAML")
