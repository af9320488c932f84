"""The networks of off-policy algorithms: what they compute, from closed forms and one by one."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlox.errors import CheckpointError
from rlox.learners.transitions import frozen
from rlox.networks import (
    DiscreteQNetwork,
    DuelingQNetwork,
    QNetwork,
    SquashedGaussianPolicy,
    TwinQNetwork,
    polyak_update,
)
from rlox.nn import (
    MLP,
    NoisyLinear,
    draw_noise,
    load_module_state,
    module_digest,
    module_state,
    require_digest,
    silence,
    torch_threads,
)
from torch import nn


def stream(seed=0):
    """Return a random stream."""
    return torch.Generator().manual_seed(seed)


def test_log_probability_equals_torch_distributions():
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
def test_log_probability_is_finite_however_saturated(mean, log_std):
    """Neither huge means nor tiny deviations give infinities, in value or gradient."""
    policy = SquashedGaussianPolicy(1, 1, 4, generator=stream())
    with torch.no_grad():
        policy.net.layers[-1].weight.zero_()
        policy.net.layers[-1].bias.copy_(torch.tensor([mean, log_std]))
    actions, log_probs = policy.get_action_and_logprob(torch.zeros(16, 1))
    assert actions.abs().max() <= 1
    assert log_probs.isfinite().all()
    (actions.sum() + log_probs.sum()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in policy.parameters())


def test_twin_critics_are_two_networks():
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
                layer.weight.copy_(w[k].T)
                layer.bias.copy_(b[k, 0])
        torch.testing.assert_close(values[k], single(obs, actions).squeeze(-1))
        (single(obs, actions).squeeze(-1) * weight[k]).sum().backward()
        for layer, w in zip(single.net.layers, twins.net.weights, strict=True):
            torch.testing.assert_close(w.grad[k].T, layer.weight.grad)
    assert not torch.equal(twins.net.weights[0][0], twins.net.weights[0][1])


def test_dueling_values_have_the_mean_of_the_value_stream():
    """Wang et al. 2016, eq. 9: the mean over actions of Q is V, whatever the advantages."""
    network = DuelingQNetwork(4, 5, 16, generator=stream())
    obs = torch.randn(6, 4, generator=stream(1))
    value = network.value(network.shared(obs).relu()).squeeze(-1)
    torch.testing.assert_close(network(obs).mean(-1), value)
    assert DiscreteQNetwork(4, 5, 16)(obs).shape == (6, 5)


def test_initial_weights_are_those_of_torch():
    """Uniform in ±1/√fan-in: the bounds hold and are nearly reached."""
    for layer in MLP((64, 128, 3), generator=stream()).layers:
        bound = layer.weight.shape[1] ** -0.5
        for parameter in layer.parameters():
            assert parameter.abs().max() <= bound
        assert layer.weight.abs().max() > 0.95 * bound


@pytest.mark.parametrize("tau", [0.0, 0.005, 1.0])
def test_polyak_update_is_a_weighted_mean(tau):
    """θ' ← (1 - τ) θ' + τ θ for every parameter; buffers are copied; the source is untouched."""

    def network(seed):
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


def test_frozen_passes_gradients_on_without_keeping_any():
    """Within the block the inputs learn and the weights do not; afterwards they do again."""
    critic = TwinQNetwork(3, 1, 8, generator=stream())
    critic.net.biases[0].requires_grad_(False)
    obs, actions = torch.zeros(2, 3), torch.zeros(2, 1, requires_grad=True)

    def learn():
        critic(obs, actions).sum().backward()
        return [p.grad for p in critic.parameters()]

    with frozen(critic):
        assert learn() == [None] * 6
    assert actions.grad.abs().sum() > 0
    assert [p.requires_grad for p in critic.net.biases] == [False, True, True]
    assert sum(gradient is not None for gradient in learn()) == 5


def test_squashed_policy_returns_the_log_probabilities_of_what_it_drew():
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


def test_log_probabilities_of_saturated_actions_are_finite():
    """A dataset may hold actions at the bounds, which no finite number is squashed to."""
    policy = SquashedGaussianPolicy(3, 2, 8, generator=stream())
    log_probs = policy.log_prob(torch.zeros(2, 3), torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))
    assert log_probs.isfinite().all()


def test_noise_is_factorised():
    """Fortunato et al. 2018, eq. 10 and 11, written out from the same normal numbers."""
    layer = NoisyLinear(3, 2, std=0.4, generator=stream())
    draw_noise(layer, stream(5))
    normals = stream(5)
    e_in = torch.randn(3, generator=normals)
    e_out = torch.randn(2, generator=normals)

    def f(x):
        return x.sign() * x.abs().sqrt()

    x = torch.randn(7, 3, generator=stream(1))
    expected = torch.zeros(7, 2)
    for b in range(7):
        for j in range(2):
            bias_noise = f(e_out[j])
            expected[b, j] = layer.bias_mean[j] + layer.bias_std[j] * bias_noise
            for i in range(3):
                noise = f(e_out[j]) * f(e_in[i])
                weight = layer.weight_mean[j, i] + layer.weight_std[j, i] * noise
                expected[b, j] += weight * x[b, i]
    torch.testing.assert_close(layer(x), expected)


def test_silent_layers_compute_with_their_means():
    """New and silenced layers agree with the means; drawing again gives the same noise again."""
    network = MLP((4, 8, 3), noisy_std=0.5, generator=stream())
    x = torch.randn(5, 4, generator=stream(1))
    first, second = network.layers
    hidden = (x @ first.weight_mean.T + first.bias_mean).relu()
    means = hidden @ second.weight_mean.T + second.bias_mean
    torch.testing.assert_close(network(x), means)
    draw_noise(network, stream(2))
    noisy = network(x)
    assert not torch.allclose(noisy, means)
    silence(network)
    torch.testing.assert_close(network(x), means)
    draw_noise(network, stream(2))
    assert torch.equal(network(x), noisy)


def test_means_and_deviations_learn_and_the_noise_is_not_saved():
    """Gradients reach both; a deviation's is the mean's times the noise."""
    layer = NoisyLinear(3, 2)
    draw_noise(layer, stream())
    layer(torch.randn(4, 3, generator=stream(1))).square().sum().backward()
    noise = torch.outer(layer.noise_out, layer.noise_in)
    torch.testing.assert_close(layer.weight_std.grad, layer.weight_mean.grad * noise)
    torch.testing.assert_close(layer.bias_std.grad, layer.bias_mean.grad * layer.noise_out)
    assert set(layer.state_dict()) == {"weight_mean", "weight_std", "bias_mean", "bias_std"}


@pytest.mark.parametrize("noisy_std", [None, 0.5])
def test_distributions_have_a_dimension_of_atoms(noisy_std):
    """(B, A, n); of dueling networks the mean over actions is the value stream's, atom by atom."""
    obs = torch.randn(6, 4, generator=stream(1))
    plain = DiscreteQNetwork(4, 5, 16, n_atoms=7, noisy_std=noisy_std)
    assert plain(obs).shape == (6, 5, 7)
    torch.testing.assert_close(plain(obs).flatten(1), plain.net(obs))
    dueling = DuelingQNetwork(4, 5, 16, n_atoms=7, noisy_std=noisy_std, generator=stream())
    outputs = dueling(obs)
    assert outputs.shape == (6, 5, 7)
    features = dueling.shared(obs).relu()
    torch.testing.assert_close(outputs.mean(1), dueling.value(features))
    advantages = dueling.advantage(features).view(6, 5, 7)
    torch.testing.assert_close(outputs[:, 1] - outputs[:, 0], advantages[:, 1] - advantages[:, 0])


