"""Probes: independent records of a plugin's behaviour for the checks."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import gymnasium
import numpy as np
import numpy.typing as npt
from rlox.callbacks import Callback
from rlox.errors import ConfigError
from rlox.logging import LoggerCallback, Metrics
from rlox.protocols import MaskingVecEnv, StatefulVecEnv, VecEnv, VecEnvStep

EPISODE_MEANS = ("mean_reward", "mean_episode_length")
"""The only metrics that may be NaN, until an episode has finished."""

P = ParamSpec("P")
R = TypeVar("R")


def check(function: Callable[P, R]) -> Callable[P, R]:
    """Turn every failure of a check into an AssertionError that names the check and its subject."""

    @functools.wraps(function)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        subject = f"{function.__name__}('{args[0] if args else kwargs.get('name')}')"
        try:
            return function(*args, **kwargs)
        except AssertionError as error:
            raise AssertionError(f"{subject}: {error}") from error
        except Exception as error:
            raise AssertionError(f"{subject}: {type(error).__name__}: {error}") from error

    return named


def require(condition: object, message: str) -> None:
    """Raise AssertionError unless ``condition`` holds; unlike assert, also under ``python -O``."""
    if not condition:
        raise AssertionError(message)


def require_same(left: Any, right: Any, message: str) -> None:
    """Raise AssertionError with the first difference, unless two states are equal."""
    difference = first_difference(left, right)
    require(difference is None, f"{message}: {difference}")


@contextmanager
def refused(*words: str) -> Iterator[None]:
    """Require that the block raises a ConfigError whose text has the words."""
    try:
        yield
    except ConfigError as error:
        missing = [word for word in words if word not in str(error)]
        require(not missing, f"the error must name {', '.join(missing)}, got: {error}")
        return
    raise AssertionError(f"{words[0]} was accepted")


def require_rows(what: str, rows: Any, size: int, space: gymnasium.Space[Any]) -> None:
    """Require (size, ...) rows of the space's dtype, each in the space."""
    _require_array(what, rows, (size, *(space.shape or ())), space)
    outside = [row for row in rows if not space.contains(row)]
    require(not outside, f"{what} must lie in {space}, got {outside[:1]}")


def require_actions(algorithm: Any, obs: Any, space: gymnasium.Space[Any]) -> None:
    """Require actions of the space for observations (B, ...), together and alone, in its dtype."""
    batch = algorithm.predict(obs)
    require_rows("actions", batch, len(obs), space)
    require_rows("actions", algorithm.predict(obs[:1]), 1, space)
    require_rows("actions", algorithm.predict(obs, deterministic=False), len(obs), space)
    for i in (0, len(obs) - 1):
        action = algorithm.predict(obs[i])
        if isinstance(space, gymnasium.spaces.Discrete):
            kind = type(action).__name__
            require(type(action) is int, f"one action must be an int, got {kind}")
        else:
            _require_array("one action", action, space.shape or (), space)
        require(space.contains(action), f"one action must lie in {space}, got {action!r}")
        require(
            np.allclose(action, batch[i], atol=1e-4),
            f"one observation gives {action}, the same one in a batch {batch[i]}",
        )


def _require_array(
    what: str, array: Any, shape: tuple[int, ...], space: gymnasium.Space[Any]
) -> None:
    kind = type(array).__name__
    require(isinstance(array, np.ndarray), f"{what} must be a NumPy array, got {kind}")
    require(array.shape == shape, f"{what} must have shape {shape}, got {array.shape}")
    require(array.dtype == space.dtype, f"{what} must be {space.dtype}, got {array.dtype}")


