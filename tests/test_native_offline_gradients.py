"""Gradients of the native offline learners against autograd."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from equal_updates import TOLERANCE, relative_error
from rlox.networks import (
    DeterministicPolicy,
    GaussianPolicy,
    SquashedGaussianPolicy,
    TwinQNetwork,
    ValueNetwork,
)
from rlox.nn import flatten_parameters, standard_normal
from rlox_native import ContinuousLearner, ImplicitLearner
from rlox_offline.losses import (
    advantage_weights,
    cql_penalty,
    critic_loss,
    expectile_loss,
    td3_bc_actor_loss,
)

WIDTH = 100
"""Of hidden layers: critics' second ones are gated in pieces of 64, the last not whole."""


def adam_of(network: torch.nn.Module) -> dict[str, Any]:
    """Return a network's parameters and Adam before its first step, as learners take them."""
    parameters = flatten_parameters(network).detach().numpy()
    return {
        "parameters": parameters.copy(),
        "first_moments": np.zeros_like(parameters),
        "second_moments": np.zeros_like(parameters),
        "step": 0,
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "max_grad_norm": None,
    }


def gradient_of(network: torch.nn.Module) -> Any:
    """Return autograd's gradient of all parameters."""
    return torch.cat([parameter.grad.flatten() for parameter in network.parameters()]).numpy()


def test_the_gradient_of_a_cloning_policy_equals_autograd() -> None:
    """Of the policy's loss, whose scale depends on all rows of the minibatch."""
    generator = torch.Generator().manual_seed(1)
    normal = partial(torch.randn, generator=generator)
    policy = DeterministicPolicy(5, 3, WIDTH, generator=generator)
    critics = TwinQNetwork(5, 3, WIDTH, generator=generator)
    obs, actions = normal(101, 5), normal(101, 3).tanh()

    chosen = policy(obs)
    loss = td3_bc_actor_loss(critics(obs, chosen)[0], chosen, actions, 2.5)
    loss.backward()

    learner = ContinuousLearner(5, 3, [WIDTH, WIDTH], 2)
    learnt = adam_of(policy)
    reported, _ = learner.step_policy(
        learnt,
        flatten_parameters(critics).detach().numpy(),
        obs.numpy(),
        None,
        learning_rate=1e-3,
        alpha=0.0,
        cloning=(actions.numpy(), 2.5),
    )
    assert reported == pytest.approx(loss.item(), rel=TOLERANCE)
    assert relative_error(learner.gradients()[0], gradient_of(policy)) < TOLERANCE

    with pytest.raises(ValueError, match="actions"):
        learner.step_policy(
            learnt, flatten_parameters(critics).detach().numpy(), obs.numpy(), None,
            learning_rate=1e-3, alpha=0.0, cloning=(actions[1:].numpy(), 2.5),
        )  # fmt: skip


