"""Envs with known answers, and checks with them: order of leaves, memory and masks."""

from __future__ import annotations

import copy
import inspect
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rlox.algorithm import make
from rlox.deployment import Exportable, export, load_policy
from rlox.envs.teams import make_team_env
from rlox.errors import BackendError, CheckpointError, ConfigError, ExportError, SpaceError
from rlox.registry.table import config_class
from rlox.spaces.rows import ActionRows, is_nested, map_nested

from rlox_testing.cases import CARTPOLE, Case, open_case
from rlox_testing.probes import check, first_difference, require

VECTOR = spaces.Box(-1, 1, (2,), np.float32)
# pairs, as gymnasium sorts the keys of a dict
SEEN = spaces.Dict([("z", VECTOR), ("k", spaces.Discrete(3)), ("a", VECTOR)])
DONE = spaces.Dict([("b", spaces.Discrete(2)), ("a", spaces.Discrete(2))])


class ReorderedEnv(gymnasium.Env[Any, Any]):
    """Random observations; in the nested actions, b = 1 with a = 0 pays 1 in each of 5 steps.

    Args:
        observation_space: any space; the default is nested, with unsorted keys.
        action_space: the same for actions.
    """

    def __init__(self, observation_space: Any = SEEN, action_space: Any = DONE) -> None:
        self.observation_space = copy.deepcopy(observation_space)
        self.action_space = action_space
        self._step = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._step = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Pay."""
        self._step += 1
        good = isinstance(action, Mapping) and (action["b"], action["a"]) == (1, 0)
        return self.observation_space.sample(), float(good), False, self._step == 5, {}


class HintedEnv(gymnasium.Env[Any, Any]):
    """Shows a bit in the first of 4 steps only, and pays 1 for each action that names it.

    Args:
        action_space: its highest choice or number names the bit 1, its lowest 0.
    """

    observation_space = VECTOR

    def __init__(self, action_space: Any = None) -> None:
        self.action_space = action_space or spaces.Discrete(2)
        self._step = self._bit = 0

    def _look(self) -> npt.NDArray[np.float32]:
        return np.array([0 if self._step else 2 * self._bit - 1, self._step / 4], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Show the bit."""
        super().reset(seed=seed)
        self._step, self._bit = 0, int(self.np_random.integers(2))
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Pay."""
        self._step += 1
        first = int(np.ravel(action)[0] > 0)
        return self._look(), float(first == self._bit), self._step == 4, False, {}


class MaskedEnv(gymnasium.Env[Any, Any]):
    """Allows one action in each of 2 steps, and raises at others; ends of both kinds take turns.

    Args:
        action_space: discrete, not nested.
        observation_space: space of the observations, which are zeros.
    """

    def __init__(self, action_space: Any = None, observation_space: Any = VECTOR) -> None:
        self.action_space = action_space or spaces.Discrete(2)
        self.observation_space = observation_space
        self._obs = np.zeros(observation_space.shape, observation_space.dtype)
        self._sizes = np.array(ActionRows(self.action_space).leaves[0].sizes)
        self._step = self._episode = 0

    def _masks(self) -> dict[str, Any]:
        rows = [np.arange(size) == (1 - self._step) % size for size in self._sizes]
        return {"action_mask": np.concatenate(rows).astype(np.int8)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._step, self._episode = 0, self._episode + 1
        return self._obs.copy(), self._masks()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Raise at a forbidden action."""
        chosen = np.ravel(action) - np.ravel(getattr(self.action_space, "start", 0))
        allowed = (1 - self._step) % self._sizes
        require((chosen == allowed).all(), f"the action {action} is forbidden by the mask")
        self._step += 1
        cut = bool(self._episode % 2)
        over = self._step == 2
        return self._obs.copy(), 0.0, over and not cut, over and cut, self._masks()


