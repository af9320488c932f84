"""MuJoCo tasks as vector envs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from gymnasium.vector.utils import batch_space
from rlox.errors import EnvError, MissingDependencyError, requirement, suggest
from rlox.protocols import VecEnvStep
from rlox.seeding import env_seeds
from rlox.spaces.rows import batch_of_actions

from rlox_simulators.mujoco.simulations import Simulations
from rlox_simulators.mujoco.tasks import TASKS
from rlox_simulators.options import MujocoOptions

Array = npt.NDArray[Any]


class MujocoTask(Protocol):
    """A task for :class:`rlox_simulators.mujoco.MujocoVecEnv`, computed for all N simulations."""

    xml_file: str
    """The model; see :class:`rlox_simulators.mujoco.Simulations`."""
    frame_skip: int
    """Substeps of a step."""
    contact_forces: bool
    """Whether ``simulations.cfrc_ext`` is computed."""

    def observe(self, simulations: Simulations) -> Array:
        """Return new (N, D) float64 observations."""

    def position(self, simulations: Simulations) -> Array:
        """Return new (N, k) positions whose velocities :meth:`reward` gets."""

    def reward(self, simulations: Simulations, actions: Array, velocity: Array) -> Array:
        """Return (N,) rewards of a step.

        Args:
            simulations: after the step.
            actions: (N, nu) float32.
            velocity: (N, k) the step's change of the positions, per second.
        """

    def terminated(self, simulations: Simulations) -> npt.NDArray[np.bool_]:
        """Return (N,) whether the step ended the task."""

    def begin(self, rng: np.random.Generator, qpos: Array, qvel: Array) -> None:
        """Draw the beginning of an episode in place.

        Args:
            rng: the stream of one env.
            qpos: (nq,) the model's positions.
            qvel: (nv,) its velocities, zeros.
        """


WORD = 2**64


class MujocoVecEnv:
    """N copies of a MuJoCo task, stepped on MuJoCo's threads.

    Results do not depend on the number of threads. The state is complete: runs resume exactly.

    Args:
        task: a task of :data:`rlox_simulators.mujoco.TASKS`, or one of your own.
        n_envs: N.
        max_episode_steps: steps after which an episode is truncated; ``None``: never.
        threads: threads that step; ``None``: half the logical cores, at most N.

    Raises:
        EnvError: the model cannot be loaded, or lacks what the task needs.
        MissingDependencyError: MuJoCo 4 is not installed.
    """

    def __init__(
        self,
        task: MujocoTask,
        n_envs: int = 1,
        *,
        max_episode_steps: int | None = 1_000,
        threads: int | None = None,
    ) -> None:
        reason = unavailable()
        if reason:
            raise MissingDependencyError(reason)
        self._task = task
        self._limit = np.iinfo(np.int64).max if max_episode_steps is None else max_episode_steps
        self._simulations = Simulations(
            task.xml_file,
            n_envs,
            task.frame_skip,
            task.contact_forces,
            threads or max(1, min(n_envs, (os.cpu_count() or 1) // 2)),
        )
        model = self._simulations.model
        self._qpos, self._qvel = model.qpos0.copy(), np.zeros(model.nv)
        self._streams = [seeding.np_random(None)[0] for _ in range(n_envs)]
        self._steps = np.zeros(n_envs, np.int64)
        size = task.observe(self._simulations).shape[1]
        self._observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float64)
        low, high = model.actuator_ctrlrange.astype(np.float32).T
        self._action_space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        self._batch_of_actions = batch_space(self._action_space, n_envs)
        self._position = task.position(self._simulations)
        # bind all fields now: a field is up to date from the first step after its binding
        actions = np.zeros((n_envs, model.nu), np.float32)
        task.reward(self._simulations, actions, np.zeros_like(self._position))
        task.terminated(self._simulations)

    @property
    def n_envs(self) -> int:
        """Number of envs N."""
        return self._simulations.n

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """Space of one env's observation."""
        return self._observation_space

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """Space of one env's action."""
        return self._action_space

    def reset_all(self, seed: int | Sequence[int] | None = None) -> npt.NDArray[np.float64]:
        """Begin new episodes; see :class:`rlox.protocols.VecEnv`."""
        if seed is not None:
            seeds = env_seeds(seed, self.n_envs)
            self._streams = [seeding.np_random(each)[0] for each in seeds]
        self._begin(np.arange(self.n_envs))
        return self._task.observe(self._simulations)

    def step_all(self, actions: Any) -> VecEnvStep:
        """Step all envs with (N, nu) actions; see :class:`rlox.protocols.VecEnvStep`."""
        simulations, task = self._simulations, self._task
        actions = batch_of_actions(actions, self._batch_of_actions)
        simulations.step(actions)
        position = task.position(simulations)
        velocity = (position - self._position) / simulations.dt
        self._position = position
        self._steps += 1
        over = self._steps >= self._limit
        step: VecEnvStep = {
            "obs": (obs := task.observe(simulations)),
            "rewards": np.asarray(task.reward(simulations, actions, velocity), np.float64),
            "terminated": (terminated := task.terminated(simulations)),
            "truncated": over,
            "final_obs": obs,
        }
        (ended,) = (terminated | over).nonzero()
        if len(ended):
            self._begin(ended)
            step["obs"] = obs.copy()
            step["obs"][ended] = task.observe(simulations)[ended]
        return step

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the state of all envs; see :class:`rlox.protocols.StatefulVecEnv`."""
        return {
            "simulations": self._simulations.state.copy(),
            "position": self._position.copy(),
            "steps": self._steps.copy(),
            "streams": np.array([_words(stream) for stream in self._streams], np.uint64),
        }

    def set_state(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Restore the state of all envs.

        Raises:
            EnvError: the state belongs to another number of envs or another model.
        """
        expected = {name: value.shape for name, value in self.state().items()}
        got = {name: np.shape(value) for name, value in state.items()}
        if got != expected:
            raise EnvError(f"the state of MuJoCo's envs must have shapes {expected}, got {got}")
        self._simulations.restore(state["simulations"])
        self._position = np.array(state["position"])
        self._steps = np.array(state["steps"])
        for stream, words in zip(self._streams, state["streams"], strict=True):
            _set_words(stream, words)

    def close(self) -> None:
        """Do nothing: MuJoCo's threads end with the env."""

    def _begin(self, rows: npt.NDArray[Any]) -> None:
        qpos = np.repeat(self._qpos[None], len(rows), 0)
        qvel = np.repeat(self._qvel[None], len(rows), 0)
        for i, row in enumerate(rows):
            self._task.begin(self._streams[row], qpos[i], qvel[i])
        self._simulations.begin(rows, qpos, qvel)
        self._position[rows] = self._task.position(self._simulations)[rows]
        self._steps[rows] = 0


