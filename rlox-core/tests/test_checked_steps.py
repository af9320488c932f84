"""Tests of :mod:`rlox.envs.validate`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TransformObservation
from rlox.envs.gymnasium import GymVecEnv
from rlox.envs.running import RunningEnvs
from rlox.envs.validate import require_vec_step
from rlox.errors import EnvError
from rlox.evaluation import evaluate
from rlox.protocols import VecEnv


class OneBuffer(gymnasium.Env[Any, Any]):
    """Counts its steps in the one array that it returns every time, and is cut after two."""

    observation_space: Any = spaces.Box(0.0, 9.0, (1,))
    action_space: Any = spaces.Discrete(2)

    def __init__(self, **returned: Any) -> None:
        self._buffer = np.zeros(1, np.float32)
        self._returned = returned

    def _obs(self) -> Any:
        return self._buffer

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """Begin at 0."""
        super().reset(seed=seed)
        self._buffer[:] = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        """Count."""
        self._buffer += 1
        step = {"reward": 1.0, "terminated": False, "truncated": bool(self._buffer[0] >= 2)}
        return self._obs(), *(step | self._returned).values(), {}


class Nested(OneBuffer):
    """The same array, within a dict."""

    observation_space: Any = spaces.Dict({"count": OneBuffer.observation_space})

    def _obs(self) -> Any:
        return {"count": self._buffer}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("env_class", [OneBuffer, Nested])
@pytest.mark.parametrize("how", ["sync", "async", "single"])
def test_final_observation_outlives_the_reset(env_class: Any, how: Any) -> None:
    """An env that fills one array with each observation does not overwrite the last one."""
    env = GymVecEnv(env_class()) if how == "single" else GymVecEnv(env_class, 2, vectorization=how)
    env.reset_all(0)
    for _ in range(2):
        step = env.step_all(np.zeros(env.n_envs, np.int64))
    obs, final_obs = step["obs"], step["final_obs"]
    if env_class is Nested:
        obs, final_obs = obs["count"], final_obs["count"]
    assert step["truncated"].all()
    assert (obs == 0).all()
    assert (final_obs == 2).all()
    env.close()


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            {"reward": np.array([1.0])},
            "the reward of OneBuffer.step must be one number, got ndarray of shape (1,) and dtype "
            "float64",
        ),
        (
            {"reward": None},
            "the reward of OneBuffer.step must be one number, got NoneType of shape () and dtype "
            "object",
        ),
        (
            {"terminated": 0.5},
            "the terminated of OneBuffer.step must be one truth value, got 0.5",
        ),
        (
            {"truncated": [True]},
            "the truncated of OneBuffer.step must be one truth value, got list of shape (1,) and "
            "dtype bool",
        ),
    ],
)
def test_wrong_step_of_an_env_names_what_is_wrong(returned: Any, message: str) -> None:
    """The class, the key, what was expected and what came."""
    env = GymVecEnv(lambda: OneBuffer(**returned))
    env.reset_all(0)
    with pytest.raises(EnvError) as caught:
        env.step_all(np.zeros(1, np.int64))
    assert str(caught.value) == message
    env.close()


@pytest.mark.parametrize("value", [np.float32(1.0), np.array(1.0), 1, True])
def test_numbers_of_any_kind_are_rewards(value: Any) -> None:
    """A reward need not be a float, nor a flag a bool."""
    env = GymVecEnv(lambda: OneBuffer(reward=value, terminated=np.int64(0)))
    env.reset_all(0)
    assert env.step_all(np.zeros(1, np.int64))["rewards"].tolist() == [1.0]
    env.close()


class Changed:
    """A vector env of two, of whose steps some keys are changed or, where none, left out."""

    n_envs = 2
    observation_space: Any = OneBuffer.observation_space
    action_space: Any = OneBuffer.action_space

    def __init__(self, **changes: Any) -> None:
        self._changes = changes

    def reset_all(self, seed: Any = None) -> Any:
        """Return zeros."""
        return np.zeros((2, 1), np.float32)

    def step_all(self, actions: Any) -> Any:
        """End both episodes."""
        obs, flags = self.reset_all(), np.ones(2, np.bool_)
        step = {"obs": obs, "rewards": np.ones(2), "terminated": flags, "truncated": ~flags}
        step |= {"final_obs": obs} | self._changes
        return {key: value for key, value in step.items() if value is not None}

    def close(self) -> None:
        """Nothing is held."""


class Constant:
    """Always takes the first action."""

    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        """Return zeros."""
        return np.zeros(len(obs), np.int64)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"truncated": None},
            "Changed.step_all must return a dict with obs, rewards, terminated, truncated, "
            "final_obs; it has no truncated",
        ),
        (
            {"rewards": 1.0},
            "rewards of Changed.step_all must be an array of shape (2,) of numbers, got float",
        ),
        (
            {"terminated": np.full(2, 0.5)},
            "terminated of Changed.step_all must be an array of shape (2,) of bool, got ndarray of "
            "shape (2,) and dtype float64",
        ),
        (
            {"final_obs": np.zeros(2, np.float32)},
            "final_obs of Changed.step_all must be an array of shape (2, 1) of numbers, got "
            "ndarray of shape (2,) and dtype float32",
        ),
    ],
)
def test_wrong_step_of_a_vector_env_names_what_is_wrong(changes: Any, message: str) -> None:
    """Training and evaluation both report it at the first step."""
    env = Changed(**changes)
    assert isinstance(env, VecEnv)
    session = RunningEnvs.make(env)
    assert session.obs is not None
    with pytest.raises(EnvError) as caught:
        session.step(np.zeros(2, np.int64))
    assert str(caught.value) == message
    with pytest.raises(EnvError) as caught:
        evaluate(Constant(), env, n_episodes=2)
    assert str(caught.value) == message


def test_nested_step_of_a_vector_env_is_checked_by_leaf() -> None:
    """A leaf that is missing or of another shape is named."""
    env: Any = GymVecEnv(Nested, 2)
    env.reset_all(0)
    step = env.step_all(np.zeros(2, np.int64))
    require_vec_step(step, env)
    for wrong in ({"count": np.zeros(2)}, {}, np.zeros((2, 1))):
        with pytest.raises(EnvError, match=r"^obs\['count'\] of GymVecEnv.step_all must be"):
            require_vec_step(step | {"obs": wrong}, env)
    env.close()


class OldStep(OneBuffer):
    """Returns what envs of gym did."""

    def step(self, action: Any) -> Any:
        """Count."""
        return self._obs(), 1.0, False, {}


class OldReset(OneBuffer):
    """Returns what envs of gym did."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """Begin."""
        return self._obs()


class Longer(OneBuffer):
    """Returns observations of another shape than its space says."""

    def _obs(self) -> Any:
        return np.zeros(3, np.float32)


class LongerLater(OneBuffer):
    """Does so from the first step on."""

    def step(self, action: Any) -> Any:
        """Count."""
        return np.zeros(3, np.float32), 1.0, False, False, {}


class MoreKeys(Nested):
    """Returns an observation with a key that its space does not have."""

    def _obs(self) -> Any:
        return super()._obs() | {"more": 0.0}


class NoKeys(Nested):
    """Returns an array where its space is a dict."""

    def _obs(self) -> Any:
        return self._buffer


class MoreKeysLater(Nested):
    """Returns one more key from the first step on."""

    def step(self, action: Any) -> Any:
        """Count."""
        return {"count": self._buffer, "more": 0.0}, 1.0, False, False, {}


def doubled(observe: Any) -> Any:
    """Return a maker of an env in a wrapper that says it observes two numbers."""
    space = spaces.Box(0.0, 9.0, (2,))
    return lambda: TransformObservation(OneBuffer(), observe, space)


def test_observations_of_a_wrapper_are_those_of_its_own_space() -> None:
    """A wrapper may observe something else than its env."""
    env = GymVecEnv(doubled(lambda obs: obs.repeat(2)), 2)
    assert env.reset_all(0).tolist() == [[0, 0], [0, 0]]
    assert env.step_all(np.zeros(2, np.int64))["obs"].tolist() == [[1, 1], [1, 1]]
    env.close()
    env = GymVecEnv(doubled(lambda obs: obs), 2)
    with pytest.raises(EnvError) as caught:
        env.reset_all(0)
    assert str(caught.value) == (
        "TransformObservation.reset returned an observation of shape (1,), expected (2,); change "
        "it or the env's observation_space"
    )
    env.close()


@pytest.mark.parametrize(
    ("env_class", "message"),
    [
        (OldStep, r"OldStep.step must return \(obs, reward, .*\), got tuple of 4; "),
        (OldReset, r"OldReset.reset must return \(obs, info\), got ndarray; gymnasium"),
        (Longer, r"Longer.reset returned an observation of shape \(3,\), expected \(1,\)"),
        (LongerLater, r"LongerLater.step returned an observation of shape \(3,\), expected"),
        (
            MoreKeys,
            r"MoreKeys.reset returned an observation that is not nested as its space: expected "
            r"the keys \['count'\], got \['count', 'more'\]; change it or the env's observation_sp",
        ),
        (NoKeys, r"NoKeys.reset returned .* nested as its space: expected .* got ndarray; change"),
        (MoreKeysLater, r"MoreKeysLater.step returned .* the keys \['count'\], got .*'more'"),
    ],
)
def test_what_is_no_reset_or_step_is_reported_with_the_env(env_class: Any, message: str) -> None:
    """NumPy's errors over it would name neither the env nor what was expected."""
    env = GymVecEnv(env_class, 2)

    def begin() -> None:
        env.reset_all(0)
        env.step_all(np.zeros(2, np.int64))

    with pytest.raises(EnvError, match=rf"^{message}"):
        begin()
    env.close()
