"""Where the present observation is not enough, a policy needs a memory."""

import sys
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import rlox
from gymnasium.wrappers import TransformObservation

sys.path.insert(0, str(Path(__file__).parents[2] / "rlox-rl8" / "tests"))
from remembering import STEPS, Cue

ENV_STEPS = 200_000
OPTIONS = {"normalize_observations": True, "normalize_rewards": True}
"""Angles are small beside the inputs that the weights are made for, and returns of a hundred beside
policy gradients: the clipped norm is of both."""
SEEN = [0, 2]
"""Position of the cart and angle of the pole; their velocities are hidden."""


def cartpole_without_velocities():
    """Return CartPole-v1 of which one sees position and angle only."""
    env = gymnasium.make("CartPole-v1")
    whole = env.observation_space
    space = gymnasium.spaces.Box(whole.low[SEEN], whole.high[SEEN], dtype=np.float32)
    return TransformObservation(env, lambda obs: obs[SEEN], space)


@pytest.mark.learn
@pytest.mark.parametrize("recurrent", ["lstm", "gru"])
def test_a_recurrent_policy_balances_without_velocities(score_seeds, recurrent):
    """Every seed reaches 450."""
    env = cartpole_without_velocities
    make = partial(rlox.make, "ppo", env=env, recurrent=recurrent, **OPTIONS)
    label = f"ppo-CartPole-v1-without-velocities-{recurrent}"
    assert min(score_seeds(make, label, ENV_STEPS, 450.0)) >= 450


@pytest.mark.learn
def test_a_policy_without_memory_does_not(score_seeds):
    """No seed reaches 200: what the pole does next cannot be predicted from its angle."""
    make = partial(rlox.make, "ppo", env=cartpole_without_velocities, **OPTIONS)
    label = "ppo-CartPole-v1-without-velocities-no-memory"
    assert max(score_seeds(make, label, ENV_STEPS, 200.0)) < 200


CUE_OPTIONS = {"n_envs": 128, "horizon": STEPS, "learning_rate": 3e-3}
CUE_STEPS = 40 * 128 * STEPS


@pytest.mark.learn
def test_a_recurrent_policy_remembers_a_cue(score_seeds):
    """Every seed is paid for 7.5 of 8 steps or more, across sequences of 4."""
    sequences = {"seq_len": STEPS // 2, "seqs_per_state_reset": 2, "sgd_minibatch_size": 64}
    parts = {"model_config": {"hidden_size": 32}}
    make = partial(rlox.make, "rl8_recurrent_ppo", env=Cue, parts=parts, **CUE_OPTIONS, **sequences)
    assert min(score_seeds(make, "rl8_recurrent_ppo-cue", CUE_STEPS, 7.5)) >= 7.5


@pytest.mark.learn
def test_a_policy_that_sees_the_present_does_not(score_seeds):
    """No seed is paid for 5.5 of 8 steps; 4.5 are the mean of whatever it does."""
    parts = {"model_config": {"hiddens": (32, 32)}}
    make = partial(rlox.make, "rl8_ppo", env=Cue, parts=parts, **CUE_OPTIONS)
    assert max(score_seeds(make, "rl8_ppo-cue-no-memory", CUE_STEPS, 5.5)) < 5.5
