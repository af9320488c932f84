"""Noisy layers: their noise, what learns of them, and how they are silenced."""

from __future__ import annotations

import pytest
import torch
from rlox.networks import DiscreteQNetwork, DuelingQNetwork
from rlox.nn import NoisyLinear, ReluMLP, draw_noise, silence
from torch import Tensor


def stream(seed: int = 0) -> torch.Generator:
    """Return a random stream."""
    return torch.Generator().manual_seed(seed)


def test_noise_is_factorised() -> None:
    """Fortunato et al. 2018, eq. 10 and 11, written out from the same normal numbers."""
    layer = NoisyLinear(3, 2, std=0.4, generator=stream())
    draw_noise(layer, stream(5))
    normals = stream(5)
    e_in = torch.randn(3, generator=normals)
    e_out = torch.randn(2, generator=normals)

    def f(x: Tensor) -> Tensor:
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


def test_initial_means_and_deviations_are_the_papers() -> None:
    """Section 3.2: means uniform in ±1/√p, deviations σ₀/√p."""
    layer = NoisyLinear(64, 128, std=0.5, generator=stream())
    for std in (layer.weight_std, layer.bias_std):
        torch.testing.assert_close(std, torch.full_like(std, 0.5 / 8))
    assert layer.weight_mean.abs().max() <= 1 / 8
    assert layer.weight_mean.abs().max() > 0.95 / 8


def test_silent_layers_compute_with_their_means() -> None:
    """New and silenced layers agree with the means; drawing again gives the same noise again."""
    network = ReluMLP((4, 8, 3), noisy_std=0.5, generator=stream())
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


def test_means_are_drawn_like_the_weights_of_plain_layers() -> None:
    """Turning the noise on keeps the network that a seed gives."""
    plain = ReluMLP((4, 8, 3), generator=stream())
    noisy = ReluMLP((4, 8, 3), noisy_std=0.5, generator=stream())
    for a, b in zip(plain.layers, noisy.layers, strict=True):
        assert torch.equal(a.weight, b.weight_mean)
        assert torch.equal(a.bias, b.bias_mean)


def test_means_and_deviations_learn_and_the_noise_is_not_saved() -> None:
    """Gradients reach both; a deviation's is the mean's times the noise."""
    layer = NoisyLinear(3, 2)
    draw_noise(layer, stream())
    layer(torch.randn(4, 3, generator=stream(1))).square().sum().backward()
    noise = torch.outer(layer.noise_out, layer.noise_in)
    torch.testing.assert_close(layer.weight_std.grad, layer.weight_mean.grad * noise)
    torch.testing.assert_close(layer.bias_std.grad, layer.bias_mean.grad * layer.noise_out)
    assert set(layer.state_dict()) == {"weight_mean", "weight_std", "bias_mean", "bias_std"}


@pytest.mark.parametrize("noisy_std", [None, 0.5])
def test_distributions_have_a_dimension_of_atoms(noisy_std: float | None) -> None:
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
