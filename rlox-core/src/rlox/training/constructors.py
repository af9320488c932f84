"""Constructors of algorithms: signatures with all options, freeing after errors."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rlox.config.model import UNSET, Config
from rlox.errors import ConfigError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

__all__ = ["freeing_where_it_fails", "full_signature"]


def freeing_where_it_fails(constructor: Callable[..., None]) -> Callable[..., None]:
    """Return the constructor of an algorithm, made to free what it has made when it fails.

    It says which argument is missing as :func:`rlox.make` does, with a
    :class:`rlox.errors.ConfigError`.
    """
    _, *parameters = inspect.signature(constructor).parameters.values()
    positional = [p for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]

    @functools.wraps(constructor)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        for parameter in positional[len(args) :]:
            if parameter.default is inspect.Parameter.empty and parameter.name not in kwargs:
                raise ConfigError(_missing(type(self).__name__, parameter.name, kwargs))
        try:
            constructor(self, *args, **kwargs)
        except BaseException:
            if "resources" in vars(self):
                self.resources.close()
            raise

    return construct


def full_signature(constructor: Callable[..., Any], config: type[Config]) -> inspect.Signature:
    """Return a constructor's signature with the options that its ``**kwargs`` stands for.

    :func:`help`, notebooks and :func:`inspect.signature` then show every option and its default.
    The ``**kwargs`` remains, for the options of plugins.

    Args:
        constructor: ``__init__`` of an algorithm's class.
        config: what its further keywords are options of.
    """
    _, *given = inspect.signature(constructor).parameters.values()
    fields = config.model_fields
    named = [
        parameter.replace(default=fields[parameter.name].default)
        if parameter.default is UNSET
        else parameter
        for parameter in given
    ]
    if named and named[-1].kind is inspect.Parameter.VAR_KEYWORD:
        known = {parameter.name for parameter in named}
        named[-1:-1] = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=_text(field)
            )
            for name, field in fields.items()
            if name not in known
        ]
    return inspect.Signature(named)


def _missing(of: str, name: str, given: Mapping[str, Any]) -> str:
    """Return the text of an error about a missing argument."""
    other = name.removesuffix("_id")
    if other != name and other in given:
        return f"{of} needs {name}=..., got {other}={given[other]!r}; rename {other} to {name}"
    return f"{of} needs {name}=..., got none"


def _text(field: FieldInfo) -> str:
    """Return the type of a field without the modules of its parts."""
    return re.sub(r"\b\w+\.(?=\w)", "", inspect.formatannotation(field.annotation))
