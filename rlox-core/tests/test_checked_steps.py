"""Tests of :mod:`rlox.envs.gymnasium`."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TransformObservation
from gymnasium.wrappers.vector import NormalizeObservation, NormalizeReward
from rlox.envs import gymnasium as gymnasium_envs
from rlox.envs.evaluation import evaluate
from rlox.envs.gymnasium import GymVecEnv, _is_endless, require_vec_step
from rlox.envs.running import RunningEnvs
from rlox.errors import EnvError
from rlox.protocols import VecEnv


class OneBuffer(gymnasium.Env):
    """Counts its steps in the one array that it returns every time, and is cut after two."""

    observation_space = spaces.Box(0.0, 9.0, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, **returned):
        self._buffer = np.zeros(1, np.float32)
        self._returned = returned

    def _obs(self):
        return self._buffer

    def reset(self, *, seed=None, options=None):
        """Begin at 0."""
        super().reset(seed=seed)
        self._buffer[:] = 0
        return self._obs(), {}

    def step(self, action):
        """Count."""
        self._buffer += 1
        step = {"reward": 1.0, "terminated": False, "truncated": bool(self._buffer[0] >= 2)}
        return self._obs(), *(step | self._returned).values(), {}


class Nested(OneBuffer):
    """The same array, within a dict."""

    observation_space = spaces.Dict({"count": OneBuffer.observation_space})

    def _obs(self):
        return {"count": self._buffer}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("env_class", "how"),
    [(OneBuffer, "sync"), (Nested, "sync"), (Nested, "async"), (OneBuffer, "single")],
)
def test_final_observation_outlives_the_reset(env_class, how):
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


@pytest.mark.parametrize("value", [np.float32(1.0), np.array(1.0), 1, True])
def test_numbers_of_any_kind_are_rewards(value):
    """A reward need not be a float, nor a flag a bool."""
    env = GymVecEnv(lambda: OneBuffer(reward=value, terminated=np.int64(0)))
    env.reset_all(0)
    assert env.step_all(np.zeros(1, np.int64))["rewards"].tolist() == [1.0]
    env.close()


class Changed:
    """A vector env of two, of whose steps some keys are changed or, where none, left out."""

    n_envs = 2
    observation_space = OneBuffer.observation_space
    action_space = OneBuffer.action_space

    def __init__(self, **changes):
        self._changes = changes

    def reset_all(self, seed=None):
        """Return zeros."""
        return np.zeros((2, 1), np.float32)

    def step_all(self, actions):
        """End both episodes."""
        obs, flags = self.reset_all(), np.ones(2, np.bool_)
        step = {"obs": obs, "rewards": np.ones(2), "terminated": flags, "truncated": ~flags}
        step |= {"final_obs": obs} | self._changes
        return {key: value for key, value in step.items() if value is not None}

    def close(self):
        """Nothing is held."""


class Constant:
    """Always takes the first action."""

    def predict(self, obs, deterministic=True):
        """Return zeros."""
        return np.zeros(len(obs), np.int64)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"truncated": None},
         "Changed.step_all in step 1 must return a dict with obs, rewards, terminated, "
         "truncated, final_obs; it has no truncated"),
        ({"rewards": 1.0},
         "rewards of Changed.step_all in step 1 must be an array of shape (2,) of numbers, got "
         "float"),
        ({"terminated": np.full(2, 0.5)},
         "terminated of Changed.step_all in step 1 must be an array of shape (2,) of bool, got "
         "ndarray of shape (2,) and dtype float64"),
        ({"final_obs": np.zeros(2, np.float32)},
         "final_obs of Changed.step_all in step 1 must be an array of shape (2, 1) of numbers, "
         "got ndarray of shape (2,) and dtype float32"),
    ],
)  # fmt: skip
def test_wrong_step_of_a_vector_env_names_what_is_wrong(changes, message):
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


def test_nested_step_of_a_vector_env_is_checked_by_leaf():
    """A leaf that is missing or of another shape is named."""
    env = GymVecEnv(Nested, 2)
    env.reset_all(0)
    step = env.step_all(np.zeros(2, np.int64))
    require_vec_step(step, env)
    for wrong in ({"count": np.zeros(2)}, {}, np.zeros((2, 1))):
        with pytest.raises(EnvError, match=r"^obs\['count'\] of GymVecEnv.step_all must be"):
            require_vec_step(step | {"obs": wrong}, env)
    env.close()


class OldReset(OneBuffer):
    """Returns what envs of gym did."""

    def reset(self, *, seed=None, options=None):
        """Begin."""
        return self._obs()


class Longer(OneBuffer):
    """Returns observations of another shape than its space says."""

    def _obs(self):
        return np.zeros(3, np.float32)


class MoreKeys(Nested):
    """Returns an observation with a key that its space does not have."""

    def _obs(self):
        return super()._obs() | {"more": 0.0}


class NoKeys(Nested):
    """Returns an array where its space is a dict."""

    def _obs(self):
        return self._buffer


class MoreKeysLater(Nested):
    """Returns one more key from the first step on."""

    def step(self, action):
        """Count."""
        return {"count": self._buffer, "more": 0.0}, 1.0, False, False, {}


class Grows(OneBuffer):
    """Has another space after a reset."""

    def reset(self, **options):
        """Begin."""
        self.observation_space = spaces.Box(0.0, 9.0, (2,))
        return super().reset(**options)


class HoldsItself(OneBuffer):
    """Returns an info that is part of itself."""

    def step(self, action):
        """Count."""
        *rest, info = super().step(action)
        info["last"] = info
        return *rest, info


class OfBytes(OneBuffer):
    """Observes what cannot be copied."""

    def _obs(self):
        return memoryview(self._buffer)


def doubled(observe):
    """Return a maker of an env in a wrapper that says it observes two numbers."""
    space = spaces.Box(0.0, 9.0, (2,))
    return lambda: TransformObservation(OneBuffer(), observe, space)


def test_observations_of_a_wrapper_are_those_of_its_own_space():
    """A wrapper may observe something else than its env."""
    env = GymVecEnv(doubled(lambda obs: obs.repeat(2)), 2)
    assert env.reset_all(0).tolist() == [[0, 0], [0, 0]]
    assert env.step_all(np.zeros(2, np.int64))["obs"].tolist() == [[1, 1], [1, 1]]
    env.close()
    env = GymVecEnv(doubled(lambda obs: obs), 2)
    with pytest.raises(EnvError) as caught:
        env.reset_all(0)
    assert str(caught.value) == (
        "TransformObservation.reset returned an observation of shape (1,), expected (2,) in a "
        "reset of env 0; change it or the env's observation_space"
    )
    env.close()


@pytest.mark.parametrize(
    ("env_class", "message"),
    [
        (OldReset,
         r"OldReset.reset must return \(obs, info\), got ndarray in a reset of env 0; gymnasium"),
        (Longer, r"Longer.reset returned an observation of shape \(3,\), expected \(1,\)"),
        (MoreKeys,
         r"MoreKeys.reset returned an observation that is not nested as its space in a reset of "
         r"env 0: expected the keys \['count'\], got \['count', 'more'\]; change"),
        (NoKeys, r"NoKeys.reset returned .* nested as its space in a reset of .* got ndarray"),
        (Grows, r"Grows.observation_space was .* in a reset of env 0; it must not change"),
        (HoldsItself, r"the info of HoldsItself.step holds itself in step 1 of env 0"),
        (OfBytes, r"OfBytes.reset returned an observation that is a memoryview"),
        (MoreKeysLater, r"MoreKeysLater.step returned .* the keys \['count'\], got .*'more'"),
    ],
)  # fmt: skip
def test_what_is_no_reset_or_step_is_reported_with_the_env(env_class, message):
    """NumPy's errors over it would name neither the env nor what was expected."""
    env = GymVecEnv(env_class, 2)

    def begin():
        env.reset_all(0)
        env.step_all(np.zeros(2, np.int64))

    with pytest.raises(EnvError, match=rf"^{message}"):
        begin()
    env.close()


