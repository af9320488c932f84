"""PettingZoo envs, parallel and turn-based, as one vector env of several agents.

They run in this process, or each in its own supervised process.
"""

from __future__ import annotations

import importlib
import os
import pickle
import re
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from rlox.envs import WorkerProcess
from rlox.errors import EnvError, import_extra, suggest
from rlox.protocols import AgentGroup, MultiAgentObs, MultiAgentStep
from rlox.seeding import env_seeds
from rlox.spaces.rows import ActionRows, ObservationRows, map_leaves

from rlox_marl.envs.groups import check_actions, group_agents, take_action
from rlox_marl.envs.one_env import OneEnv, Outcome, Spaces, is_env, step_error, wrap

EXTRA = "marl"

Arrays = dict[str, npt.NDArray[Any]]

RESET_TIMEOUT = 120.0
"""Least seconds that a reset may take."""

MAX_PROCESSES_PER_CORE = 32

MPE2 = tuple(
    f"mpe2/{name}"
    for name in (
        "collect_treasure_v1", "simple_adversary_v3", "simple_crypto_v3", "simple_formation_v1",
        "simple_line_v1", "simple_push_v3", "simple_reference_v3", "simple_speaker_listener_v4",
        "simple_spread_v3", "simple_tag_v3", "simple_v3", "simple_world_comm_v3",
    )
)  # fmt: skip
"""Ids of mpe2's envs; mpe2 registers none with PettingZoo."""


