"""The offline algorithms' objectives against d3rlpy's on the same tensors."""

import warnings

import numpy as np
import pytest
import torch
from rlox.networks import GaussianPolicy
from rlox_offline import losses

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import d3rlpy
    from d3rlpy.algos.qlearning.torch.cql_impl import CQLImpl
    from d3rlpy.torch_utility import TorchMiniBatch

B, OBS, ACT, N = 64, 5, 2, 7

CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def batch(seed=0):
    """Return random transitions, some terminated."""
    rng = np.random.default_rng(seed)

    def tensor(*shape):
        return torch.as_tensor(rng.normal(size=shape), dtype=torch.float32)

    return TorchMiniBatch(
        observations=tensor(B, OBS),
        actions=tensor(B, ACT).tanh(),
        rewards=tensor(B, 1),
        next_observations=tensor(B, OBS),
        next_actions=tensor(B, ACT).tanh(),
        returns_to_go=tensor(B, 1),
        terminals=torch.as_tensor(rng.random((B, 1)) < 0.2, dtype=torch.float32),
        intervals=torch.ones(B, 1),
        device="cpu",
    )


def implementation(config):
    """Return d3rlpy's algorithm with networks of its own."""
    torch.manual_seed(0)
    algorithm = config.create(device="cpu:0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        algorithm.create_impl((OBS,), ACT)
    return algorithm.impl


def critic_error(theirs, rows, next_values):
    """Return our critics' loss on the outputs of d3rlpy's networks."""
    q_values = theirs._q_func_forwarder.compute_expected_q(rows.observations, rows.actions, "none")
    discounts = 0.99 * (1 - rows.terminals[:, 0])  # as OfflineBatch.transitions makes them
    target = rows.rewards[:, 0] + discounts * next_values
    return losses.critic_loss(q_values[..., 0], target)


def test_iql_losses_are_those_of_d3rlpy():
    """Value, policy and critics."""
    theirs, rows = implementation(d3rlpy.algos.IQLConfig(expectile=0.8, weight_temp=3.0)), batch()
    with torch.no_grad():
        q_values = theirs._targ_q_func_forwarder.compute_expected_q(
            rows.observations, rows.actions, "min"
        )[:, 0]
        values = theirs._modules.value_func(rows.observations)[:, 0]
        next_values = theirs._modules.value_func(rows.next_observations)[:, 0]
    ours = losses.expectile_loss(q_values - values, 0.8)
    torch.testing.assert_close(ours, theirs.compute_value_loss(rows).detach(), **CLOSE)

    weights = losses.advantage_weights(q_values - values, 3.0, 100.0)
    torch.testing.assert_close(weights, theirs._compute_weight(rows)[:, 0].detach(), **CLOSE)
    action = theirs._modules.policy(rows.observations)
    expected = theirs.compute_actor_loss(rows, action).actor_loss
    normal = torch.distributions.Normal(action.squashed_mu, action.logstd.exp())
    ours = -(weights * normal.log_prob(rows.actions).sum(-1)).mean()
    torch.testing.assert_close(ours, expected, **CLOSE)

    target = theirs.compute_target(rows)
    torch.testing.assert_close(next_values, target[:, 0])
    expected = theirs.compute_critic_loss(rows, target).q_loss
    torch.testing.assert_close(critic_error(theirs, rows, next_values), expected, **CLOSE)


def test_gaussian_policy_has_the_density_of_d3rlpy():
    """Mean through tanh, density not squashed, one deviation for all states."""
    theirs, rows = implementation(d3rlpy.algos.IQLConfig()), batch()
    action = theirs._modules.policy(rows.observations)
    ours = GaussianPolicy(OBS, ACT, 256)
    with torch.no_grad():
        ours.log_std.copy_(action.logstd.detach().reshape(-1)[:ACT])
        linears = [m for m in theirs._modules.policy.modules() if isinstance(m, torch.nn.Linear)]
        for layer, source in zip(ours.net.layers, linears, strict=True):
            layer.weight.copy_(source.weight)
            layer.bias.copy_(source.bias)
    torch.testing.assert_close(ours.deterministic(rows.observations), action.squashed_mu, **CLOSE)
    from d3rlpy.models.torch.policies import build_gaussian_distribution

    expected = build_gaussian_distribution(action).log_prob(rows.actions)
    log_probs = ours.log_prob(rows.observations, rows.actions)
    torch.testing.assert_close(log_probs, expected.reshape(B, -1).sum(-1), rtol=1e-4, atol=1e-4)


def test_td3_bc_losses_are_those_of_d3rlpy():
    """Policy and critics; without noise, which is random."""
    config = d3rlpy.algos.TD3PlusBCConfig(alpha=2.5, target_smoothing_sigma=0.0)
    theirs, rows = implementation(config), batch()
    action = theirs._modules.policy(rows.observations)
    q_values = theirs._q_func_forwarder.compute_expected_q(
        rows.observations, action.squashed_mu, "none"
    )[0, :, 0]
    expected = theirs.compute_actor_loss(rows, action).actor_loss
    ours = losses.td3_bc_actor_loss(q_values, action.squashed_mu, rows.actions, 2.5)
    torch.testing.assert_close(ours, expected, **CLOSE)

    with torch.no_grad():
        next_actions = theirs._modules.targ_policy(rows.next_observations).squashed_mu
        next_values = theirs._targ_q_func_forwarder.compute_expected_q(
            rows.next_observations, next_actions, "min"
        )[:, 0]
    target = theirs.compute_target(rows)
    torch.testing.assert_close(next_values, target[:, 0], **CLOSE)
    expected = theirs.compute_critic_loss(rows, target).critic_loss
    torch.testing.assert_close(critic_error(theirs, rows, next_values), expected, **CLOSE)


@pytest.mark.parametrize("kind", [d3rlpy.algos.CQLConfig, d3rlpy.algos.CalQLConfig])
def test_cql_penalty_is_that_of_d3rlpy(monkeypatch, kind):
    """On the same sampled actions, whose values and densities are given."""
    config = kind(conservative_weight=5.0, alpha_threshold=10.0)
    theirs, rows = implementation(config), batch()
    generator = torch.Generator().manual_seed(0)
    here, there, random = (torch.randn((2, B, N), generator=generator) for _ in range(3))
    densities = [torch.randn((1, B, N), generator=generator) for _ in range(2)]
    policy_values = iter(zip((here, there), densities, strict=True))
    monkeypatch.setattr(CQLImpl, "_compute_policy_is_values", lambda *_, **__: next(policy_values))
    log_uniform = ACT * np.log(0.5)
    monkeypatch.setattr(theirs, "_compute_random_is_values", lambda *_, **__: (random, log_uniform))
    expected = theirs._compute_conservative_loss(
        rows.observations, rows.actions, rows.next_observations, rows.returns_to_go
    )
    data_q = theirs._q_func_forwarder.compute_expected_q(rows.observations, rows.actions, "none")
    ours = losses.cql_penalty(
        random.transpose(1, 2),
        torch.cat((here, there), 2).transpose(1, 2),
        torch.cat(densities, 2)[0].T,
        data_q[..., 0],
        ACT,
        rows.returns_to_go[:, 0] if kind is d3rlpy.algos.CalQLConfig else None,
    )
    torch.testing.assert_close(5.0 * (ours - 10.0), expected, **CLOSE)
