"""Presets: tuned options of algorithms for envs, with expected scores.

Distributions register files of them through the hook ``rlox_presets``; users keep theirs in a
folder. A file is YAML, ``presets: {algorithm: {env: {name: {steps: ..., options: ...}}}}``; the key
``shared`` holds values for YAML's aliases to refer to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from rlox.config.composition import with_env_backend
from rlox.config.files import parse_yaml
from rlox.errors import ConfigError, PluginConflictError, UnknownNameError, suggest
from rlox.files import read_text
from rlox.registry.table import Registry, get_registry

NONE = "none"
"""Value of a config's field ``preset`` without a preset."""


class Preset(BaseModel):
    """Options that are known to work, and the evidence."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    algorithm: str
    """Registered name."""
    env: str
    """Id of the env, or a pattern of several such as ``ALE/*``."""
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]+$")]
    """Name as given to ``--preset``: ``"tuned"``."""
    options: dict[str, Any] = {}
    """Options of the config; options that are given explicitly win."""
    steps: int = Field(gt=0)
    """Length of the training, in the algorithm's unit: env steps, or gradient steps."""
    score: float | None = None
    """Mean return of the evaluation after ``steps``, over seeds; ``None``: no single number."""
    tolerance: float | None = Field(None, ge=0)
    """Largest accepted shortfall of a seed from the score, in units of the return."""
    episodes: int = Field(100, gt=0)
    """Number of evaluation episodes for measuring the score."""
    source: str = Field(min_length=1)
    """Where options and score were published."""
    scores: str | None = None
    """File in the repository's ``scores/`` with rlox's results; ``None``: not rerun here."""
    minutes: float | None = Field(None, gt=0)
    """Wall time of one of those trainings on two CPU cores, mean over seeds."""
    dataset: str | None = None
    """Dataset of an offline algorithm; ``dataset=`` still has to be given."""
    needs: str | None = None
    """Packages that the env needs, as arguments of ``pip install``."""

    @model_validator(mode="after")
    def _check(self) -> Preset:
        if forbidden := sorted({"seed", "preset"} & self.options.keys()):
            raise ValueError(f"a preset sets no {forbidden[0]}")
        if (self.score is None) != (self.tolerance is None):
            raise ValueError("score and tolerance belong together; give both or none")
        if self.score is None and not self.for_several:
            raise ValueError("a preset of one env needs score and tolerance")
        if (self.scores is None) != (self.minutes is None):
            raise ValueError("scores and minutes belong together; give both or none")
        return self

    @property
    def for_several(self) -> bool:
        """Whether ``env`` is a pattern."""
        return any(character in self.env for character in "*?[")

    @property
    def full_name(self) -> str:
        """Name with the env, ``"LunarLander-v3/tuned"``; for a pattern of envs, the name alone."""
        return self.name if self.for_several else f"{self.env}/{self.name}"

    @property
    def evidence(self) -> str:
        """Source of the score, and the time that it took."""
        if self.scores is None:
            return "published; not rerun here"
        return f"measured here, {self.minutes:g} min"

    def fits(self, env: object) -> bool:
        """Return whether it is for this env id."""
        return isinstance(env, str) and fnmatchcase(env, self.env)


def user_folder() -> Path:
    """Return the folder of the user's own presets, ``*.yaml``.

    It is ``$RLOX_PRESETS``, else ``rlox/presets`` in the user's configuration folder.
    """
    if folder := os.environ.get("RLOX_PRESETS"):
        return Path(folder)
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "rlox" / "presets"


def list_presets(algorithm: str | None = None, env: str | None = None) -> list[Preset]:
    """Return the presets of the installed distributions and the user's, sorted.

    Args:
        algorithm: a registered name; ``None``: all.
        env: an id; ``None``: all.

    Raises:
        PluginError: a distribution's file cannot be used.
        ConfigError: a file of the user cannot be used.
        PluginConflictError: two files have a preset of the same name.
    """
    found: dict[tuple[str, str], tuple[Preset, str]] = {}
    for preset, origin in [*_of_distributions(get_registry()), *_of_the_user()]:
        key = (preset.algorithm, preset.full_name)
        if key in found:
            raise PluginConflictError(
                f"the preset '{key[1]}' of {key[0]} is in {found[key][1]} and in {origin}; "
                "rename or remove one of them"
            )
        found[key] = preset, origin
    return [
        preset
        for _, (preset, _) in sorted(found.items())
        if algorithm in (None, preset.algorithm) and (env is None or preset.fits(env))
    ]


def preset_of(algorithms: Iterable[str], name: str) -> Preset:
    """Return the preset of a full name.

    Args:
        algorithms: registered names, one of which has it.
        name: ``"LunarLander-v3/tuned"``.

    Raises:
        UnknownNameError: there is no such preset; the text has the nearest name and all names.
    """
    known = {p.full_name: p for each in algorithms for p in list_presets(each)}
    if name not in known:
        of = " or ".join(algorithms)
        raise UnknownNameError(_unknown(f"preset '{name}' of {of}", name, known))
    return known[name]


def full_name(algorithm: str, env: Any, name: str) -> str:
    """Return the full name of a preset, which a config's field ``preset`` holds.

    Args:
        algorithm: registered name.
        env: the training's env; only an id has presets of its own.
        name: ``"tuned"``, or a full name, possibly for another env.

    Raises:
        UnknownNameError: there is no such preset; the text lists the existing ones.
    """
    given: object = name
    if not isinstance(given, str):
        raise ConfigError(f"preset must be the name of one, got {name!r}; see rlox list --presets")
    presets = list_presets(algorithm)
    fitting = [p for p in presets if p.fits(env) and p.name == name]
    fitting.sort(key=lambda p: p.for_several)  # the env's own comes first
    if fitting or any(p.full_name == name for p in presets):
        return fitting[0].full_name if fitting else name
    here = [p.name for p in presets if p.fits(env)]
    if here:
        raise UnknownNameError(_unknown(f"preset '{name}' of {algorithm} for {env}", name, here))
    elsewhere = [p.full_name for p in presets]
    where = f" for {env}" if isinstance(env, str) else ", whose env is not an id"
    raise UnknownNameError(
        _unknown(f"preset '{name}' of {algorithm}{where}", f"{env}/{name}", elsewhere)
    )


def fill_in(cls: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Add the options of the preset, and the env backend, that the given options ask for.

    Complete options, as recorded by a run, do not need their preset installed.

    Args:
        cls: a config class.
        values: options by name.

    Raises:
        UnknownNameError: there is no such preset.
    """
    name = values.get("preset", NONE)
    if not isinstance(name, str) or name == NONE or "preset" not in cls.model_fields:
        return with_env_backend(cls, dict(values))
    if cls.model_fields.keys() <= values.keys():
        return dict(values)
    own = cls.composed_of or cls
    reference = f"{own.__module__}:{own.__qualname__}"
    specs = [each.spec for each in get_registry().usable("rlox_algorithms")]
    preset = preset_of([s.name for s in specs if s.config == reference], name)
    return with_env_backend(cls, {**preset.options, **values})


def read_presets(text: str) -> list[Preset]:
    """Return the presets of a file's text.

    Raises:
        ValueError: it is not a valid file of presets; the text says why.
    """
    try:
        values = parse_yaml(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"it is no YAML: {error}") from None
    if not isinstance(values, dict) or not {"presets"} <= values.keys() <= {"presets", "shared"}:
        raise ValueError("it must be a mapping with the key 'presets', and 'shared' if need be")
    return list(_parsed(values["presets"]))


def _parsed(values: Any, *keys: str) -> Iterator[Preset]:
    """Yield the presets below the keys: of all algorithms, of one, or of one for an env."""
    where = ", ".join(keys) or "presets"
    if not isinstance(values, dict):
        level = ("algorithms", "envs", "names", "fields")[len(keys)]
        got = type(values).__name__
        raise ValueError(f"{where}: expected a mapping of {level}, got {got}")
    if len(keys) < 3:
        for key, value in values.items():
            yield from _parsed(value, *keys, key)
        return
    try:
        named = dict(zip(("algorithm", "env", "name"), keys, strict=True))
        yield Preset(**{**named, **values})
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(map(str, problem["loc"]))
        raise ValueError(f"{where}: {field} {problem['msg']}".replace(":  ", ": ")) from None


@cache
def _of_distributions(registry: Registry) -> tuple[tuple[Preset, str], ...]:
    found = []
    for registration in registry.usable("rlox_presets"):
        package, _, file = registration.spec.file.partition(":")
        try:
            text = resources.files(package).joinpath(file).read_text(encoding="utf-8")
            presets = read_presets(text)
        except (OSError, ValueError, ModuleNotFoundError) as error:
            raise registration.broken(f"'{registration.spec.file}': {error}") from None
        origin = f"the distribution '{registration.distribution}'"
        found += [(preset, origin) for preset in presets]
    return tuple(found)


def _of_the_user() -> Iterator[tuple[Preset, str]]:
    for path in sorted(user_folder().glob("*.yaml")):
        try:
            presets = read_presets(read_text(path))
        except (OSError, ValueError) as error:
            raise ConfigError(f"presets file '{path}' cannot be used: {error}") from None
        yield from ((preset, f"'{path}'") for preset in presets)


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    listed = sorted(known)
    return f"unknown {what}{suggest(name, listed)} (there are: {', '.join(listed) or 'none'})"
