"""Configs as YAML and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from rlox.errors import ConfigError
from rlox.files import read_text

LARGEST_VALUE = 100_000
"""Maximum number of values, in lists and mappings, of a config file."""


def to_yaml(values: Mapping[str, Any]) -> str:
    """Return values as YAML; reading it back gives equal values."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False)


def read_mapping(path: str | Path) -> dict[str, Any]:
    """Return the mapping in a YAML or JSON file.

    Raises:
        ConfigError: the file cannot be read or holds something else.
    """
    path = Path(path)
    try:
        text = read_text(path)
        if path.suffix == ".json":
            values = json.loads(text, object_pairs_hook=_unique)
        else:
            values = parse_yaml(text)
    except OSError as error:
        raise ConfigError(f"config file '{path}' cannot be read: {error.strerror}") from None
    except _NoTextError as error:
        raise ConfigError(
            f"config file '{path}' must name its options by text, got {error}"
        ) from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"config file '{path}' is not valid: {error}") from None
    except RecursionError:
        raise ConfigError(f"config file '{path}' is not valid: it is nested too deeply") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(
            f"config file '{path}' must hold a mapping of option names, got {type(values).__name__}"
        )
    return values


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML text; its types are JSON's and dates.

    Raises:
        yaml.YAMLError: it is not YAML, or has more than :data:`LARGEST_VALUE` values once its
            aliases are expanded.
        ValueError: a mapping has a key twice, or one that is not a string.
        RecursionError: it is nested too deeply.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _spelt_out(node, {})
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _spelt_out(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of values in a node with all aliases expanded."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in known:
        known[id(node)] = LARGEST_VALUE  # an alias inside its own anchor expands forever
        parts = node.value
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in parts for part in pair]
        known[id(node)] = 1 + sum(_spelt_out(part, known) for part in parts)
    if known[id(node)] > LARGEST_VALUE:
        problem = f"more than {LARGEST_VALUE:,} values, with its aliases spelt out"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    return known[id(node)]


def _unique(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    values: dict[Any, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"'{key}' is there twice")
        values[key] = value
    return values


class _NoTextError(ValueError):
    """A key is not a string."""


class _Loader(yaml.SafeLoader):
    """A YAML reader that refuses duplicate keys, where the last would silently win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping of a node, with the values that ``<<`` merges into it."""
        keys = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        for key in keys:
            if key.tag != "tag:yaml.org,2002:str":
                raise _NoTextError(key.value if isinstance(key.value, str) else f"a {key.id}")
        _unique((key.value, None) for key in keys)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """A YAML writer whose floats are read back as floats (``3.0e-4``, never ``3e-4``)."""


def _represent_float(dumper: yaml.SafeDumper, value: float) -> yaml.ScalarNode:
    text = repr(value)
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e", 1)
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


_Dumper.add_representer(float, _represent_float)
