"""The networks of off-policy algorithms: what they compute, from closed forms and one by one."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlox.networks import (
    DeterministicPolicy,
    DiscreteQNetwork,
    DuelingQNetwork,
    QNetwork,
    SquashedGaussianPolicy,
    TwinQNetwork,
    polyak_update,
)
from rlox.nn import ReluMLP, frozen
from torch import Tensor, nn


def stream(seed: int = 0) -> torch.Generator:
    """Return a random stream."""
    return torch.Generator().manual_seed(seed)


def test_log_probability_integrates_to_one() -> None:
    """exp(log π) over the actions of one dimension has the area 1, by the trapezoid rule."""
    policy = SquashedGaussianPolicy(2, 1, 8, generator=stream())
    obs = torch.tensor([[0.3, -0.7]]).expand(200_000, 2)
    with torch.no_grad():
        actions, log_probs = policy.get_action_and_logprob(obs)
    order = actions.squeeze(-1).argsort()
    area = torch.trapezoid(log_probs[order].exp().double(), actions.squeeze(-1)[order].double())
    assert float(area) == pytest.approx(1.0, abs=1e-3)


def test_log_probability_equals_torch_distributions() -> None:
    """It is that of a Gaussian under a tanh transform, where that one can still compute it."""
    policy = SquashedGaussianPolicy(3, 2, 8, generator=stream(1))
    obs = torch.randn(256, 3, generator=stream(2))
    with torch.no_grad():
        actions, log_probs = policy.get_action_and_logprob(obs)
        mean, log_std = policy.net(obs).double().chunk(2, -1)
    base = torch.distributions.Normal(mean, log_std.exp())
    squashed = torch.distributions.TransformedDistribution(
        base, torch.distributions.TanhTransform()
    )
    inside = (actions.abs() < 0.99).all(-1)
    assert inside.sum() > 100
    expected = squashed.log_prob(actions.double()).sum(-1)
    torch.testing.assert_close(log_probs.double()[inside], expected[inside], rtol=1e-4, atol=1e-4)


@given(st.floats(-300, 300), st.floats(-30, 5))
def test_log_probability_is_finite_however_saturated(mean: float, log_std: float) -> None:
    """Neither huge means nor tiny deviations give infinities, in value or gradient."""
    policy = SquashedGaussianPolicy(1, 1, 4, generator=stream())
    with torch.no_grad():
        policy.net.layers[-1].weight.zero_()  # type: ignore[union-attr, operator]
        policy.net.layers[-1].bias.copy_(torch.tensor([mean, log_std]))  # type: ignore[union-attr, operator]
    actions, log_probs = policy.get_action_and_logprob(torch.zeros(16, 1))
    assert actions.abs().max() <= 1
    assert log_probs.isfinite().all()
    (actions.sum() + log_probs.sum()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in policy.parameters())


def test_same_stream_gives_the_same_actions_and_sample_is_the_same() -> None:
    """Actions come from the policy's generator alone, and ``sample`` is the same method."""
    obs = torch.randn(5, 3, generator=stream(3))
    torch.manual_seed(0)
    one = SquashedGaussianPolicy(3, 2, 8, generator=stream(4))
    other = copy.deepcopy(one)
    other.generator = stream(5)
    one.generator = stream(5)
    for a, b in zip(one.get_action_and_logprob(obs), other.sample(obs), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(torch.randn(1), torch.randn(1, generator=torch.manual_seed(0)))


def test_deterministic_actions_are_the_squashed_means() -> None:
    """The mode of the pre-tanh Gaussian is squashed; the deterministic policy squashes its own."""
    obs = torch.randn(5, 3, generator=stream())
    policy = SquashedGaussianPolicy(3, 2, 8, generator=stream())
    assert torch.equal(policy.deterministic(obs), policy.net(obs)[:, :2].tanh())
    other = DeterministicPolicy(3, 2, 8, generator=stream())
    assert torch.equal(other.deterministic(obs), other.net(obs).tanh())


def test_twin_critics_are_two_networks() -> None:
    """Each member computes what a network with its weights computes, gradients included."""
    twins = TwinQNetwork(3, 2, 16, generator=stream())
    obs, actions = torch.randn(7, 3, generator=stream(1)), torch.randn(7, 2, generator=stream(2))
    values = twins(obs, actions)
    assert values.shape == (2, 7)
    weight = torch.randn(2, 7, generator=stream(3))
    (values * weight).sum().backward()
    for k in range(2):
        single = QNetwork(3, 2, 16)
        with torch.no_grad():
            for layer, w, b in zip(
                single.net.layers, twins.net.weights, twins.net.biases, strict=True
            ):
                layer.weight.copy_(w[k].T)  # type: ignore[union-attr, operator]
                layer.bias.copy_(b[k, 0])  # type: ignore[union-attr, operator]
        torch.testing.assert_close(values[k], single(obs, actions).squeeze(-1))
        (single(obs, actions).squeeze(-1) * weight[k]).sum().backward()
        for layer, w in zip(single.net.layers, twins.net.weights, strict=True):
            assert w.grad is not None
            torch.testing.assert_close(w.grad[k].T, layer.weight.grad)
    assert not torch.equal(twins.net.weights[0][0], twins.net.weights[0][1])


def test_dueling_values_have_the_mean_of_the_value_stream() -> None:
    """Wang et al. 2016, eq. 9: the mean over actions of Q is V, whatever the advantages."""
    network = DuelingQNetwork(4, 5, 16, generator=stream())
    obs = torch.randn(6, 4, generator=stream(1))
    value = network.value(network.shared(obs).relu()).squeeze(-1)
    torch.testing.assert_close(network(obs).mean(-1), value)
    assert DiscreteQNetwork(4, 5, 16)(obs).shape == (6, 5)


def test_initial_weights_are_those_of_torch() -> None:
    """Uniform in ±1/√fan-in: the bounds hold and are nearly reached."""
    for layer in ReluMLP((64, 128, 3), generator=stream()).layers:
        bound = layer.weight.shape[1] ** -0.5
        for parameter in layer.parameters():
            assert parameter.abs().max() <= bound
        assert layer.weight.abs().max() > 0.95 * bound


@pytest.mark.parametrize("tau", [0.0, 0.005, 1.0])
def test_polyak_update_is_a_weighted_mean(tau: float) -> None:
    """θ' ← (1 - τ) θ' + τ θ for every parameter; buffers are copied; the source is untouched."""

    def network(seed: int) -> nn.Module:
        made = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        for tensor in made.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape, generator=stream(seed)))
        return made

    source, target = network(0), network(1)
    kept = copy.deepcopy(source.state_dict())
    expected = [
        (1 - tau) * t + tau * s
        for s, t in zip(source.parameters(), target.parameters(), strict=True)
    ]
    polyak_update(source, target, tau)
    torch.testing.assert_close(list(target.parameters()), expected)
    torch.testing.assert_close(list(target.buffers()), list(source.buffers()))
    torch.testing.assert_close(source.state_dict(), kept)