class BreaksLater(OneBuffer):
    """Returns what it should, until in its fifth step it does not."""

    def __init__(self, part, value):
        super().__init__(truncated=False)
        self._part, self._value, self._steps = part, value, 0

    def step(self, action):
        """Count."""
        self._steps += 1
        returned = [self._obs(), 1.0, False, False, {}]
        if self._steps == 5:
            if self._part < 0:
                return self._value
            returned[self._part] = self._value
        return tuple(returned)


BROKEN = [
    (-1, None, r"BreaksLater.step must return \(obs, reward, .*\), got NoneType{where}; "),
    (-1, (1, 2), r"BreaksLater.step must return \(obs, .*\), got tuple of 2{where}; "),
    (0, None, r"BreaksLater.step returned .* of shape \(\), expected \(1,\){where}; change"),
    (0, np.zeros(2, np.float32), r".* an observation of shape \(2,\), expected \(1,\){where}; "),
    (0, ["far"], r".* an observation of dtype <U3, expected float32: list{where}; change"),
    (0, [[0.0], [1.0, 2.0]], r".* that is not an array, expected shape \(1,\): list{where}; "),
    (1, None, r"the reward of BreaksLater.step must be one number, got None{where}$"),
    (1, "1.0", r"the reward of BreaksLater.step must be one number, got '1.0'{where}$"),
    (1, np.ones(3), r"the reward .* number, got ndarray of shape \(3,\) and dtype float64{where}$"),
    (2, "yes", r"the terminated of BreaksLater.step must be one truth value, got 'yes'{where}$"),
    (2, None, r"the terminated .* must be one truth value, got None{where}$"),
    (3, 2, r"the truncated .* must be one truth value, got 2{where}$"),
    (4, None, r"the info of BreaksLater.step must be a dict, got None{where}$"),
]