class MaskedTeam:
    """A parallel env of two agents, who must choose 1, which pays 10, and then 0, which pays 0.

    All observations are equal, so that the value of the first action would leak into the second
    step, where it is forbidden, and beyond the end, a truncation in every second episode.
    """

    metadata = {"name": "masked_team"}  # noqa: RUF012  # as PettingZoo has it
    render_mode = None
    possible_agents = ("left", "right")

    def __init__(self) -> None:
        self.agents: list[str] = []
        self._step = self._episode = 0

    def observation_space(self, agent: str) -> Any:
        """Return the space of a vector."""
        return VECTOR

    def action_space(self, agent: str) -> Any:
        """Return a ``Discrete`` of two."""
        return spaces.Discrete(2)

    def _shown(self) -> tuple[dict[str, Any], dict[str, Any]]:
        mask = np.array([self._step > 0, self._step == 0])
        everybody = self.possible_agents
        infos = {agent: {"action_mask": mask.copy()} for agent in everybody}
        return {agent: np.ones(2, np.float32) for agent in everybody}, infos

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        """Begin an episode."""
        self.agents, self._step = list(self.possible_agents), 0
        self._episode += 1
        return self._shown()

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, ...]:
        """Pay, and raise at a forbidden action."""
        for agent, action in actions.items():
            require(int(action) == (self._step == 0), f"{agent} took a forbidden action")
        self._step += 1
        over, cut = self._step == 2, bool(self._episode % 2)
        self.agents = [] if over else self.agents
        obs, infos = self._shown()
        rows = (10.0 * (self._step == 1), over and not cut, over and cut)
        return obs, *(dict.fromkeys(self.possible_agents, row) for row in rows), infos

    def close(self) -> None:
        """Do nothing."""


def _require_alike(found: Any, expected: Any, message: str) -> None:
    def compare(left: Any, right: Any) -> None:
        require(np.allclose(left, right, atol=1e-4), f"{message}: {found} instead of {expected}")

    map_nested(compare, found, expected)


