"""Every algorithm in the envs of known answers of rlox.testing, with every learner, and workers."""

import pytest
import rlox
from rlox.registry import config_class
from rlox.testing import (
    MaskedEnv,
    ReorderedEnv,
    check_masks,
    check_memory,
    check_order,
    check_team_masks,
)
from small_algorithms import ON_ENVS, TEAMS

pytestmark = pytest.mark.slow

VALUES = ("vdn", "qmix", "independent_q")
ALONE = [name for name in ON_ENVS if name not in VALUES]
REMEMBERING = ("ppo", "a2c", "impala", "appo", "mappo", "ippo")
MEMORIES = ({"recurrent": "lstm"}, {"recurrent": "gru"}, {"frame_stack": 2})


def learners(name):
    """Return the learner backends that an algorithm may be asked for."""
    return ("torch", "native") if "backend" in config_class(name).model_fields else (None,)


def run(check, name, env=None, **options):
    """Run a check of an algorithm of few and small steps."""
    discrete, small = ON_ENVS[name]
    own = {key: value for key, value in options.items() if value is not None}
    check(name, env or ("CartPole-v1" if discrete else "Pendulum-v1"), **{**small, **own})


@pytest.mark.parametrize("check", [check_order, check_masks])
@pytest.mark.parametrize(
    ("name", "backend"), [(name, backend) for name in ALONE for backend in learners(name)]
)
def test_order_and_masks(check, name, backend):
    """Of vectors, choices and numbers; with masks that are heeded or refused."""
    run(check, name, backend=backend)


@pytest.mark.parametrize("options", [*MEMORIES, {"recurrent": "lstm", "frame_stack": 2}], ids=str)
@pytest.mark.parametrize(
    ("name", "backend"), [(name, backend) for name in REMEMBERING for backend in learners(name)]
)
def test_memories(name, backend, options):
    """Whole episodes are remembered, their order and masks kept to."""
    options = {**options, "batch_size": None if name == "a2c" else 16}
    for check in (check_memory, check_masks, check_order):
        run(check, name, backend=None if "recurrent" in options else backend, **options)


@pytest.mark.parametrize("name", ["dreamer_v3", "rl8_recurrent_ppo"])
def test_other_memories(name):
    """Of a world model, and of rl8's."""
    run(check_memory, name)


@pytest.mark.parametrize("options", [{}, *MEMORIES], ids=str)
@pytest.mark.parametrize("name", TEAMS)
def test_masks_of_teams(name, options):
    """The value behind a forbidden choice is never learnt from."""
    if name in VALUES:
        if options.get("recurrent") == "lstm" or "frame_stack" in options:
            pytest.skip("it has a GRU alone")
        options = {**options, "sequence_length": 4} if options else {}
    run(check_team_masks, name, MaskedEnv, **options)


@pytest.mark.parametrize("vectorization", ["sync", "async"])
@pytest.mark.parametrize("suffix", ["rlox", "onnx"])
def test_what_was_learnt_of_reordered_actions_is_exported(vectorization, suffix, tmp_path):
    """Trained, evaluated and exported the best actions are the same, in processes as well."""
    path = tmp_path / f"policy.{suffix}"
    small = {"n_envs": 4, "n_steps": 32, "batch_size": 32, "learning_rate": 0.01}
    options = {**small, "vectorization": vectorization, "seed": 0}
    with rlox.make("ppo", env=ReorderedEnv, **options) as ppo:
        assert ppo.train(4096)["mean_reward"] > 4.5
        assert ppo.evaluate(n_episodes=4).mean_return == 5
        rlox.export(ppo, path)
    assert rlox.evaluate(rlox.load_policy(path), ReorderedEnv, n_episodes=4).mean_return == 5


@pytest.mark.parametrize("name", ["ppo", "impala"])
def test_workers_obey_masks(name):
    """Envs in processes of their own."""
    with rlox.make(name, env=MaskedEnv, vectorization="async", **ON_ENVS[name][1]) as algorithm:
        algorithm.train(64)