@pytest.mark.parametrize(("part", "value", "message"), BROKEN)
def test_a_later_step_is_checked_as_the_first_is(part, value, message):
    """The error has the env's number, its step, what was expected and what came."""
    good = BreaksLater(0, np.zeros(1, np.float32))
    envs = iter([good, BreaksLater(part, value)])
    env = GymVecEnv(lambda: next(envs), 2)
    env.reset_all(0)
    for _ in range(4):
        env.step_all(np.zeros(2, np.int64))
    with pytest.raises(EnvError, match="^" + message.format(where=" in step 5 of env 1")):
        env.step_all(np.zeros(2, np.int64))
    env.close()


def test_a_worker_process_reports_its_env():
    """As one in this process does."""
    part, value, message = BROKEN[3]
    env = GymVecEnv(BreaksLater, 1, vectorization="async",
                    env_kwargs={"part": part, "value": value})  # fmt: skip
    env.reset_all(0)
    for _ in range(4):
        env.step_all(np.zeros(1, np.int64))
    with pytest.raises(EnvError, match="^" + message.format(where=" in step 5 of env 0")):
        env.step_all(np.zeros(1, np.int64))
    env.close()


def test_what_holds_itself_is_found_in_lists_and_shared_dicts_are_walked_once():
    """The number of ways to a dict that is shared on many levels is beyond counting."""
    info = {"list": []}
    info["list"].append([info])
    assert _is_endless(info)
    shared = {}
    for _ in range(40):
        shared = {"left": shared, "right": [shared]}
    assert not _is_endless(shared)


def test_a_later_step_of_a_vector_env_is_checked_too():
    """In training, and in evaluation."""
    env = Changed()
    session = RunningEnvs.make(env)
    assert session.obs is not None
    session.step(np.zeros(2, np.int64))
    env._changes = {"rewards": np.array(["1", "2"])}
    with pytest.raises(EnvError, match=r"^rewards of Changed.step_all in step 2 must be an array"):
        session.step(np.zeros(2, np.int64))
    env._changes = {"terminated": np.ones(2)}
    with pytest.raises(EnvError, match=r"^terminated of Changed.step_all in step 3 .* of bool"):
        session.step(np.zeros(2, np.int64))


BYTES = spaces.Box(0, 255, (2,), np.uint8)
ODD = [
    (BYTES, np.full(2, 0.7), 0.7),
    (BYTES, [300, 0], 300),
    (spaces.Discrete(4), 1.7, 1.7),
    (spaces.Discrete(4, start=2), 1, 1),
    (spaces.MultiDiscrete([3, 4]), [0, 4], 4),
    (spaces.MultiBinary(2), np.array([300, 0]), 300),
    (spaces.Box(0, 3, (2,), np.int32), [0, 4], 4),
    (spaces.Box(0, 254, (999,), np.uint8), np.full(999, 255, np.uint8), 255),
]


class Shows(OneBuffer):
    """Shows a sample of its space, and something else at one time: 0 is the reset."""

    def __init__(self, space, odd, at):
        super().__init__()
        self.observation_space, self._odd, self._at = space, odd, at

    def _obs(self):
        return self._odd if self._buffer[0] == self._at else self.observation_space.sample()


def play(session):
    """Reset and step to the end of the episodes."""
    assert session.obs is not None
    for _ in range(2):
        session.step(np.zeros(2, np.int64))


TREE = spaces.Dict(
    b=spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (2,))]), a=spaces.Discrete(2)
)


