"""The option ``env_kwargs``: in training, evaluation, videos, checkpoints, files and flags."""

import re

import gymnasium
import pytest
import rlox
from rlox.callbacks import EvalCallback
from rlox.envs.make import choose_backend, make_vec_env
from rlox.errors import ConfigError, EnvError

GRAVITY = {"g": 0.0}
SMALL = {
    "ppo": {"n_envs": 2, "n_steps": 8, "batch_size": 8, "n_epochs": 1, "hidden": 8},
    "sac": {
        "buffer_size": 100,
        "learning_starts": 8,
        "batch_size": 4,
        "hidden": 8,
        "steps_per_iteration": 16,
    },
}


def gravities(env):
    """Return the gravity of each of the envs of a gymnasium vector env of rlox."""
    return [float(one.unwrapped.g) for one in env._env.envs]


@pytest.fixture
def seen(monkeypatch):
    """Return the gravities of the vector envs that evaluations make, as they come."""
    found = []

    def make(*args, **kwargs):
        made = make_vec_env(*args, **kwargs)
        found.append(gravities(made) if hasattr(made, "_env") else [10.0] * made.n_envs)
        return made

    monkeypatch.setattr("rlox.envs.evaluation.make_vec_env", make)
    return found


@pytest.mark.parametrize("name", sorted(SMALL))
def test_training_evaluation_and_checkpoint_have_them(name, seen, tmp_path):
    """An id is made with them again; another env that is passed is made as it is."""
    evaluations = EvalCallback(eval_freq=16, n_eval_episodes=1, verbose=False)
    options = {**SMALL[name], "env_kwargs": GRAVITY, "callbacks": [evaluations]}
    with rlox.make(name, "Pendulum-v1", **options) as algorithm:
        part = algorithm.replay if name == "sac" else algorithm.collector
        assert set(gravities(part.env)) == {0.0}
        algorithm.train(32)
        assert seen
        assert {g for row in seen for g in row} == {0.0}
        algorithm.save(tmp_path / "a.rlox")
    del seen[:]
    with type(algorithm).from_checkpoint(tmp_path / "a.rlox") as restored:
        assert restored.config.env_kwargs == GRAVITY
        restored.evaluate(n_episodes=1)
        restored.evaluate("Pendulum-v1", n_episodes=1)
        restored.evaluate(lambda: gymnasium.make("Pendulum-v1", g=3.0), n_episodes=1)
        assert seen == [[0.0], [0.0], [3.0]]


def test_flags_and_the_run_folder_have_them(tmp_path, run, seen):
    """``rlox train`` takes a YAML mapping, and ``rlox eval`` of the run makes the same env."""
    folder = tmp_path / "run"
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL["ppo"].items()]
    flags += ["--env-kwargs={g: 0.0}", f"--run-dir={folder}", "--total-timesteps=16", "--quiet"]
    for arguments in (
        ["train", "ppo", "--env", "Pendulum-v1", *flags],
        ["eval", str(folder), "--episodes", "1"],
    ):
        assert run(*arguments)[0] == 0
    assert seen[-1] == [0.0]
    assert "g: 0.0" in (folder / "config.yaml").read_text()


def test_auto_passes_over_a_backend_that_does_not_know_them():
    """And says why."""
    chosen, reason = choose_backend("Pendulum-v1", env_kwargs=GRAVITY)
    assert chosen.spec.name == "gymnasium"
    assert reason == "'native' takes no env_kwargs ['g']"
    chosen, reason = choose_backend("Pendulum-v1")
    assert chosen.spec.name == "native"
    assert reason == "it is the fastest that has the id"


@pytest.mark.parametrize(
    ("env", "options", "kind", "message"),
    [
        (
            "Pendulum-v1",
            {"env_kwargs": {"gravity": 5.0}},
            EnvError,
            "env 'Pendulum-v1' cannot be built with the env_kwargs {'gravity': 5.0}: .* (it takes "
            "render_mode, g)",
        ),
        (
            "Pendulum-v1",
            {"env_kwargs": GRAVITY, "env_backend": "native"},
            EnvError,
            "the env backend 'native' cannot build 'Pendulum-v1' with the env_kwargs {'g': 0.0}: "
            "native envs take no env_kwargs",
        ),
        ("Pendulum-v1", {"env_kwargs": {"g": print}}, ConfigError, "env_kwargs: expected .*JSON"),
    ],
)
def test_bad_arguments_are_named(env, options, kind, message):
    """With the names of those that the env takes."""
    pattern = re.escape(message).replace(r"\.\*", ".*")
    with pytest.raises(kind, match=pattern):
        rlox.make("ppo", env, **SMALL["ppo"], **options)


def test_an_env_that_is_built_cannot_take_them():
    """An option is never ignored; a callable gets them as keywords."""
    env = gymnasium.make("Pendulum-v1")
    with pytest.raises(ConfigError, match=r"env_kwargs \['g'\] cannot reach a TimeLimit that is"):
        rlox.make("ppo", env, env_kwargs=GRAVITY)
    with rlox.make(
        "ppo", lambda g: gymnasium.make("Pendulum-v1", g=g), env_kwargs=GRAVITY, **SMALL["ppo"]
    ) as algorithm:
        assert gravities(algorithm.collector.env) == [0.0, 0.0]
    env.close()