@pytest.mark.parametrize("calibrated", [False, True])
def test_gradients_of_conservative_critics_equal_autograd(calibrated: bool) -> None:
    """Of the squared errors and penalties, at actions that a policy makes of the same noise."""
    generator, n = torch.Generator().manual_seed(1), 10
    normal = partial(torch.randn, generator=generator)
    policy = SquashedGaussianPolicy(5, 3, WIDTH, generator=generator)
    critics = TwinQNetwork(5, 3, WIDTH, generator=generator)
    target = TwinQNetwork(5, 3, WIDTH, generator=generator)
    obs, next_obs = normal(101, 5), normal(101, 5)
    actions, random = (normal(*k, 101, 3).tanh() for k in ((), (n,)))
    rewards, discounts = normal(101), normal(101).abs()
    # values are near 0, so that some are below their bounds
    bounds = 0.1 * normal(101) if calibrated else None

    policy.generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        next_actions, _ = policy.get_action_and_logprob(next_obs)
        targets = rewards + discounts * target(next_obs, next_actions).amin(0)
        drawn = [policy.get_action_and_logprob(at, n) for at in (obs, next_obs)]
    everywhere = torch.cat((random, *(drawn_actions for drawn_actions, _ in drawn)))
    log_probs = torch.cat([log_prob for _, log_prob in drawn])
    # single precision's own rounding is as large as the tolerance
    exact = copy.deepcopy(critics).double()
    q_values = exact(obs.double(), actions.double())
    of_samples = exact(obs.double().repeat(3 * n, 1), everywhere.double().view(-1, 3))
    of_samples = of_samples.view(2, 3 * n, 101)
    values = of_samples[:, :n], of_samples[:, n:]
    lower = None if bounds is None else bounds.double()
    penalty = cql_penalty(*values, log_probs.double(), q_values, 3, lower)
    loss = critic_loss(q_values, targets.double())
    (loss + 2.5 * penalty.sum()).backward()

    options: Any = {"log_std_bounds": policy.log_std_bounds}
    learner, parameters = ContinuousLearner(5, 3, [WIDTH, WIDTH], 2, **options), flatten_parameters
    of_policy, learnt = parameters(policy).detach().numpy(), adam_of(critics)
    again = torch.Generator().manual_seed(2)
    noise, here, there = (
        standard_normal(like, again).numpy() for like in (actions, random, random)
    )
    batch: Any = {"obs": obs, "actions": actions, "rewards": rewards, "next_obs": next_obs,
                  "discounts": discounts}  # fmt: skip
    batch = {**{name: tensor.numpy() for name, tensor in batch.items()}, "weights": None}

    def step() -> Any:
        return learner.step_values(
            learnt, parameters(target).detach().numpy(), of_policy, batch, noise,
            learning_rate=1e-3, alpha=0.0, scale=1.0, penalty_weight=2.5,
        )  # fmt: skip

    with pytest.raises(ValueError, match="penalty"):
        step()
    many = [np.concatenate([array] * 9) for array in (random.numpy(), here, there)]
    with pytest.raises(ValueError, match=r"random actions must lie in \[1, 85\], got 90"):
        learner.penalize(learnt["parameters"], of_policy, batch, *many)
    arguments = (learnt["parameters"], of_policy, batch, random.numpy(), here, there)
    with pytest.raises(ValueError, match="lower_bounds"):
        learner.penalize(*arguments, np.zeros(100))
    penalties = learner.penalize(*arguments, None if bounds is None else bounds.numpy())
    assert penalties == pytest.approx(penalty.tolist(), rel=TOLERANCE)
    entropy = learner.entropy(of_policy, next_obs.numpy(), noise)
    policy.generator.manual_seed(2)
    _, expected = policy.get_action_and_logprob(next_obs)
    assert entropy == pytest.approx(-expected.mean().item(), rel=TOLERANCE)
    reported, value, _ = step()
    assert reported == pytest.approx(loss.item(), rel=TOLERANCE)
    assert value == pytest.approx(q_values.mean().item(), rel=10 * TOLERANCE)
    assert relative_error(learner.gradients()[1], gradient_of(exact)) < TOLERANCE
    with pytest.raises(ValueError, match="penalty"):
        step()  # a penalty counts once


def test_gradients_of_iql_equal_autograd() -> None:
    """Of the value, and, with the value that its step made, of policy and critics."""
    generator = torch.Generator().manual_seed(1)
    normal = partial(torch.randn, generator=generator)
    value = ValueNetwork(5, WIDTH, generator=generator)
    policy = GaussianPolicy(5, 3, WIDTH, generator=generator)
    critics = TwinQNetwork(5, 3, WIDTH, generator=generator)
    target = TwinQNetwork(5, 3, WIDTH, generator=generator)
    obs, next_obs = normal(101, 5), normal(101, 5)
    actions = normal(101, 3).tanh()
    rewards, discounts = normal(101), normal(101).abs()
    arrays = [adam_of(network) for network in (value, policy, critics)]

    with torch.no_grad():
        target_q = target(obs, actions).amin(0)
    value_loss = expectile_loss(target_q - value(obs), 0.8)
    value_loss.backward()
    gradients = [gradient_of(value)]
    torch.optim.Adam(value.parameters(), lr=1e-3).step()
    with torch.no_grad():
        weights = advantage_weights(target_q - value(obs), 3.0, 0.8)
        targets = rewards + discounts * value(next_obs)
    policy_loss = -(weights * policy.log_prob(obs, actions)).mean()
    q_values = critics(obs, actions)
    q_loss = critic_loss(q_values, targets)
    for network, loss in ((policy, policy_loss), (critics, q_loss)):
        loss.backward()
        gradients.append(gradient_of(network))

    learner = ImplicitLearner(
        5,
        3,
        [WIDTH, WIDTH],
        2,
        log_std_bounds=policy.log_std_bounds,
    )
    batch = {"obs": obs, "actions": actions, "rewards": rewards, "next_obs": next_obs,
             "discounts": discounts}  # fmt: skip
    terms = learner.step(
        *arrays,
        flatten_parameters(target).detach().numpy(),
        {**{name: tensor.numpy() for name, tensor in batch.items()}, "weights": None},
        learning_rate=1e-3,
        policy_learning_rate=3e-3,
        expectile=0.8,
        temperature=3.0,
        max_weight=0.8,
    )
    expected = (value_loss, q_loss, policy_loss, q_values.mean(), weights.mean())
    assert terms == pytest.approx([float(term.detach()) for term in expected], rel=TOLERANCE)
    for ours, reference in zip(learner.gradients(), gradients, strict=True):
        assert relative_error(ours, reference) < TOLERANCE
    assert weights.min() < weights.max() == pytest.approx(0.8)
