"""The table of what each algorithm takes and can do, found by asking each.

    python docs/_ext/capabilities.py

writes it into ``reference/algorithms/index.md``. Every algorithm of rlox is built on small envs or
datasets of each kind of space; a refusal is a missing tick.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import rlox
from gymnasium import spaces
from rlox.config.presets import list_presets
from rlox.deployment.policy import Exportable
from rlox.errors import BackendError, DatasetError, SpaceError
from rlox.registry.families import ALGORITHMS, AlgorithmRow
from rlox.registry.table import algorithm_class, config_class, spec

PAGE = Path(__file__).resolve().parents[1] / "reference/algorithms/index.md"
MARKS = ("<!-- algorithms -->", "<!-- end of algorithms -->")
COLUMNS = (
    "algorithm", "learns from", "`Discrete`", "`Box`", "`Dict` of both", "images, `Dict`", "masks",
    "memory", "gradient steps in Rust", "export", "presets",
)  # fmt: skip

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
NESTED = spaces.Dict({"image": spaces.Box(0, 255, (3, 20, 20), np.uint8), "place": VECTOR})
CHOICES = spaces.Discrete(4)
NUMBERS = spaces.Box(-1, 1, (2,), np.float32)
BOTH = spaces.Dict({"choice": CHOICES, "numbers": NUMBERS})
SMALL = {
    "batch_size": 4, "buffer_size": 64, "hidden": 8, "learning_starts": 8, "n_actors": 1,
    "n_envs": 1, "seq_len": 4, "units": 8,
}  # fmt: skip


class Env(gymnasium.Env[Any, Any]):
    """Random observations of any space."""

    def __init__(self, observed: spaces.Space[Any], acted: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observed, acted

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode."""
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        """Go on; episodes have no end."""
        return self.observation_space.sample(), 0.0, False, False, {}


def team(observed: spaces.Space[Any], acted: spaces.Space[Any]) -> Any:
    """Return an env of two agents, in PettingZoo's parallel interface."""
    from pettingzoo import ParallelEnv

    class Team(ParallelEnv):  # type: ignore[misc, type-arg]
        metadata = {"name": "team"}  # noqa: RUF012  # as PettingZoo has it
        possible_agents = ["left", "right"]  # noqa: RUF012
        state_space = VECTOR

        def __init__(self) -> None:
            self.agents = list(self.possible_agents)
            self.envs = {name: Env(observed, acted) for name in self.agents}

        def observation_space(self, agent: str) -> Any:
            return self.envs[agent].observation_space

        def action_space(self, agent: str) -> Any:
            return self.envs[agent].action_space

        def state(self) -> Any:
            return VECTOR.sample()

        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            found = {name: env.reset(seed=seed) for name, env in self.envs.items()}
            return {n: f[0] for n, f in found.items()}, {n: f[1] for n, f in found.items()}

        def step(self, actions: Any) -> Any:
            found = {name: env.step(actions[name]) for name, env in self.envs.items()}
            return tuple({n: f[i] for n, f in found.items()} for i in range(5))

    return Team()


def dataset(observed: spaces.Space[Any], acted: spaces.Space[Any]) -> Any:
    """Return random transitions between vectors."""
    from rlox_offline.datasets import Dataset

    if observed is not VECTOR or acted is BOTH:
        raise SpaceError("datasets hold one array of observations and one of actions")
    rng = np.random.default_rng(0)
    discrete = isinstance(acted, spaces.Discrete)
    actions = rng.integers(4, size=100) if discrete else rng.uniform(-1, 1, (100, 2))
    columns = {"obs": rng.normal(size=(100, 3)), "actions": actions, "rewards": rng.random(100)}
    bounds = {} if discrete else {"act_low": -1.0, "act_high": 1.0}
    return Dataset({**columns, "terminated": np.arange(100) % 20 == 19}, **bounds)


class Middle:
    """A policy for the evaluation of policies."""

    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        """Return the same action for each row."""
        return np.zeros((*np.shape(obs)[:-1], 2), np.float32)


def takes(name: str, observed: spaces.Space[Any], acted: spaces.Space[Any], **options: Any) -> bool:
    """Return whether the algorithm can be built for these spaces, with these options."""
    found, fields = spec(name), config_class(name).model_fields
    given = {key: value for key, value in SMALL.items() if key in fields} | options
    if "recurrent" in fields and "recurrent" not in options:
        given.pop("seq_len", None)  # of a memory that is not there
    if name == "bc":
        given["continuous"] = acted is not CHOICES
    if "policy" in found.needs:
        given["policy"] = Middle()
    try:
        if "dataset" in found.needs:
            rlox.make(name, dataset=dataset(observed, acted), **given)
        else:
            make_env = team if found.trains_teams else Env
            rlox.make(name, env=partial(make_env, observed, acted), **given)
    except (SpaceError, DatasetError, BackendError):
        return False
    return True


def cells(row: AlgorithmRow) -> list[str]:
    """Return an algorithm's line of the table."""
    found, fields = spec(row.name), config_class(row.name).model_fields
    title = f"[{row.class_name}]({row.name}.md)"
    presets = str(len(list_presets(row.name)) or "")
    exports = _tick(issubclass(algorithm_class(row.name), Exportable))
    if "model" in found.needs:
        return [title, "texts", *[""] * 7, exports, presets]
    if row.extra == "rl8":
        memory = _tick("recurrent" in row.name)
        return [title, "envs of tensors", "✓", "✓", "", "", "", memory, "✓", exports, presets]
    source = "a dataset" if "dataset" in found.needs else "envs"
    source = "teams" if found.trains_teams else source
    asked = partial(takes, row.name)
    heeds_masks = "action_masks" in inspect.signature(algorithm_class(row.name).predict).parameters
    memory = "recurrent" in fields or row.name == "dreamer_v3"
    if row.name == "hybrid_ppo":  # native envs have choices (CartPole-v1) or numbers (Pendulum-v1)
        ticks = [True, True, False, False, False, False, True]
        return [title, "envs in Rust", *map(_tick, ticks), exports, presets]
    choices, numbers = asked(VECTOR, CHOICES), asked(VECTOR, NUMBERS)
    usual = CHOICES if choices else NUMBERS
    native = "backend" in fields and asked(VECTOR, usual, backend="native")
    ticks = [
        choices, numbers, asked(VECTOR, BOTH), asked(NESTED, usual), choices and heeds_masks,
        memory, native,
    ]  # fmt: skip
    return [title, source, *map(_tick, ticks), exports, presets]


def _tick(there: bool) -> str:
    return "✓" if there else ""


def lines() -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| " + " | ".join(COLUMNS) + " |"
    yield "| --- | --- |" + " :-: |" * (len(COLUMNS) - 2)
    for row in ALGORITHMS:
        if row.registered:
            yield "| " + " | ".join(cells(row)) + " |"


def main() -> None:
    """Write the table into its page."""
    start, end = map(re.escape, MARKS)
    text = PAGE.read_text(encoding="utf-8")
    body = "\n".join([MARKS[0], "", *lines(), "", MARKS[1]])
    PAGE.write_text(re.sub(f"{start}.*{end}", lambda _: body, text, flags=re.S), encoding="utf-8")


if __name__ == "__main__":
    main()