def require_seeded(
    build: Callable[[int], Any], act: Callable[[Any], object], steps: int = 1
) -> None:
    """Require that a seed fixes the trained state, also of one that acts, and that seeds differ.

    Args:
        build: returns a new algorithm with a seed.
        act: lets an algorithm act between its two trainings.
        steps: length of each training.
    """

    def trained(seed: int, acts: bool = False) -> dict[str, Any]:
        with build(seed) as algorithm:
            for _ in range(2):
                algorithm.train(steps)
                if acts:
                    act(algorithm)
            state: dict[str, Any] = algorithm.state_dict()
        return state

    first = trained(1)
    require_same(
        first, trained(1), "draw from self.streams only: two trainings with the same seed differ"
    )
    require_same(
        first,
        trained(1, acts=True),
        "predict needs a stream of its own: predict(deterministic=False) changes the training",
    )
    require(
        first_difference(first, trained(2)) is not None,
        "trainings with the seeds 1 and 2 end in the same state; the seed is ignored",
    )


def run_checks(
    checks: Iterable[Callable[..., str | None]], /, *args: Any, **kwargs: Any
) -> dict[str, str]:
    """Run checks with the same arguments; return the inapplicable ones with their reasons."""
    reasons = {run.__name__: run(*args, **kwargs) for run in checks}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def first_difference(left: Any, right: Any, path: str = "") -> str | None:
    """Return the place of the first difference of two nested states, or ``None`` for equal bits.

    Lists equal tuples, and NumPy's scalars equal Python's, because a checkpoint keeps neither
    distinction; a NaN equals itself.
    """
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        if set(left) != set(right):
            return f"'{path}' has the keys {sorted(left)} and {sorted(right)}"
        children = [(str(key), left[key], right[key]) for key in left]
    elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        if len(left) != len(right):
            return f"'{path}' has {len(left)} and {len(right)} items"
        children = [(str(i), *pair) for i, pair in enumerate(zip(left, right, strict=True))]
    elif isinstance(left, float) or hasattr(left, "__array__"):
        a, b = np.asarray(left), np.asarray(right)
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"'{path}' is {a.dtype} {a.shape} and {b.dtype} {b.shape}"
        return None if a.tobytes() == b.tobytes() else f"the values of '{path}'"
    else:
        return None if left == right else f"'{path}' is {left!r} and {right!r}"
    differences = (first_difference(a, b, f"{path}.{k}" if path else k) for k, a, b in children)
    return next((difference for difference in differences if difference is not None), None)


class ProbeVecEnv:
    """Passes everything on to a vector env and counts.

    Args:
        env: vector env to step.
    """

    def __init__(self, env: VecEnv) -> None:
        self._env, self.n_envs = env, env.n_envs
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self._running = np.zeros(env.n_envs)
        self.vector_steps = 0
        """Calls of :meth:`step_all`."""
        self.returns: list[float] = []
        """Undiscounted returns of all finished episodes."""

    @property
    def env_steps(self) -> int:
        """Env steps: N for each vector step."""
        return self.vector_steps * self.n_envs

    @property
    def mean_return(self) -> float:
        """Mean return of the last 100 finished episodes; NaN before the first."""
        return float(np.mean(self.returns[-100:])) if self.returns else float("nan")

    def reset_all(self, seed: int | Sequence[int] | None = None) -> Any:
        """Reset all envs."""
        self._running[:] = 0.0
        return self._env.reset_all(seed)

    def action_masks(self) -> npt.NDArray[np.bool_] | None:
        """Return the env's masks, if it has any."""
        return self._env.action_masks() if isinstance(self._env, MaskingVecEnv) else None

    def step_all(self, actions: Any) -> VecEnvStep:
        """Step all envs and count."""
        step = self._env.step_all(actions)
        self.vector_steps += 1
        self._running += step["rewards"]
        ended = step["terminated"] | step["truncated"]
        self.returns.extend(self._running[ended].tolist())
        self._running[ended] = 0.0
        return step

    def close(self) -> None:
        """Close the env."""
        self._env.close()


