"""Trainable: what the loop and checkpoints need of an algorithm, and its constructor."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from rlox.callbacks import CallbackList
from rlox.config.model import UNSET, Config
from rlox.config.schedules import Schedules
from rlox.errors import CheckpointError, ConfigError
from rlox.logging import LoggerCallback
from rlox.seeding import SeedStreams
from rlox.training.progress import Progress

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from rlox.protocols import Optimizer


class NamedLosses(Protocol):
    """The losses that a user added, as checkpoints know them: by name.

    :class:`rlox.learners.terms.AddedLosses` is one.
    """

    @property
    def names(self) -> list[str]:
        """A name for every loss, sorted."""

    def require_same(self, saved: Collection[str]) -> None:
        """Raise a CheckpointError unless ``saved`` are the names of these losses."""


class NoLosses:
    """No added losses: those of an algorithm that takes none."""

    names: ClassVar[list[str]] = []

    def require_same(self, saved: Collection[str]) -> None:
        """Check that a checkpoint was trained without any.

        Raises:
            CheckpointError: it was trained with some.
        """
        if saved:
            raise CheckpointError(
                f"it was trained with the added losses {sorted(saved)}, which this algorithm does "
                "not take; load it with the version of the algorithm that does"
            )


class Trainable(Protocol):
    """An algorithm as :func:`rlox.training.loop.run` trains it and checkpoints hold it.

    :class:`rlox.Algorithm` is one.
    """

    name: ClassVar[str]
    config_class: ClassVar[Any]
    """A class of options, narrower than :class:`rlox.Config`."""
    env_required: ClassVar[bool]
    config: Any
    env_source: Any
    clock: Progress
    streams: SeedStreams
    callbacks: CallbackList
    logger: LoggerCallback | None
    own_objective: Any
    """A user's own in place of the algorithm's; ``None`` keeps that."""

    @property
    def optimizers(self) -> Mapping[str, Optimizer]:
        """What moves the parameters, by the names of what learns."""

    @property
    def added_losses(self) -> NamedLosses:
        """The losses that a user added."""

    def iterate(self, hooks: Any) -> Any:
        """Collect once, learn once, and return a frozen dataclass of float metrics."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that training changes, as nested dicts of arrays and plain values."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""


@runtime_checkable
class TakesParts(Protocol):
    """An algorithm that takes a replay buffer or exploration by name or as an object."""

    own_parts: Mapping[str, Any]
    """What the user passed, by argument: a registered name or an object."""


@runtime_checkable
class Scheduled(Protocol):
    """An algorithm with options that depend on the number of steps."""

    schedules: Schedules


def own_code_of(algorithm: Trainable) -> dict[str, Any]:
    """Return the names of a user's own losses and parts; the code is not saved."""
    named: dict[str, Any] = {}
    if algorithm.own_objective is not None:
        named["objective"] = type(algorithm.own_objective).__name__
    if algorithm.added_losses.names:
        named["added_losses"] = algorithm.added_losses.names
    parts = {k: part for k, part in _parts(algorithm).items() if not isinstance(part, str)}
    if parts:
        named["own_parts"] = {name: type(part).__name__ for name, part in parts.items()}
    return named


def _parts(algorithm: Trainable) -> Mapping[str, Any]:
    return algorithm.own_parts if isinstance(algorithm, TakesParts) else {}


def require_own_code(manifest: Mapping[str, Any], algorithm: Trainable) -> None:
    """Refuse an algorithm whose loss is another than the checkpoint's, or that lacks its parts.

    A part is replaced if the user asks for it: by another object, or by a registered name.

    Raises:
        CheckpointError: an objective or an added loss is missing or new, or nothing was passed in
            the place of an own part.
    """
    saved, present = manifest.get("objective"), own_code_of(algorithm).get("objective")
    if saved != present:
        raise CheckpointError(
            f"it was trained with {_named(saved)}, got {_named(present)}; pass the same as "
            "objective="
        )
    algorithm.added_losses.require_same(manifest.get("added_losses", []))
    for argument, name in manifest.get("own_parts", {}).items():
        if argument not in _parts(algorithm):
            raise CheckpointError(
                f"it was trained with your own {name} as {argument}; pass one again as "
                f"{argument}=, or a registered name to go on with that"
            )


def _named(objective: str | None) -> str:
    return f"the objective {objective}" if objective else "the algorithm's own objective"


def freeing_where_it_fails(constructor: Callable[..., None]) -> Callable[..., None]:
    """Return the constructor of an algorithm, made to free what it has made when it fails.

    It says which argument is missing as :func:`rlox.make` does, with a
    :class:`rlox.errors.ConfigError`. That of a base class, which takes keywords, gets the
    positional arguments under the names that the class has declared.
    """
    _, *parameters = inspect.signature(constructor).parameters.values()
    positional = [p for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]

    @functools.wraps(constructor)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        names, cls = type(self).arguments, type(self).__name__
        if names:
            if twice := set(kwargs).intersection(names[: len(args)]):
                raise TypeError(f"{cls} got {sorted(twice)[0]} twice: in its place and by its name")
            if len(args) > len(names):
                raise TypeError(
                    f"{cls} takes {len(names)} arguments without a name, {', '.join(names)}; got "
                    f"{len(args)}: name the others"
                )
            args, kwargs = (), {**dict(zip(names, args, strict=False)), **kwargs}
        for parameter in positional[len(args) :]:
            if parameter.default is inspect.Parameter.empty and parameter.name not in kwargs:
                raise ConfigError(_missing(cls, parameter.name, kwargs))
        try:
            constructor(self, *args, **kwargs)
        except BaseException:
            if "resources" in vars(self):
                self.resources.close()
            raise

    return construct


def full_signature(
    constructor: Callable[..., Any], config: type[Config], arguments: Collection[str] = ()
) -> inspect.Signature:
    """Return a constructor's signature with the options that its ``**kwargs`` stands for.

    :func:`help`, notebooks and :func:`inspect.signature` then show every option and its default.
    The ``**kwargs`` remains, for the options of plugins.

    Args:
        constructor: ``__init__`` of an algorithm's class.
        config: what its further keywords are options of.
        arguments: names of those that may be given in their places; of none, the constructor's own.
            The others then need their names.
    """
    _, *given = inspect.signature(constructor).parameters.values()
    fields, kinds = config.model_fields, inspect.Parameter
    if arguments:
        own = {p.name: p for p in given}
        for name in arguments:
            shown: dict[str, Any] = {"default": None}
            if name in fields:
                shown = {"default": fields[name].default, "annotation": _text(fields[name])}
            own.setdefault(name, kinds(name, kinds.POSITIONAL_OR_KEYWORD, **shown))
        placed = [own.pop(name) for name in arguments]
        given = [p.replace(kind=kinds.POSITIONAL_OR_KEYWORD) for p in placed]
        given += [p.replace(kind=max(p.kind, kinds.KEYWORD_ONLY)) for p in own.values()]
    named = [
        parameter.replace(default=fields[parameter.name].default)
        if parameter.default is UNSET and parameter.name in fields
        else parameter
        for parameter in given
    ]
    if named and named[-1].kind is kinds.VAR_KEYWORD:
        known = {parameter.name for parameter in named}
        named[-1:-1] = [
            kinds(name, kinds.KEYWORD_ONLY, default=field.default, annotation=_text(field))
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