def network(seed):
    """Return a network with parameters and buffers."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def test_state_round_trip_is_exact_and_in_place():
    """Of parameters and buffers, 0-dimensional too; a state is a copy, and views stay views."""
    module, other = network(0), network(1)
    module(torch.randn(8, 3))
    state, weight = module_state(module), other.get_parameter("0.weight")
    address = weight.data_ptr()
    load_module_state(other, state)
    for a, b in zip(module.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    assert other.get_parameter("0.weight").data_ptr() == weight.data_ptr() == address
    with torch.no_grad():
        module.get_parameter("0.weight").zero_()
    assert state["0.weight"].any()


def test_mismatch_names_every_difference_and_copies_nothing():
    """Missing, unknown and misshapen entries are all reported at once."""
    module = network(0)
    before = module_state(module)
    state = module_state(network(1))
    del state["2.bias"]
    state["3.bias"] = np.zeros(2)
    state["0.bias"] = np.zeros(5)
    with pytest.raises(CheckpointError) as caught:
        load_module_state(module, state)
    assert str(caught.value) == (
        "the network differs from the saved one: '2.bias' is missing; '3.bias' is unknown; "
        "'0.bias' has shape (5,), expected (4,)"
    )
    assert all(np.array_equal(before[k], v) for k, v in module_state(module).items())


@pytest.mark.parametrize("count", [None, 1, 2])
def test_threads_are_restored(count):
    """The block has the threads asked for, and an error restores the setting too."""
    before = torch.get_num_threads()
    with pytest.raises(KeyError), torch_threads(count):  # noqa: PT012
        assert torch.get_num_threads() == (count or before)
        raise KeyError
    assert torch.get_num_threads() == before


def test_bfloat16_round_trip_is_exact():
    """Its bits are saved, for NumPy has no such dtype."""
    source, target = (nn.Linear(3, 2).to(torch.bfloat16) for _ in range(2))
    load_module_state(target, module_state(source))
    for name, tensor in source.state_dict().items():
        assert target.state_dict()[name].dtype == torch.bfloat16
        assert torch.equal(target.state_dict()[name], tensor)


def test_frozen_weights_are_known_by_their_digest():
    """Names, shapes, dtypes and every bit count."""
    module, same = nn.Linear(3, 2), nn.Linear(3, 2)
    same.load_state_dict(module.state_dict())
    saved = module_digest(module)
    require_digest(same, "reference model", saved)
    with torch.no_grad():
        same.bias[0] += 1e-6
    with pytest.raises(CheckpointError, match="the weights of the reference model are not those"):
        require_digest(same, "reference model", saved)
    assert module_digest(module.to(torch.bfloat16)) != saved
