"""Files that describe a training of a batched env."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from rlox.config.model import read_mapping
from rlox.errors import ConfigError

from rlox_rl8.algorithms import (
    Algorithm,
    AlgorithmConfig,
    RecurrentAlgorithm,
    RecurrentAlgorithmConfig,
)
from rlox_rl8.trainers.base import RecurrentTrainer, Trainer

__all__ = ["TrainConfig"]

CLASSES = ("model_cls", "distribution_cls", "optimizer_cls")


@dataclass
class TrainConfig:
    """A trainer's parts, as a file has them.

    Args:
        env_cls: a class of envs.
        algorithm_config: arguments of the algorithm's config.
        recurrent: whether the algorithm is.
    """

    env_cls: Any
    algorithm_config: dict[str, Any] = field(default_factory=dict)
    recurrent: bool = False

    def build(self) -> Trainer | RecurrentTrainer:
        """Return the trainer."""
        if self.recurrent:
            config = RecurrentAlgorithmConfig(**self.algorithm_config)
            recurrent: RecurrentAlgorithm = config.build(self.env_cls)
            return RecurrentTrainer(recurrent)
        algorithm: Algorithm = AlgorithmConfig(**self.algorithm_config).build(self.env_cls)
        return Trainer(algorithm)

    @classmethod
    def from_file(cls, path: str | Path) -> TrainConfig:
        """Read a YAML or JSON file; classes are dotted names, which are imported.

        Raises:
            ConfigError: the file or a name is wrong.
        """
        found = dict(read_mapping(Path(path)))
        config = dict(found.get("algorithm_config") or {})
        config |= {key: _import(config[key]) for key in CLASSES if config.get(key)}
        if "env_cls" not in found:
            raise ConfigError(f"'{path}' must name env_cls")
        return cls(_import(found["env_cls"]), config, bool(found.get("recurrent", False)))


def _import(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except (ValueError, ModuleNotFoundError, AttributeError) as error:
        raise ConfigError(f"'{name}' cannot be imported: {error}") from None