class PettingZooVecEnv:
    """N PettingZoo envs stepped in this process; see :class:`rlox.protocols.MultiAgentVecEnv`.

    Args:
        env: an id (``"sisl/multiwalker-v9"``, ``"mpe2/simple_spread_v3"``), a callable that makes a
            parallel or an AEC env, or one env (``n_envs`` must be 1).
        n_envs: number of envs N.
        seed: seed of the first :meth:`reset_all`; env i gets seed + i.
        env_kwargs: arguments of the env.
        with_state: read the env's state; ``False`` ignores it, for envs that have a state space but
            fail to return a state.

    Raises:
        EnvError: the env cannot be built, or does not list its agents.
        SpaceError: policies do not support the observation or action space.
        MissingDependencyError: PettingZoo is not installed.
    """

    def __init__(
        self,
        env: Any,
        n_envs: int = 1,
        seed: int | Sequence[int] | None = None,
        *,
        env_kwargs: Mapping[str, Any] | None = None,
        with_state: bool = True,
    ) -> None:
        self._ones = build_envs(env, n_envs, env_kwargs or {})
        try:
            self._set_up([one.spaces for one in self._ones], seed, with_state)
        except BaseException:
            self.close()
            raise

    def _set_up(
        self, found: Sequence[Spaces], seed: int | Sequence[int] | None, with_state: bool
    ) -> None:
        first = found[0]
        for number, other in enumerate(found):
            if other != first:
                raise EnvError(
                    f"env {number} has other agents or spaces than env 0; let the callable make "
                    "equal envs"
                )
        groups = group_agents(first.agents, first.observation, first.action)
        self._observed = {g.name: ObservationRows(g.observation_space) for g in groups}
        self._acted = {g.name: ActionRows(g.action_space) for g in groups}
        self._seed = seed
        self.n_envs = n_envs = len(found)
        """Number of envs N."""
        self.possible_agents: tuple[str, ...] = first.agents
        """Names of all agents."""
        self.groups: tuple[AgentGroup, ...] = groups
        """Groups of agents with equal spaces."""
        self.state_space: gymnasium.Space[Any] | None = first.state
        """Space of one env's state; ``None`` if it has none."""
        self._shapes = {group.name: (n_envs, len(group.agents)) for group in groups}
        self._place = {agent: (g, k) for g in groups for k, agent in enumerate(g.agents)}
        self._active: dict[str, npt.NDArray[np.bool_]] | None = None
        self._masked: set[str] = set()
        self._always_masked: set[str] = set()
        self._now: list[Outcome] = []
        if not with_state:
            self.leave_out_state()

    @property
    def envs(self) -> list[Any]:
        """The N envs of PettingZoo, which render if they were made with a ``render_mode``."""
        return [one.env for one in self._ones]

    def leave_out_state(self) -> None:
        """Stop reading the env's state, for critics that do not use it."""
        for one in self._ones:
            one.leave_out_state()
        self.state_space = None

    def reset_all(self, seed: int | Sequence[int] | None = None) -> MultiAgentObs:
        """Reset all envs; see :class:`rlox.protocols.MultiAgentVecEnv`."""
        if seed is None:
            seed, self._seed = self._seed, None
        self._now = self._reset(env_seeds(seed, self.n_envs))
        if self._active is None:
            self._decide_masks()
        return self._shown()

    def _reset(self, seeds: Sequence[int | None]) -> list[Outcome]:
        """Reset each env."""
        return [one.reset(seed) for one, seed in zip(self._ones, seeds, strict=True)]

    def _advance(self, taken: Sequence[Mapping[str, Any]]) -> list[tuple[Outcome, Outcome]]:
        """Take the actions of the active agents of each env; see ``OneEnv.advance``."""
        return [one.advance(actions) for one, actions in zip(self._ones, taken, strict=True)]

    def step_all(self, actions: Mapping[str, Any]) -> MultiAgentStep:
        """Step all envs; see :class:`rlox.protocols.MultiAgentStep`.

        Raises:
            EnvError: the actions do not fit, or an env broke its contract; the message names
                the agent, the step and the field.
        """
        if self._active is None:
            raise EnvError("step_all was called before reset_all; reset the envs first")
        given = check_actions(self.groups, actions, self._active)
        taken = [
            {agent: take_action(given, *self._place[agent], i) for agent in now.active}
            for i, now in enumerate(self._now)
        ]
        reached, self._now = map(list, zip(*self._advance(taken), strict=True))
        shown = self._shown()
        return {
            **shown,
            "rewards": self._by_group([out.rewards for out in reached], np.float64),
            "terminated": self._flags(out.terminated for out in reached),
            "truncated": self._flags(out.truncated for out in reached),
            "final_obs": self._observations(reached, ended=True),
            "final_state": self._states(reached),
            "final_masks": self._final_masks(shown["masks"], reached),
            "episode_ended": np.array([not out.living for out in reached]),
        }

    def _flags(self, agents: Iterable[Iterable[str]]) -> dict[str, npt.NDArray[np.bool_]]:
        """Return (N, A) by group, True for the given agents of each env."""
        return self._by_group([dict.fromkeys(some, True) for some in agents], np.bool_)

    def _by_group(self, values: Sequence[Mapping[str, Any]], dtype: Any) -> Arrays:
        """Return (N, A) by group from each env's values by agent; 0 for the other agents."""
        arrays = {name: np.zeros(shape, dtype) for name, shape in self._shapes.items()}
        for i, some in enumerate(values):
            for agent, value in some.items():
                group, column = self._place[agent]
                arrays[group.name][i, column] = value
        return arrays

    def _shown(self) -> MultiAgentObs:
        self._active = self._flags(now.active for now in self._now)
        return {
            "obs": self._observations(self._now, ended=False),
            "active": {name: flags.copy() for name, flags in self._active.items()},
            "masks": self._masks(),
            "state": self._states(self._now),
        }

    def _observations(self, outcomes: Sequence[Outcome], *, ended: bool) -> dict[str, Any]:
        """Return the observations by group; ``ended`` includes agents that ended in the step."""
        arrays: dict[str, Any] = {
            name: rows.blank(*self._shapes[name]) for name, rows in self._observed.items()
        }
        for i, outcome in enumerate(outcomes):
            for agent, leaves in outcome.obs.items():
                if ended or agent in outcome.living:
                    group, column = self._place[agent]
                    map_leaves(partial(_write, row=(i, column)), arrays[group.name], leaves)
        return arrays

    def _decide_masks(self) -> None:
        """Note which groups have masks, from the first reset and the spaces.

        A group that does not act at first may have masks or not: it gets masks that are all True
        until the env gives one.
        """
        given = {self._place[agent][0].name for now in self._now for agent in now.masks}
        unmasked = [a for now in self._now for a in now.active if a not in now.masks]
        bare = {self._place[agent][0].name for agent in unmasked}
        maskable = {name for name, rows in self._acted.items() if rows.mask_size}
        self._always_masked = given & maskable
        self._masked = self._always_masked | (maskable - bare)

    def _masks(self) -> dict[str, npt.NDArray[np.bool_]]:
        masks = {
            name: np.ones((*self._shapes[name], rows.mask_size), np.bool_)
            for name, rows in self._acted.items()
            if name in self._masked
        }
        for i, now in enumerate(self._now):
            for agent in now.active:
                (group, column), problem = self._place[agent], ""
                if agent not in now.masks:
                    if group.name in self._always_masked:
                        problem = "is missing; give it with every reset and step"
                elif group.name in masks:
                    try:
                        masks[group.name][i, column] = self._mask(now, agent)
                    except ValueError as error:
                        problem = f"is wrong: {error}"
                elif self._acted[group.name].mask_size:
                    problem = "was given, but not at the first reset; give it with every "
                    problem += "reset and step"
                else:
                    problem = f"was given, but actions of {group.action_space} have no masks"
                if problem:
                    raise step_error(now.where, "the action mask", agent, problem)
        return masks

    def _mask(self, outcome: Outcome, agent: str) -> npt.NDArray[np.bool_]:
        """Return the agent's mask from its env, (mask_size,)."""
        rows = self._acted[self._place[agent][0].name]
        return rows.check_masks(np.asarray(outcome.masks[agent])[None], 1)[0]  # type: ignore[no-any-return]

    def _final_masks(
        self, masks: Mapping[str, npt.NDArray[np.bool_]], reached: Sequence[Outcome]
    ) -> dict[str, npt.NDArray[np.bool_]]:
        """Return the masks of a step's final observations, starting from the next masks."""
        final = {name: rows.copy() for name, rows in masks.items()}
        for i, out in enumerate(reached):
            for rows in final.values():
                rows[i] |= not out.living
            for agent in out.truncated & out.masks.keys():
                group, column = self._place[agent]
                if group.name in final:
                    with suppress(ValueError):  # an episode's end may allow no action
                        final[group.name][i, column] = self._mask(out, agent)
        return final

    def _states(self, outcomes: Sequence[Outcome]) -> npt.NDArray[Any] | None:
        states = [outcome.state for outcome in outcomes if outcome.state is not None]
        return np.stack(states) if states else None

    def close(self) -> None:
        """Close the envs; a second call does nothing."""
        ones, self._ones = self._ones, []
        self._active = None
        for one in ones:
            one.close()