def test_polyak_update_refuses_a_tau_out_of_range() -> None:
    """τ outside [0, 1] is named."""
    network = ReluMLP((1, 1))
    with pytest.raises(ValueError, match=r"tau must lie in \[0, 1\], got 1.5"):
        polyak_update(network, network, 1.5)


def test_frozen_passes_gradients_on_without_keeping_any() -> None:
    """Within the block the inputs learn and the weights do not; afterwards they do again."""
    critic = TwinQNetwork(3, 1, 8, generator=stream())
    critic.net.biases[0].requires_grad_(False)
    obs, actions = torch.zeros(2, 3), torch.zeros(2, 1, requires_grad=True)

    def learn() -> list[Tensor | None]:
        critic(obs, actions).sum().backward()
        return [p.grad for p in critic.parameters()]

    with frozen(critic):
        assert learn() == [None] * 6
    assert actions.grad is not None
    assert actions.grad.abs().sum() > 0
    assert [p.requires_grad for p in critic.net.biases] == [False, True, True]
    assert sum(gradient is not None for gradient in learn()) == 5


def test_squashed_policy_returns_the_log_probabilities_of_what_it_drew() -> None:
    """Of one action for each observation and of several, in a dimension before the others."""
    policy = SquashedGaussianPolicy(3, 2, 8, generator=stream())
    obs = torch.randn(5, 3, generator=stream(1))
    actions, log_probs = policy.get_action_and_logprob(obs, 4)
    assert (actions.shape, log_probs.shape) == ((4, 5, 2), (4, 5))
    for drawn, log_prob in zip(actions, log_probs, strict=True):
        torch.testing.assert_close(policy.log_prob(obs, drawn), log_prob, rtol=1e-3, atol=1e-3)
    assert len({tuple(row.flatten().tolist()) for row in actions}) == 4
    one, log_prob = policy.get_action_and_logprob(obs)
    torch.testing.assert_close(policy.log_prob(obs, one), log_prob, rtol=1e-3, atol=1e-3)


def test_log_probabilities_of_saturated_actions_are_finite() -> None:
    """A dataset may hold actions at the bounds, which no finite number is squashed to."""
    policy = SquashedGaussianPolicy(3, 2, 8, generator=stream())
    log_probs = policy.log_prob(torch.zeros(2, 3), torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))
    assert log_probs.isfinite().all()