def tree(choice=1, box=(0.0, 1.0), **more):
    """Return an observation of ``TREE`` in Python's numbers and one array."""
    return {"a": np.int64(1), "b": (choice, np.array(box)), **more}


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        (tree(box=(0.0, 1.0, 2.0)), r"observation 'b.1' of shape \(3,\), .* in step 2 of env 0"),
        (tree(choice=3), "observation 'b.0' with 3, which"),
        (tree(more=0), "in step 2 of env 0: expected the keys .*, got .*'more'"),
        ({"a": 1}, r"expected the keys .*, got \['a'\]"),
        ({"a": 1, "b": {0: 1, 1: np.zeros(2)}}, "not nested as its space"),
    ],
)
def test_leaves_of_nested_observations_are_compared_in_every_step(monkeypatch, obs, message):
    """The many that need no cast take no longer look."""
    env = GymVecEnv(lambda: Shows(TREE, tree(), 1), 1)
    env.reset_all(0)
    shown = env._env.envs[0].unwrapped
    with monkeypatch.context() as patched:
        patched.delattr(gymnasium_envs, "_require_returned")
        env.step_all(np.zeros(1, np.int64))
    shown._buffer[:], shown._odd = 0, obs
    with pytest.raises(EnvError, match=message):
        env.step_all(np.zeros(1, np.int64))
    env.close()


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("space", "odd", "number"), ODD)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_numbers_that_a_space_does_not_hold_are_refused(space, odd, number, at, nested):
    """The error has the env, the space and the number, in a reset, a step and a last one."""
    message = f"{number}, which {space} does not hold"
    if nested:
        space, odd = spaces.Tuple([space, BYTES]), (odd, [0, 0])
    session = RunningEnvs.make(lambda: Shows(space, odd, at), 2)
    with pytest.raises(EnvError) as caught:
        play(session)
    assert message in str(caught.value)
    assert "env 0" in str(caught.value)
    session.close()


@pytest.mark.parametrize(
    ("space", "given"),
    [(BYTES, [3, 255]), (BYTES, np.array([3.0, 255.0])), (spaces.Discrete(9), np.float32(3))],
)
def test_numbers_of_another_dtype_that_fit_are_cast(space, given):
    """Nothing is lost, and a later number of the same type is compared too."""
    env = GymVecEnv(lambda: Shows(space, given, 1), 2)
    env.reset_all(0)
    for _ in range(2):
        obs = env.step_all(np.zeros(2, np.int64))["obs"]
        assert obs.dtype == space.dtype
        assert obs.tolist() == [np.asarray(given).tolist()] * 2
        for each in env._env.envs:
            each.unwrapped._buffer[:] = 0
    for each in env._env.envs:
        each.unwrapped._odd = np.asarray(given) * 0 + type(np.ravel(given)[0])(-1)
    with pytest.raises(EnvError, match="with -1"):
        env.step_all(np.zeros(2, np.int64))
    env.close()


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0.5, 1.0], r"have 0.5, which MultiDiscrete\(\[2 2\]\) does"),
        ([0, 5], "have 5, which"),
        (["a", "b"], r"must be numbers, got \['a', 'b'\]"),
        ([None, 1], r"must be numbers, got \[None, 1\]"),
    ],
)
def test_actions_that_a_cast_would_change_are_refused(actions, message):
    """A predictor of one's own may return anything."""
    env = GymVecEnv(OneBuffer, 2)
    env.reset_all(0)
    env.step_all(np.array([0.0, 1.0]))
    with pytest.raises(EnvError, match=f"^actions {message}"):
        env.step_all(np.array(actions))
    env.close()


class Ordered(OneBuffer):
    """Takes a dict whose keys are in an order of their own, and is paid its first number."""

    action_space = spaces.Tuple(
        [spaces.Dict([("b", spaces.Discrete(9)), ("a", spaces.Discrete(9))])]
    )

    def step(self, action):
        """Count."""
        return self._obs(), float(next(iter(action[0].values()))), False, False, {}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("how", ["sync", "async"])
def test_an_action_keeps_the_order_of_its_space(how):
    """Though gymnasium sorts the keys of a batch."""
    env = GymVecEnv(Ordered, 1, vectorization=how)
    env.reset_all(0)
    assert env.step_all(({"b": np.array([7]), "a": np.array([3])},))["rewards"].tolist() == [7.0]
    env.close()


def test_vector_env_of_the_users_own_over_one_array():
    """The last observation of an episode is not overwritten by the first of the next."""
    made = SyncVectorEnv([OneBuffer] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    env = GymVecEnv(made)
    env.reset_all(0)
    for _ in range(2):
        step = env.step_all(np.zeros(2, np.int64))
    assert step["final_obs"].tolist() == [[2.0], [2.0]]
    assert step["obs"].tolist() == [[0.0], [0.0]]
    env.close()


@pytest.mark.parametrize("wrapper", [NormalizeObservation, NormalizeReward])
def test_normalizing_vector_wrappers_that_reset_all_are_refused(wrapper):
    """The error names what does the same."""
    env = wrapper(SyncVectorEnv([OneBuffer] * 2))
    with pytest.raises(EnvError, match=rf"wrap each env in gymnasium.wrappers.{wrapper.__name__}"):
        GymVecEnv(env)
    env.close()
