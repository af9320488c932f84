"""A seeded run uses no global random stream, and leaves its caller's unchanged."""

import random

import numpy as np
import pytest
import rlox
import torch
from agents import parameters
from rlox_rl8.env import DiscreteDummyEnv


def states():
    """Return the states of the global streams of torch, NumPy and Python, as plain values."""
    kind, words, *rest = np.random.get_state()  # noqa: NPY002  # the stream that is watched
    return torch.get_rng_state().tolist(), (kind, words.tolist(), *rest), random.getstate()


def run(name, env):
    """Train, act and evaluate; return parameters and returns."""
    options = {"n_envs": 4, "horizon": 8, "seed": 3, "device": "cpu"}
    parts = {"model_config": {"hiddens": (8,)} if name == "rl8_ppo" else {"hidden_size": 8}}
    if name != "rl8_ppo":
        options["seqs_per_state_reset"] = -1
    with rlox.make(name, env=env, parts=parts, sgd_minibatch_size=8, **options) as algorithm:
        algorithm.train(64)
        rows = np.zeros((2, *algorithm.agent.env.observation_spec.shape), np.float32)
        algorithm.predict(rows, deterministic=False)
        found = algorithm.evaluate(n_episodes=2, deterministic=False).returns.tolist()
        return [found, parameters(algorithm.agent).tolist()]


@pytest.mark.parametrize(
    ("name", "env"), [("rl8_ppo", "CartPole-v1"), ("rl8_recurrent_ppo", DiscreteDummyEnv)]
)
def test_no_global_stream_is_disturbed(name, env):
    """Making, training, acting and evaluating neither use nor change any of the three."""
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        before = states()
        found.append(run(name, env))
        for library, one, other in zip(("torch", "NumPy", "Python"), before, states(), strict=True):
            assert one == other, library
    assert found[0] == found[1]
