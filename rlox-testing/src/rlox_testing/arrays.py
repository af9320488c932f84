"""Conformance checks of arrays from an env: reused arrays, invalid numbers, few rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces
from rlox.errors import ConfigError, SpaceError, WorkerLostError
from rlox.spaces.rows import ActionRows, map_nested

from rlox_testing.cases import CARTPOLE, Case, open_case
from rlox_testing.probes import EPISODE_MEANS, ProbeGroup, check, require, require_same


class RewritingVecEnv:
    """Wrapper whose next step or reset overwrites all arrays that it returned before.

    It overwrites the given actions too. It wraps a vector env of one agent or of several, and
    passes on all other members.

    Args:
        env: vector env to step.
        rewrites: overwrite arrays; if false, each call returns new ones.
        masked: forbid one action, a different one in each step.
    """

    def __init__(self, env: Any, *, rewrites: bool = True, masked: bool = False) -> None:
        self._env, self._rewrites = env, rewrites
        self._mask_size = ActionRows(env.action_space).mask_size if masked else 0
        self._n_steps = 0
        self._lent: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        """Return a member of the env; results of its methods are overwritten too."""
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "action_masks" and self._mask_size:
            return self._forbid_one
        member = getattr(self._env, name)
        return (lambda: self._lend(member())) if name in ("action_masks", "state") else member

    def _forbid_one(self) -> npt.NDArray[np.bool_]:
        masks = np.ones((self._env.n_envs, self._mask_size), np.bool_)
        masks[:, self._n_steps % self._mask_size] = False
        return self._lend(masks)  # type: ignore[no-any-return]

    def reset_all(self, seed: Any = None) -> Any:
        """Reset all envs."""
        self._overwrite(self._lent)
        return self._lend(self._env.reset_all(seed))

    def step_all(self, actions: Any) -> Any:
        """Step all envs."""
        self._overwrite(self._lent)
        self._n_steps += 1
        step = self._lend(self._env.step_all(actions))
        self._overwrite([actions])
        return step

    def _lend(self, value: Any) -> Any:
        self._lent.append(map_nested(lambda one: None if one is None else np.array(one), value))
        return self._lent[-1]

    def _overwrite(self, values: list[Any]) -> None:
        while self._rewrites and values:
            map_nested(_overwrite, values.pop())


def _overwrite(array: Any) -> None:
    if array is not None and array.flags.writeable:
        array[...] = np.nan if array.dtype.kind == "f" else ~array


class ScriptedVecEnv:
    """N envs that show zeros, and end their episodes every fourth step.

    Args:
        n_envs: N.
        observation_space: of one env, not nested.
        action_space: of one env.
        odd: a number in the last env's observation at one time; it sets the dtype of all.
        at: that time: 0, the reset, or a step.
        loses: whether the last env is lost in every third step.
    """

    def __init__(
        self,
        n_envs: int,
        observation_space: Space[Any],
        action_space: Space[Any],
        *,
        odd: float = 0,
        at: int = 0,
        loses: bool = False,
    ) -> None:
        self.n_envs = n_envs
        self.observation_space, self.action_space = observation_space, action_space
        self._odd, self._at, self._loses = odd, at, loses
        self._n_steps = 0

    def reset_all(self, seed: Any = None) -> npt.NDArray[Any]:
        """Reset all envs."""
        self._n_steps = 0
        return self._look()

    def step_all(self, actions: Any) -> dict[str, Any]:
        """Step all envs, which are paid 0 and 1 in turn."""
        self._n_steps += 1
        lost = (np.arange(self.n_envs) == self.n_envs - 1) & (self._n_steps % 3 == 0) & self._loses
        obs = self._look()
        return {
            "obs": obs,
            "rewards": np.full(self.n_envs, float(self._n_steps % 2)),
            "terminated": np.full(self.n_envs, self._n_steps % 4 == 0) & ~lost,
            "truncated": lost,
            "final_obs": obs,
            "lost": lost,
        }

    def _look(self) -> npt.NDArray[Any]:
        shape = self.n_envs, *(self.observation_space.shape or ())
        obs = np.zeros(shape, np.asarray(self._odd).dtype)
        if self._n_steps == self._at:
            obs.reshape(self.n_envs, -1)[-1, 0] = self._odd
        return obs

    def close(self) -> None:
        """Free nothing."""


@check
def check_rewritten_arrays(name: str, env: Any = CARTPOLE, **arguments: Any) -> None:
    """Check that an env may write into all arrays that it returned before, and into the actions."""

    def trained(case: Case, *, rewrites: bool, masked: bool) -> dict[str, Any]:
        watched: Any = case.probe()
        wrapped = [
            RewritingVecEnv(one, rewrites=rewrites, masked=masked)
            for one in getattr(watched, "probes", [watched])
        ]
        if isinstance(watched, ProbeGroup):
            watched.probes[:] = wrapped  # type: ignore[assignment]
        else:
            (watched,) = wrapped
        algorithm = case.build(watched)
        for _ in range(2):
            algorithm.train(1)
        return algorithm.state_dict()

    with open_case(name, env, arguments) as case:
        masked = True
        try:
            fresh = trained(case, rewrites=False, masked=masked)
        except SpaceError:  # it takes no masks
            masked = False
            fresh = trained(case, rewrites=False, masked=masked)
        require_same(
            fresh,
            trained(case, rewrites=True, masked=masked),
            "copy arrays that are kept beyond the next step; an env that writes all its steps into "
            "the same arrays is learnt from otherwise",
        )


BYTES = spaces.Box(0, 255, (4,), np.uint8)

ODD_NUMBERS: tuple[tuple[Space[Any], float, int], ...] = (
    (BYTES, 0.7, 1),
    (BYTES, 300, 0),
    (spaces.Discrete(4), 1.7, 0),
    (spaces.Discrete(4), 7, 1),
    (spaces.MultiDiscrete([3, 4]), 5, 1),
)
"""Spaces, a number outside each, and the time at which it appears."""


@check
def check_odd_numbers(name: str, env: Any = CARTPOLE, **arguments: Any) -> str | None:
    """Check that numbers that a cast or an encoding would change are refused by name."""
    with open_case(name, env, arguments) as case:
        watched, known = case.probe(), type(case.config).model_fields
        plain = {key: False for key in ("normalize_observations",) if key in known}  # of floats
        left_out = []
        for space, odd, at in ODD_NUMBERS:
            given: Any = ScriptedVecEnv(watched.n_envs, space, watched.action_space, odd=odd, at=at)
            if isinstance(watched, ProbeGroup):
                given = [given] * len(watched.probes)
            try:
                algorithm = case.build(given, **plain)
            except SpaceError:
                left_out.append(str(space))
                continue
            obs = np.full(space.shape or (), odd)
            for error in (_refusal(algorithm.train, 1), _refusal(algorithm.predict, obs)):
                require(
                    str(space) in error and str(odd) in error,
                    f"an error must say that {space} does not hold {odd}, got {error or 'none'}",
                )
    return f"it takes no observations of {', '.join(left_out)}" if left_out else None


def _refusal(act: Any, argument: Any) -> str:
    """Return the text of an error; an EnvError is a ValueError."""
    try:
        act(argument)
    except ValueError as error:
        return str(error)
    return ""


@check
def check_few_rows(name: str, env: Any = CARTPOLE, **arguments: Any) -> str | None:
    """Check that metrics are finite if lost envs leave few rows, and one row in the last batch."""
    with open_case(name, env, arguments) as case:
        watched = case.probe()
        few = {"n_envs": 2, "n_steps": 5, "batch_size": 4}
        if getattr(case.config, "recurrent", "none") != "none":
            few["batch_size"] = 5  # whole sequences
        known = type(case.config).model_fields
        options: Any = {
            key: value for key, value in few.items() if "n_steps" in known and key in known
        }
        box = spaces.Box(-1.0, 1.0, (3,))
        n_envs = options.get("n_envs") or watched.n_envs
        given: Any = ScriptedVecEnv(n_envs, box, watched.action_space, loses=True)
        if isinstance(watched, ProbeGroup):
            given, options["n_actors"] = [given], 1
        try:
            algorithm = case.build(given, **options)
            metrics: Any = [algorithm.train(1) for _ in range(4)][-1]
        except (ConfigError, WorkerLostError) as error:
            return str(error)
        for key, value in metrics.items():
            require(math.isfinite(value) or key in EPISODE_MEANS, f"of few rows '{key}' is {value}")
    return None