def make_vec_env(
    env_id: str,
    *,
    n_envs: int = 1,
    env_kwargs: Mapping[str, Any] | None = None,
    options: MujocoOptions | None = None,
) -> MujocoVecEnv:
    """Build the ``mujoco`` backend's vector env."""
    task, arguments = TASKS[env_id], dict(env_kwargs or {})
    known = [field.name for field in fields(task)]
    for name in arguments:
        if name not in known:
            raise EnvError(
                f"'{env_id}' takes no argument '{name}'{suggest(name, known)}; it takes "
                f"{', '.join(known)}"
            )
    return MujocoVecEnv(
        task(**arguments),
        n_envs,
        max_episode_steps=gymnasium.spec(env_id).max_episode_steps,
        threads=None if options is None else options.physics_threads,
    )


def unavailable() -> str:
    """Return the reason why MuJoCo's batches cannot be used here, or an empty string."""
    remedy = f'pip install "{requirement("mujoco")}" (with Python 3.11 or newer)'
    for name in ("mujoco-core", "mujoco"):  # 4.0 comes as two distributions
        try:
            found = version(name)
        except PackageNotFoundError:
            continue
        if int(found.split(".")[0]) >= 4:
            return ""
        return f"MuJoCo {found} has no batches of simulations, 4.0 has; {remedy}"
    return f"MuJoCo is not installed; {remedy}"


def _words(stream: np.random.Generator) -> list[int]:
    """Return the state of a PCG64 generator as six words of 64 bits."""
    state: Any = stream.bit_generator.state
    numbers = [state["state"]["state"], state["state"]["inc"]]
    halves = [half for number in numbers for half in divmod(number, WORD)]
    return [*halves, state["has_uint32"], state["uinteger"]]


def _set_words(stream: np.random.Generator, words: npt.NDArray[np.uint64]) -> None:
    high, low, inc_high, inc_low, has_uint32, uinteger = (int(word) for word in words)
    stream.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": high * WORD + low, "inc": inc_high * WORD + inc_low},
        "has_uint32": has_uint32,
        "uinteger": uinteger,
    }