def _actors(case: Case, algorithm: Any) -> dict[str, Any]:
    """Return equivalents of the algorithm: restored from a file and, if possible, exported."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "saved.rlox")
        algorithm.save(path)
        actors: dict[str, Any] = {"restored": case.restore(path, env_id=case.probe())}
        if isinstance(algorithm, Exportable):
            try:
                export(algorithm, path)
            except ExportError:  # a module that cannot be described
                return actors
            actors["exported"] = load_policy(path)
        return actors


def _built(case: Case) -> Any:
    """Return a new algorithm and its env; ``None`` for both if it does not take such spaces."""
    watched = case.probe()
    try:
        return case.build(watched), watched
    except (BackendError, ConfigError, SpaceError):
        return None, None


@check
def check_order(name: str, env: Any = CARTPOLE, **arguments: Any) -> None:
    """Check that leaves of nested spaces are never confused, even if saved or exported."""
    with open_case(name, env, arguments) as case:
        own = case.probe().action_space
    for observed, acted in ((SEEN, DONE), (SEEN, own), (VECTOR, DONE)):
        with open_case(name, partial(ReorderedEnv, observed, acted), arguments) as case:
            algorithm, watched = _built(case)
            if algorithm is None:
                continue
            algorithm.train(1)
            obs = watched.reset_all(0)
            expected = algorithm.predict(obs)
            if isinstance(obs, dict):
                turned = dict(reversed(obs.items()))
                _require_alike(algorithm.predict(turned), expected, "the order of keys matters")
            for kind, actor in _actors(case, algorithm).items():
                _require_alike(actor.predict(obs), expected, f"{kind}, it acts otherwise")
            other = partial(ReorderedEnv, _turned(observed), _turned(acted))
            with tempfile.TemporaryDirectory() as folder, open_case(name, other, arguments) as late:
                case.build(case.probe()).save(path := Path(folder, "saved"))
                try:
                    late.restore(path, env_id=late.probe())
                except CheckpointError:
                    return
            raise AssertionError("its checkpoint is loaded on leaves in another order")


def _turned(space: Any) -> Any:
    """Return a ``Dict`` with its keys reversed; other spaces unchanged."""
    return spaces.Dict(list(reversed(space.spaces.items()))) if is_nested(space) else space


@check
def check_memory(name: str, env: Any = CARTPOLE, **arguments: Any) -> None:
    """Check that memory lasts exactly one episode, also if saved and exported."""
    with open_case(name, env, arguments) as case:
        own = case.probe().action_space
    with open_case(name, partial(HintedEnv, None if is_nested(own) else own), arguments) as case:
        algorithm, _ = _built(case)
        if algorithm is None or "state" not in inspect.signature(algorithm.predict).parameters:
            return
        algorithm.train(1)
        later = [[0, 0.25], [0, 0.5], [0, 0.75]]
        episodes = [np.array([[bit, 0], *later], np.float32) for bit in (-1, 1, 1)]
        _, seen = _played(algorithm, [each[:2] for each in episodes[:2]], [True, True])
        if seen is None:
            return
        forgets = first_difference(_row(seen, 0), _row(seen, 1)) is None
        require(not forgets, "it forgets its first observation")
        acted, state = _played(algorithm, episodes[:2], [True, True])
        _, after = _played(algorithm, episodes[1:], [True, False], state)
        kept = "an episode's begin does not empty its memory"
        _require_alike(_row(after, 0), _row(state, 1), kept)
        for kind, actor in {"alone": algorithm, **_actors(case, algorithm)}.items():
            for i in range(2):
                alone, _ = _played(actor, episodes[i : i + 1], [True])
                _require_alike(alone[:, 0], acted[:, i], f"{kind}, it remembers otherwise")


def _row(state: Any, index: int) -> Any:
    return map_nested(lambda leaf: np.asarray(leaf)[index], state)


def _played(actor: Any, episodes: Any, begins: Any, state: Any = None) -> tuple[Any, Any]:
    """Return the actions (4, B, ...) in B episodes, and the state at their end."""
    actions = []
    for t, obs in enumerate(np.stack(episodes, 1)):
        starts = np.array(begins) if t == 0 else np.zeros(len(obs), np.bool_)
        action, state = actor.predict(obs, state=state, episode_start=starts)
        actions.append(action)
    return np.stack(actions), state


@check
def check_masks(name: str, env: Any = CARTPOLE, **arguments: Any) -> None:
    """Check that masked actions are never taken, or that training and evaluation both refuse."""
    with open_case(name, env, arguments) as case:
        own = case.probe().action_space
    if not isinstance(own, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return
    maker = partial(MaskedEnv, own)
    with open_case(name, maker, arguments) as case:
        algorithm, _ = _built(case)
        if algorithm is None:
            return
        trained = _refused(lambda: algorithm.train(2))
        for mode in (True, False):
            acted = _refused(partial(algorithm.evaluate, maker, n_episodes=2, deterministic=mode))
            require(acted == trained, "masks are refused in training or in evaluation alone")


def _refused(act: Callable[[], Any]) -> bool:
    """Return whether an action is refused because of masks."""
    try:
        act()
    except SpaceError as error:
        require("mask" in str(error), f"the error must say that masks are why, got {error}")
        return True
    return False


@check
def check_offline_masks(name: str, dataset: Any, **arguments: Any) -> None:
    """Check that an evaluation takes no forbidden action, or refuses masks."""
    algorithm: Any = make(name, dataset=dataset, **arguments)
    if not isinstance(algorithm.action_space, spaces.Discrete):
        return
    maker = partial(MaskedEnv, algorithm.action_space, algorithm.observation_space)
    _refused(lambda: algorithm.evaluate(maker, n_episodes=2, seed=0))


@check
def check_team_masks(name: str, env: Any, **arguments: Any) -> None:
    """Check that a team neither takes nor values forbidden actions, at ends of both kinds."""
    fast = {"learning_rate": 0.01, "gamma": 0.9, "gradient_steps": 8, "target_update_interval": 4}
    known = {k: v for k, v in fast.items() if k in config_class(name).model_fields}
    algorithm: Any
    with make(name, env=MaskedTeam, **{**arguments, **known}) as algorithm:
        metrics = algorithm.train(96)
        for mode in (True, False):
            algorithm.evaluate(n_episodes=2, deterministic=mode)
        if "q_value" not in metrics or not callable(getattr(algorithm, "value", None)):
            return
        shown = make_team_env(MaskedTeam, n_envs=1)
        first = shown.reset_all(0)
        (group,) = shown.groups
        second = shown.step_all({group.name: np.ones((1, 2), np.int64)})
        enticing, allowed = (np.max(algorithm.value(each)) for each in (first, second))
        shown.close()
    require(enticing > 2, f"it has not learnt that the first choice pays 10: {enticing}")
    require(
        abs(allowed) < enticing / 4,
        f"the second choice is worth 0, and the value is {allowed}, as if forbidden actions there "
        f"and behind the end, worth {enticing}, could be chosen",
    )
