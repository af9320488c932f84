"""The candle policy is the torch policy."""

from functools import partial

import numpy as np
import pytest
import torch
from rlox.networks.actor_critics import make_policy
from rlox.nn import FlatOptimizer, Layers
from rlox_candle import CandleCollector
from rlox_native import VecEnv, native_env_ids

WIDTHS = {"hidden": (32, 20, 12), "critic_hidden": (24,)}


def torch_policy(env_id, seed=0):
    """Return the default policy of an env with random parameters, and those in one vector."""
    env = VecEnv(1, env_id=env_id)
    generator = torch.Generator().manual_seed(seed)
    spaces = env.observation_space, env.action_space
    policy = make_policy(*spaces, hidden=Layers(**WIDTHS), generator=generator)
    optimizer = FlatOptimizer(policy, partial(torch.optim.Adam, fused=True), max_grad_norm=1.0)
    with torch.no_grad():
        optimizer.parameters.add_(
            torch.randn(optimizer.parameters.shape, generator=generator), alpha=0.2
        )
    return policy, optimizer.parameters.detach().numpy().copy()


@pytest.mark.parametrize("env_id", native_env_ids())
def test_log_probs_and_values_are_torchs(env_id):
    """To 1e-5 after a sync, on every env: weights and parameters have the same layout."""
    policy, flat = torch_policy(env_id)
    collector = CandleCollector(env_id, 8, n_steps=64, **WIDTHS, seed=0, capacity=0)
    assert collector.sync_weights(flat) == 1
    np.testing.assert_array_equal(collector.get_weights(), flat)
    batch = collector.recv()
    rows = batch["observations"][5], batch["actions"][5]
    np.testing.assert_allclose(collector.evaluate(*rows)[0], batch["log_probs"][5], atol=1e-6)
    np.testing.assert_allclose(collector.evaluate(*rows)[1], batch["values"][5], atol=1e-6)
    collector.stop()
    assert batch["weights_version"] == 1
    obs = torch.from_numpy(batch["observations"]).flatten(0, 1)
    actions = torch.from_numpy(batch["actions"]).flatten(0, 1)
    with torch.no_grad():
        log_probs, _ = policy.get_logprob_and_entropy(obs, actions)
        values = policy.get_value(obs)
    np.testing.assert_allclose(batch["log_probs"].ravel(), log_probs, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(batch["values"].ravel(), values, rtol=1e-5, atol=1e-5)


def test_initial_weights_are_a_torch_policys():
    """Orthogonal with the policies' gains, biases 0; loaded into torch they act alike."""
    policy, _ = torch_policy("CartPole-v1")
    collector = CandleCollector("CartPole-v1", 2, n_steps=8, **WIDTHS, seed=3, capacity=0)
    flat, batch = collector.get_weights(), collector.recv()
    collector.stop()
    torch.nn.utils.vector_to_parameters(torch.from_numpy(flat), policy.parameters())
    with torch.no_grad():
        obs = torch.from_numpy(batch["observations"]).flatten(0, 1)
        values = policy.get_value(obs)
        for network, gain in ((policy.actor, 0.01), (policy.critic, 1.0)):
            *hidden, head = network.layers
            for layer, expected in [(layer, 2**0.5) for layer in hidden] + [(head, gain)]:
                weight = layer.weight if layer.weight.shape[0] < layer.weight.shape[1] else (
                    layer.weight.T
                )  # fmt: skip
                scale = torch.eye(len(weight)) * expected**2
                torch.testing.assert_close(weight @ weight.T, scale, rtol=1e-5, atol=1e-5)
                assert not layer.bias.any()
    np.testing.assert_allclose(batch["values"].ravel(), values, rtol=1e-5, atol=1e-5)


def test_actions_are_as_frequent_as_probable():
    """In one state, within five standard errors."""
    _, flat = torch_policy("CartPole-v1")
    flat[:] = 0
    # the bias of the policy's head, after weights and biases of the layers before
    head = (4 + 1) * 32 + (32 + 1) * 20 + (20 + 1) * 12 + 12 * 2
    flat[head : head + 2] = np.log([0.2, 0.8])
    collector = CandleCollector("CartPole-v1", 100, n_steps=100, **WIDTHS, seed=0, weights=flat)
    share = collector.recv()["actions"].mean()
    collector.stop()
    assert share == pytest.approx(0.8, abs=5 * (0.16 / 1e4) ** 0.5)
