"""Test cases for the checks of an algorithm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlox.algorithm import Algorithm, make
from rlox.callbacks import Callback
from rlox.config.model import Config, resolve_config
from rlox.envs.make import make_vec_env
from rlox.protocols import VecEnv
from rlox.registry.table import algorithm_class, config_class

from rlox_testing.probes import ProbeGroup, ProbeVecEnv, Recorder, probe

CARTPOLE = "CartPole-v1"


class Case:
    """Algorithms of one name on copies of one env, each env behind a probe."""

    def __init__(self, name: str, env: Any, arguments: Mapping[str, Any]) -> None:
        self.name = name
        self.env = env
        self.arguments = dict(arguments)
        self._snapshots: list[dict[int, VecEnv]] = []
        self._envs: list[VecEnv] = []

    @property
    def config(self) -> Config:
        """The config that the arguments resolve to."""
        cls: type[Config] = config_class(self.name)
        options = {k: v for k, v in self.arguments.items() if k in cls.model_fields}
        return resolve_config(cls, self.arguments.get("config"), **options)

    def probe(self) -> ProbeVecEnv | ProbeGroup:
        """Return a new vector env with the config's number of copies, or one for each actor."""
        config = self.config
        n_actors = getattr(config, "n_actors", 1)
        while len(self._snapshots) < n_actors:
            self._snapshots.append({})
        probes = []
        for snapshots in self._snapshots[:n_actors]:
            env = make_vec_env(self.env, n_envs=getattr(config, "n_envs", 1))
            probes.append(probe(env, snapshots))
            self._envs.append(probes[-1])
        return ProbeGroup(probes) if hasattr(config, "n_actors") else probes[0]

    def build(self, env: Any, *callbacks: Callback, **more: Any) -> Algorithm:
        """Return a new algorithm, which raises an error if it makes no progress."""
        guard = [] if any(isinstance(c, Recorder) for c in callbacks) else [Recorder()]
        arguments = {**self.arguments, **more}
        return make(self.name, env=_given(env), callbacks=[*callbacks, *guard], **arguments)

    def restore(self, path: Path, **arguments: Any) -> Algorithm:
        """Return the algorithm in a checkpoint."""
        fields = {*config_class(self.name).model_fields, "config"}
        known = {k: v for k, v in self.arguments.items() if k not in fields}
        if "env_id" in arguments:
            arguments["env_id"] = _given(arguments["env_id"])
        found: type[Algorithm] = algorithm_class(self.name)
        return found.from_checkpoint(path, **{**known, **arguments})

    def close(self) -> None:
        """Close every env made here."""
        for env in self._envs:
            env.close()


def _given(env: Any) -> Any:
    """Return the env argument of an algorithm."""
    return env.probes if isinstance(env, ProbeGroup) else env


@contextmanager
def open_case(name: str, env: Any, arguments: Mapping[str, Any]) -> Iterator[Case]:
    """Close the case's envs at the end of the block."""
    case = Case(name, env, arguments)
    try:
        yield case
    finally:
        case.close()