def _write(array: npt.NDArray[Any], leaf: Any, *, row: tuple[int, int]) -> None:
    array[row] = leaf


def _make_env(env_id: str, env_kwargs: Mapping[str, Any]) -> Any:
    """Make the env of an id: a parallel env where there is one, else an AEC env.

    Ids are those of ``pettingzoo.make`` (``sisl/multiwalker-v9``, or ``_v9``) and :data:`MPE2`;
    ``module:id`` first imports the module that registers the id.
    """
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # no window unless render_mode asks for one
    pettingzoo = import_extra("pettingzoo", f"env '{env_id}'", EXTRA)
    module, _, name = env_id.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        if name in MPE2:
            home = import_extra(f"mpe2.{name.partition('/')[2]}", f"env '{env_id}'", EXTRA)
            return home.parallel_env(**env_kwargs)
        wanted = re.sub(r"_v(\d+)$", r"-v\1", name)
        registries = {"parallel": pettingzoo.parallel_registry, "aec": pettingzoo.aec_registry}
        for kind, registry in registries.items():
            if wanted in registry:
                return pettingzoo.make(kind, wanted, **env_kwargs)
    except (ImportError, TypeError, ValueError, AssertionError) as error:
        reason = str(error).removesuffix(".")
        raise EnvError(f"env '{env_id}' cannot be built: {reason}") from error
    known = sorted({*registries["parallel"], *registries["aec"], *MPE2})
    stem = name.rpartition("_v")[0] or wanted.rpartition("-v")[0]
    versions = [one for one in known if one.startswith((f"{stem}-v", f"{stem}_v"))] if stem else []
    hint = f"; there is {', '.join(versions)}" if versions else suggest(name, known)
    raise EnvError(
        f"no PettingZoo env is called '{env_id}'{hint}; ids look like 'sisl/multiwalker-v9', and "
        "'module:id' imports a module that registers one"
    )


def build_envs(
    env: Any, n_envs: int, env_kwargs: Mapping[str, Any], first_number: int = 0
) -> list[OneEnv]:
    """Build N envs with checked steps."""
    if isinstance(n_envs, bool) or not isinstance(n_envs, int) or n_envs < 1:
        raise EnvError(f"n_envs must be an integer of at least 1, got {n_envs!r}")
    import_extra("pettingzoo", "an env of several agents", EXTRA)
    made: list[Any] = []
    try:
        if isinstance(env, str):
            made += (_make_env(env, env_kwargs) for _ in range(n_envs))
        elif is_env(env) or isinstance(env, gymnasium.Env):
            if n_envs != 1:
                raise EnvError(
                    f"one env cannot serve as n_envs = {n_envs} copies; pass its id or a callable "
                    "that makes it, or n_envs=1"
                )
            if env_kwargs:
                raise EnvError(
                    f"env_kwargs {sorted(env_kwargs)} cannot reach an env that is built already; "
                    "pass its id or a callable that makes it"
                )
            made.append(env)
        elif callable(env):
            for _ in range(n_envs):
                one = env(**env_kwargs)
                if any(one is other for other in made):
                    raise EnvError(
                        f"the env callable returned the same {type(one).__name__} more than once "
                        f"for n_envs = {n_envs}; let it make a new env at each call"
                    )
                made.append(one)
        else:
            raise EnvError(
                "env must be an id, a callable that makes a PettingZoo env, or one such env, got "
                f"{type(env).__name__}"
            )
        return [wrap(one, first_number + i) for i, one in enumerate(made)]
    except BaseException:
        for one in made:
            if one is not env and callable(getattr(one, "close", None)):
                one.close()
        raise


