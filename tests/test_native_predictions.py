"""Predictions of the native learner backend, against the policy's own code in torch."""

from functools import partial
from unittest import mock

import numpy as np
import pytest
import torch
from exportables import VECTOR, Env, one_at_least, stacked
from gymnasium import spaces
from rlox_marl.ippo import IPPO
from rlox_onpolicy.ppo import PPO

NESTED = spaces.Dict({"place": spaces.Discrete(5, start=2), "matrix": spaces.Box(-1, 1, (2, 3))})
ACTED = [
    spaces.Discrete(3, start=1),
    spaces.MultiDiscrete([3, 2, 4]),
    spaces.Box(-0.5, 0.5, (2, 2)),
]


def trained(algorithm=PPO, env="CartPole-v1", **options):
    """Return an algorithm after an iteration, with logits or means that are far apart."""
    made = algorithm(env, seed=3, n_envs=2, n_steps=20, **options)
    with torch.no_grad():
        policy_of(made).actor.layers[-1].weight.mul_(100)
    made.train(40)
    return made


def policy_of(algorithm):
    """Return the policy, also of an algorithm that is made for teams."""
    return algorithm.policy if hasattr(algorithm, "policy") else algorithm.policies["policy"]


def in_torch(algorithm, obs, **options):
    """Return what the policy's own code predicts."""
    with mock.patch.object(algorithm.learner.learner, "mode", None):
        return algorithm.predict(obs, **options)


def sampled(space, count):
    """Return a batch of observations."""
    space.seed(1)
    return stacked([space.sample() for _ in range(count)])


@pytest.mark.parametrize("observed", [VECTOR, NESTED], ids=["vectors", "nested"])
@pytest.mark.parametrize("acted", ACTED, ids=str)
def test_native_predictions_are_the_policys(observed, acted):
    """Of a batch and of one observation, also normalised, within the bounds of the actions."""
    normalised = {"normalize_observations": isinstance(observed, spaces.Box)}
    ppo = trained(env=partial(Env, observed, acted), backend="native", **normalised)
    assert ppo.learner.mode is not None
    obs = sampled(observed, 70)
    with mock.patch.object(type(ppo.policy), "deterministic", side_effect=AssertionError):
        actions = ppo.predict(obs)
        one = ppo.predict({k: v[0] for k, v in obs.items()} if isinstance(obs, dict) else obs[0])
    torch.testing.assert_close(actions, in_torch(ppo, obs), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(one, actions[0], rtol=1e-5)
    assert len(np.unique(actions)) > 1
    assert all(acted.contains(action) for action in actions)
    ppo.close()


def test_native_predictions_choose_among_possible_actions():
    """As torch's do, with masks of each row."""
    ppo = trained(env=partial(Env, VECTOR, spaces.Discrete(3)))
    obs = sampled(VECTOR, 60)
    masks = one_at_least(np.random.default_rng(0).random((60, 3)) < 0.5)
    assert ppo.learner.mode is not None
    actions = ppo.predict(obs, action_masks=masks)
    np.testing.assert_array_equal(actions, in_torch(ppo, obs, action_masks=masks))
    assert masks[range(60), actions].all()
    assert (actions != ppo.predict(obs)).any()
    ppo.close()


@pytest.mark.parametrize("algorithm", [PPO, IPPO])
def test_native_predictions_follow_the_parameters(algorithm):
    """Those of now, be they learnt, loaded or written; and they draw from no stream."""
    made = trained(algorithm, "Pendulum-v1")
    obs = np.array([[0.6, 0.8, 1.0]], np.float32)
    assert made.learner.mode is not None
    before, streams = made.predict(obs), made.streams.state_dict()
    made.train(40)
    assert made.predict(obs) != before
    with torch.no_grad():
        policy_of(made).actor.layers[-1].weight.zero_()
        policy_of(made).actor.layers[-1].bias.fill_(0.25)
    np.testing.assert_allclose(made.predict(obs), [[0.25]])
    assert str(made.streams.state_dict()["torch"]["predict"]) == str(streams["torch"]["predict"])


@pytest.mark.parametrize("options", [{"recurrent": "lstm"}, {"backend": "torch"}])
def test_other_policies_predict_in_torch(options):
    """Those with a memory, and those that are learnt in torch."""
    ppo = trained(**options) if "backend" in options else PPO("CartPole-v1", seed=3, **options)
    assert ppo.learner.mode is None
    assert ppo.predict(np.zeros(4, np.float32)) in (0, 1)