class SnapshotVecEnv(ProbeVecEnv):
    """A probe with a state for envs without one: a copy of the env kept in memory.

    Two probes that share ``snapshots`` restore each other's states. A state's only content is the
    number of vector steps, so the states of an interrupted and of a straight run compare equal.

    Args:
        env: vector env to step; ``copy.deepcopy`` must work on it.
        snapshots: the copies by number of vector steps.
    """

    def __init__(self, env: VecEnv, snapshots: dict[int, VecEnv]) -> None:
        super().__init__(env)
        self._snapshots = snapshots

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Keep a copy of the env and return its key."""
        self._snapshots[self.vector_steps] = copy.deepcopy(self._env)
        return {"vector_steps": np.array(self.vector_steps)}

    def set_state(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go on from a kept copy."""
        self.vector_steps = int(state["vector_steps"])
        self._env = copy.deepcopy(self._snapshots[self.vector_steps])


class StatefulProbeVecEnv(ProbeVecEnv):
    """A probe of an env that exposes its state."""

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the env's state."""
        return self._env.state()  # type: ignore[attr-defined,no-any-return]

    def set_state(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Restore the env's state."""
        self._env.set_state(state)  # type: ignore[attr-defined]


def probe(env: VecEnv, snapshots: dict[int, VecEnv]) -> ProbeVecEnv:
    """Return a probe of ``env``, with a state if possible."""
    if isinstance(env, StatefulVecEnv):
        return StatefulProbeVecEnv(env)
    try:
        copy.deepcopy(env)
    except Exception:  # any library's objects may be inside
        return ProbeVecEnv(env)
    return SnapshotVecEnv(env, snapshots)


class Recorder(Callback):
    """Keeps the events of a training, and ends one that makes no progress.

    Args:
        stop_at: env steps at which to ask for a stop; ``None`` never does.
    """

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.events: list[str] = []
        self.steps: list[int] = []
        """``step`` of every :meth:`on_step`."""
        self.iteration_steps: list[int] = []
        """``step`` of every :meth:`on_iteration_end`."""

    def on_training_start(self, **kwargs: Any) -> None:
        """Record the start."""
        self.events.append("on_training_start")

    def on_step(self, **kwargs: Any) -> bool:
        """Record the step; False from ``stop_at`` on."""
        self.events.append("on_step")
        self.steps.append(kwargs["step"])
        return self.stop_at is None or kwargs["step"] < self.stop_at

    def on_iteration_end(self, **kwargs: Any) -> None:
        """Record the iteration; fail without env steps, which the runner would repeat forever."""
        before = self.iteration_steps[-1] if self.iteration_steps else 0
        require(
            kwargs["step"] > before,
            "iterate() reported no env steps; call hooks.env_step(N) after each vector step",
        )
        self.events.append("on_iteration_end")
        self.iteration_steps.append(kwargs["step"])

    def on_training_end(self, **kwargs: Any) -> None:
        """Record the end."""
        self.events.append("on_training_end")


class SaveOnce(Callback):
    """Saves the algorithm at the end of the first iteration.

    Args:
        path: the checkpoint.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_iteration_end(self, **kwargs: Any) -> None:
        """Save."""
        if not self.path.exists():
            kwargs["algo"].save(self.path)


class RowRecorder(LoggerCallback):
    """Keeps the training rows that a logger is given."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Keep a row."""
        self.rows.append((step, dict(metrics)))


class ProbeGroup:
    """The probes of an algorithm with actors, one for each; together they count as one.

    Args:
        probes: of equal size.
    """

    def __init__(self, probes: Sequence[ProbeVecEnv]) -> None:
        self.probes = list(probes)
        first = self.probes[0]
        self.n_envs = first.n_envs
        self.observation_space, self.action_space = first.observation_space, first.action_space
        self.reset_all = first.reset_all

    @property
    def vector_steps(self) -> int:
        """Calls of ``step_all`` of all probes."""
        return sum(each.vector_steps for each in self.probes)

    @property
    def env_steps(self) -> int:
        """Env steps of all probes."""
        return sum(each.env_steps for each in self.probes)

    @property
    def returns(self) -> list[float]:
        """Undiscounted returns of all finished episodes, unordered."""
        return [value for each in self.probes for value in each.returns]

    @property
    def mean_return(self) -> float:
        """Mean return of all finished episodes; NaN before the first."""
        return float(np.mean(self.returns)) if self.returns else float("nan")
