"""Tests of :mod:`rlox.envs.make`."""

import re

import gymnasium
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import ClipReward, RecordEpisodeStatistics
from rlox.envs.gymnasium import GymVecEnv
from rlox.envs.make import choose_backend, env_id_of, make_vec_env
from rlox.errors import ConfigError, EnvError, MissingDependencyError, requirement
from rlox.protocols import VecEnv
from rlox.registry.specs import EnvBackendSpec
from rlox.registry.table import Registration, Registry
from scripted_env import Negated

GYMNASIUM = EnvBackendSpec("gymnasium", "All.", "rlox.envs.gymnasium:GymVecEnv", priority=0)
FAST = EnvBackendSpec("fast", "Some.", "test_backend:make", env_ids=("CartPole-v1",))
FASTEST = EnvBackendSpec("fastest", "Some.", "x:y", env_ids=("Pendulum-v1",), priority=90)
OWN = EnvBackendSpec("own", "Some.", "x:y", env_ids=("Own-v0",), env_kwargs=("gravity",))


@pytest.fixture(autouse=True)
def backends(monkeypatch):
    """Register env backends; those besides gymnasium return what they were called with."""
    registry = Registry(
        Registration(spec, "rlox_env_backends", "test") for spec in (GYMNASIUM, FAST, FASTEST, OWN)
    )
    monkeypatch.setattr("rlox.registry.get_registry", lambda: registry)
    monkeypatch.setattr(Registration, "build", lambda self, *a, **k: (self.spec.factory, *a, k))


def cart_pole():
    """Make a CartPole."""
    return gymnasium.make("CartPole-v1")


def test_without_simulators_gymnasium_takes_mujocos_tasks_and_no_game():
    """A game that is not preprocessed is not what was asked for, and the error has the remedy."""
    assert choose_backend("HalfCheetah-v5")[0].spec.name == "gymnasium"
    with pytest.raises(MissingDependencyError, match=re.escape(requirement("atari"))):
        make_vec_env("ALE/Pong-v5")


def test_auto_takes_the_fastest_backend_that_has_the_id():
    """Priority counts among those that list the id."""
    asked = {"n_envs": 3, "env_kwargs": None, "options": None}
    assert make_vec_env("CartPole-v1", n_envs=3) == ("test_backend:make", "CartPole-v1", asked)
    assert make_vec_env("Pendulum-v1")[0] == "x:y"


@pytest.mark.parametrize(
    "arguments",
    [
        {"env": "Acrobot-v1"},
        {"env": "CartPole-v1", "backend": "gymnasium"},
        {"env": "CartPole-v1", "env_kwargs": {"render_mode": None}},
        {"env": cart_pole},
    ],
)
def test_gymnasium_takes_the_rest(arguments):
    """Ids nobody lists, envs with arguments and callables are gymnasium's."""
    env = make_vec_env(**arguments, n_envs=2)
    assert isinstance(env, GymVecEnv)
    assert env.n_envs == 2
    env.close()


def test_named_backend_must_have_the_id():
    """The error lists what the backend has."""
    with pytest.raises(EnvError) as caught:
        make_vec_env("CartPole-v0", backend="fast")
    assert str(caught.value) == (
        "the env backend 'fast' has no 'CartPole-v0'; did you mean 'CartPole-v1'?; "
        "it has CartPole-v1; without env_backend it is gymnasium's"
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"env_kwargs": {"gravty": 1.0}},
         r"'own' takes no env_kwargs \['gravty'\]; did you mean 'gravity'\?$"),
        ({"vectorization": "async"}, "'own' has no vectorization='async'$"),
    ],
)  # fmt: skip
def test_backends_that_were_passed_over_are_named_if_gymnasium_has_no_such_env(options, reason):
    """The id is right, and what was asked beside it is not."""
    message = f"^env 'Own-v0' cannot be built.*; another env backend has the id, but {reason}"
    with pytest.raises(EnvError, match=message):
        make_vec_env("Own-v0", **options)


def test_vec_env_is_returned_as_it_is():
    """What already satisfies the contract is not wrapped, and its number of envs must agree."""
    env = GymVecEnv("CartPole-v1", 2)
    assert isinstance(env, VecEnv)
    assert make_vec_env(env) is env
    assert make_vec_env(env, n_envs=2) is env
    with pytest.raises(EnvError, match=r"^n_envs is 3, but the vector env has 2 envs$"):
        make_vec_env(env, n_envs=3)
    env.close()


def test_env_id_of():
    """Only what can be made again by its id has one."""
    env = cart_pole()
    vector = SyncVectorEnv([cart_pole])
    assert env_id_of("CartPole-v1") == "CartPole-v1"
    assert env_id_of(env) == "CartPole-v1"
    assert env_id_of(cart_pole) is None
    assert env_id_of(vector) is None
    assert env_id_of(None) is None
    env.close()
    vector.close()


@pytest.mark.parametrize(
    ("make", "env_id"),
    [
        (lambda: gymnasium.make("Pendulum-v1", g=1.0), None),
        (lambda: gymnasium.make("Pendulum-v1", max_episode_steps=7), None),
        (lambda: gymnasium.make("Pendulum-v1").unwrapped, None),
        (lambda: ClipReward(gymnasium.make("Pendulum-v1"), -1.0), None),
        (lambda: Negated(gymnasium.make("Pendulum-v1")), None),
        (lambda: gymnasium.make("Pendulum-v1", render_mode="rgb_array"), "Pendulum-v1"),
        (lambda: gymnasium.make("Pendulum-v1", disable_env_checker=True), "Pendulum-v1"),
        (lambda: RecordEpisodeStatistics(gymnasium.make("Pendulum-v1")), "Pendulum-v1"),
        (lambda: RecordEpisodeStatistics(Negated(gymnasium.make("Pendulum-v1"))), None),
    ],
)
def test_env_that_its_id_does_not_make_has_none(make, env_id):
    """Arguments, wrappers and a missing time limit are not in the id."""
    env = make()
    assert env_id_of(env) == env_id
    env.close()


@pytest.mark.parametrize(
    ("vectorization", "n_envs", "message"),
    [
        ("sync", 10**9, r"^n_envs must be at most 65536, got 1000000000; for more, pass"),
        ("async", 10**4, r"^vectorization='async' starts a process per env, at most \d+ on"),
    ],
)  # fmt: skip
def test_number_of_envs_that_no_machine_bears_is_refused(vectorization, n_envs, message):
    """A slip in a number of envs neither fills the memory nor starts thousands of processes."""
    with pytest.raises(EnvError, match=message):
        make_vec_env("CartPole-v1", n_envs=n_envs, vectorization=vectorization)


def test_processes_are_for_gymnasium_envs_alone():
    """Another backend would ignore that they were asked for; auto takes gymnasium's then."""
    message = "vectorization='async' is of gymnasium envs, got env_backend='fast'"
    with pytest.raises(ConfigError, match=message):
        make_vec_env("CartPole-v1", n_envs=2, backend="fast", vectorization="async")
    made = make_vec_env("CartPole-v1", n_envs=1, vectorization="async")
    assert isinstance(made, GymVecEnv)
    made.close()