class PettingZooProcesses(PettingZooVecEnv):
    """N PettingZoo envs, each in its own process.

    For the same seeds and actions the results equal those of :class:`PettingZooVecEnv`. An
    exception in an env is raised here; a process that dies or misses its deadline raises an error
    that names its env.

    Args:
        env: an id, or a callable that makes a parallel or an AEC env, sent by cloudpickle.
        n_envs: number of envs N.
        seed: seed of the first :meth:`reset_all`; env i gets seed + i.
        env_kwargs: arguments of the env.
        with_state: see :class:`PettingZooVecEnv`.
        step_timeout: seconds that a step of all envs may take.

    Raises:
        EnvError: the env cannot be built or sent, or ``n_envs`` exceeds the machine's limit.
        SpaceError: policies do not support the observation or action space.
    """

    def __init__(
        self,
        env: Any,
        n_envs: int = 1,
        seed: int | Sequence[int] | None = None,
        *,
        env_kwargs: Mapping[str, Any] | None = None,
        with_state: bool = True,
        step_timeout: float = 60.0,
    ) -> None:
        if not (isinstance(env, str) or callable(env)):
            raise EnvError(
                f"vectorization='async' makes an env in each process, got the {type(env).__name__} "
                "itself; pass its id or a callable that makes it, or take vectorization='sync'"
            )
        most = MAX_PROCESSES_PER_CORE * (os.cpu_count() or 1)
        if isinstance(n_envs, bool) or not isinstance(n_envs, int) or not 1 <= n_envs <= most:
            raise EnvError(
                "vectorization='async' starts a process per env, at least 1 and at most "
                f"{most} on this machine, got n_envs = {n_envs!r}; vectorization='sync' takes more"
            )
        self._step_timeout = step_timeout
        self._workers: list[WorkerProcess] = []
        self.close = weakref.finalize(self, _close, self._workers)  # type: ignore[method-assign]
        """Ends the processes."""
        try:
            for number in range(n_envs):
                self._workers.append(_start((env, dict(env_kwargs or {}), number), number))
            found = self._ask("spaces", [()] * n_envs, RESET_TIMEOUT)
            self._set_up(found, seed, with_state)
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.pid for worker in self._workers]

    def leave_out_state(self) -> None:
        """Stop reading the state; see :meth:`PettingZooVecEnv.leave_out_state`."""
        self._ask("leave_out_state", [()] * self.n_envs, RESET_TIMEOUT)
        self.state_space = None

    def _reset(self, seeds: Sequence[int | None]) -> list[Outcome]:
        return self._ask("reset", [(seed,) for seed in seeds], RESET_TIMEOUT)

    def _advance(self, taken: Sequence[Mapping[str, Any]]) -> list[tuple[Outcome, Outcome]]:
        return self._ask("advance", [(actions,) for actions in taken], self._step_timeout)

    def _ask(self, method: str, arguments: Sequence[tuple[Any, ...]], seconds: float) -> list[Any]:
        """Call a method in all processes at once, and return the answers in order."""
        for worker, given in zip(self._workers, arguments, strict=True):
            worker.send("call", method, {"": _pickled(given)})
        end = time.monotonic() + seconds
        answers = [worker.receive(max(end - time.monotonic(), 0.0)) for worker in self._workers]
        # safe: our own processes pickled it
        return [pickle.loads(arrays[""].tobytes()) for _, arrays in answers]  # noqa: S301


def _pickled(value: Any) -> npt.NDArray[np.uint8]:
    return np.frombuffer(pickle.dumps(value), np.uint8)


def _start(arguments: tuple[Any, ...], number: int) -> WorkerProcess:
    try:
        return WorkerProcess(
            "rlox_marl.envs.pettingzoo:serve", arguments, name=f"the process of env {number}"
        )
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise EnvError(
            f"the env cannot be sent to a process: {error}; pass its id or a function that makes "
            "it, or take vectorization='sync'"
        ) from error


def _close(workers: Sequence[WorkerProcess]) -> None:
    for worker in workers:
        worker.close()


def serve(
    env: Any, env_kwargs: Mapping[str, Any], number: int, beat: Callable[[], None]
) -> SimpleNamespace:
    """Return the object that serves one env to :class:`PettingZooProcesses`, in its process.

    Args:
        env: an id, or a callable that makes an env.
        env_kwargs: its arguments.
        number: index of the env, for errors.
        beat: sign of life during long calls; unused, as a step is a single call.
    """
    one = build_envs(env, 1, env_kwargs, number)[0]

    def call(method: str, arrays: Arrays) -> tuple[None, Arrays]:
        # safe: the process that started this one pickled it
        given = pickle.loads(arrays[""].tobytes())  # noqa: S301
        part = getattr(one, method)
        return None, {"": _pickled(part(*given) if callable(part) else part)}

    return SimpleNamespace(call=call, close=one.close)
