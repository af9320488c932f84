"""Configs as YAML and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from rlox.errors import ConfigError

__all__ = ["read_mapping", "to_yaml"]


def to_yaml(values: Mapping[str, Any]) -> str:
    """Return values as YAML that YAML readers read back equal."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False)


def read_mapping(path: str | Path) -> dict[str, Any]:
    """Return the mapping in a YAML or JSON file.

    Raises:
        ConfigError: the file cannot be read or holds something else.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            values = json.loads(text, object_pairs_hook=_unique)
        else:
            values = yaml.load(text, _Loader)  # noqa: S506  # a safe loader
    except OSError as error:
        raise ConfigError(f"config file '{path}' cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"config file '{path}' is not valid: {error}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(
            f"config file '{path}' must hold a mapping of option names, got {type(values).__name__}"
        )
    for key in values:
        if not isinstance(key, str):
            raise ConfigError(f"config file '{path}' must name its options by text, got {key!r}")
    return values


def _unique(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    values: dict[Any, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"'{key}' is there twice")
        values[key] = value
    return values


class _Loader(yaml.SafeLoader):
    """A YAML reader that refuses a key given twice, of which the last would win unseen."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping of a node."""
        _unique((self.construct_object(key, deep=True), None) for key, _ in node.value)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """A YAML writer whose floats YAML readers take for floats (``3.0e-4``, never ``3e-4``)."""


def _represent_float(dumper: yaml.SafeDumper, value: float) -> yaml.ScalarNode:
    text = repr(value)
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e", 1)
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


_Dumper.add_representer(float, _represent_float)
