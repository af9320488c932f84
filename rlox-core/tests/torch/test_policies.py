"""Tests of :mod:`rlox.networks.actor_critics` against ``torch.distributions``."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlox.errors import SpaceError
from rlox.networks.actor_critics import (
    ActorCriticPolicy,
    ContinuousPolicy,
    DiscretePolicy,
    make_policy,
)
from rlox.protocols import OnPolicyActor
from torch import distributions, nn


def generator(seed=0):
    """Return a seeded generator."""
    return torch.Generator().manual_seed(seed)


def discrete(scale=1.0):
    """Return a policy of 3 observations and 5 actions, its logits scaled."""
    policy = DiscretePolicy(3, 5, 16, generator=generator())
    with torch.no_grad():
        policy.actor.layers[-1].weight.mul_(100 * scale)
    return policy


def continuous():
    """Return a policy of 3 observations and 2 actions of unequal spread."""
    policy = ContinuousPolicy(3, 2, 16, generator=generator())
    with torch.no_grad():
        policy.log_std.copy_(torch.tensor([-0.5, 0.75]))
    return policy


OBS = torch.randn(64, 3, generator=generator(1))


@pytest.mark.parametrize("scale", [0.0, 1.0, 50.0])
def test_discrete_equals_categorical(scale):
    """Log-probabilities and entropies are those of torch's Categorical."""
    policy = discrete(scale)
    expected = distributions.Categorical(logits=policy.actor(OBS))
    for action in range(5):
        actions = torch.full((64,), action)
        log_probs, entropy = policy.get_logprob_and_entropy(OBS, actions)
        torch.testing.assert_close(log_probs, expected.log_prob(actions))
        torch.testing.assert_close(entropy, expected.entropy(), atol=1e-5, rtol=1e-5)


def test_continuous_equals_normal():
    """Log-probabilities and entropies are those of torch's independent Normals."""
    policy = continuous()
    expected = distributions.Independent(
        distributions.Normal(policy.actor(OBS), policy.log_std.exp()), 1
    )
    actions = torch.randn(64, 2, generator=generator(2)) * 3
    log_probs, entropy = policy.get_logprob_and_entropy(OBS, actions)
    torch.testing.assert_close(log_probs, expected.log_prob(actions))
    torch.testing.assert_close(entropy, expected.entropy())


@pytest.mark.parametrize("policy", [discrete(), continuous()], ids=["discrete", "continuous"])
def test_initial_ratio_is_one(policy):
    """What sampling reports is what the learner computes for the same actions."""
    actions, sampled = policy.get_action_and_logprob(OBS)
    computed, _ = policy.get_logprob_and_entropy(OBS, actions)
    torch.testing.assert_close((computed - sampled).exp(), torch.ones(64), atol=1e-5, rtol=0)


@torch.no_grad()
def test_continuous_samples_have_the_distribution():
    """Mean and spread of 20 000 draws lie within 4 standard errors."""
    policy = continuous()
    actions, _ = policy.get_action_and_logprob(OBS[:1].expand(20_000, 3))
    std = policy.log_std.exp()
    error = (actions.mean(0) - policy.actor(OBS[:1])[0]).abs() / (std / math.sqrt(20_000))
    assert float(error.max()) < 4
    spread = (actions.std(0) / std - 1).abs() * math.sqrt(2 * 20_000)
    assert float(spread.max()) < 4
    assert abs(float(torch.corrcoef(actions.T)[0, 1])) < 4 / math.sqrt(20_000)


def test_weights_are_orthogonal_with_the_papers_gains():
    """√2 in hidden layers, 0.01 in the policy's head, 1 in the value's; biases 0."""
    policy = DiscretePolicy(32, 4, 32, generator=generator())
    for net, gain in ((policy.actor, 0.01), (policy.critic, 1.0)):
        layers = [layer for layer in net.layers if isinstance(layer, nn.Linear)]
        for layer, g in zip(layers, (math.sqrt(2), math.sqrt(2), gain), strict=True):
            product = layer.weight @ layer.weight.T
            torch.testing.assert_close(product, g**2 * torch.eye(len(product)))
            assert not layer.bias.any()


@pytest.mark.parametrize(
    ("observation_space", "action_space", "layers"),
    [
        (spaces.Box(0, 255, (8, 8), np.uint8), spaces.Discrete(2), 1),
        (spaces.Discrete(3), spaces.Discrete(2), 3),
        (spaces.Box(0, 255, (8,), np.uint8), spaces.Discrete(2), 3),
        (spaces.Box(0, 1, (3,)), spaces.MultiBinary(2), 3),
        (spaces.Box(0, 1, (3,)), spaces.Box(0, 1, (2, 2)), 3),
        (spaces.Dict({"a": spaces.Discrete(2)}), spaces.Tuple([spaces.Discrete(2)]), 3),
    ],
)
def test_other_spaces_get_an_encoder_and_a_head(observation_space, action_space, layers):
    """Two hidden layers follow the features, but for those of an image alone."""
    policy = make_policy(observation_space, action_space, hidden=8)
    assert isinstance(policy, ActorCriticPolicy)
    assert isinstance(policy, OnPolicyActor)
    assert len(policy.actor.layers) == len(policy.critic.layers) == layers


@pytest.mark.parametrize(
    ("observation_space", "action_space"),
    [
        (spaces.Text(3), spaces.Discrete(2)),
        (spaces.Box(0, 1, (3,)), spaces.Sequence(spaces.Discrete(2))),
    ],
)
def test_spaces_without_arrays_are_refused(observation_space, action_space):
    """The error says which would do."""
    with pytest.raises(SpaceError, match=r"must be .*Discrete, MultiDiscrete"):
        make_policy(observation_space, action_space, hidden=8)


def test_policies_take_masks():
    """A masked action is neither drawn nor the mode."""
    policy = discrete(50.0)
    masks = torch.zeros(64, 5, dtype=torch.bool)
    masks[:, 3] = True
    assert policy.get_action_and_logprob(OBS, masks)[0].tolist() == [3] * 64
    assert policy.deterministic(OBS, masks).tolist() == [3] * 64
