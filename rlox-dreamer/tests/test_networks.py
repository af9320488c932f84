"""Networks and optimiser against formulas: the recurrent model, the decoder, LaProp."""

from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlox.nn import FlatOptimizer
from rlox.nn.optimizers import AdaptiveClip
from rlox_dreamer.layers import BlockLinear, norm_silu
from rlox_dreamer.losses import draw_one_hot
from rlox_dreamer.observations import Doubling, doubled_convolution, observation_leaves
from rlox_dreamer.optim import LaProp
from rlox_dreamer.rssm import RSSM, Latent
from torch import nn
from torch.nn import functional


def make(seed=0):
    """Return a small model in float64."""
    generator = torch.Generator().manual_seed(seed)
    return RSSM(
        2, 6, deter=8, stoch=3, classes=4, hidden=5, blocks=4, mix=0.01, generator=generator
    ).double()


def rand(*shape, seed=1):
    """Return uniform numbers."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _norm(x, weight):
    return x / (x.square().mean(-1, keepdim=True) + 1e-4).sqrt() * weight


def test_block_layer_equals_a_dense_one_with_masked_weights():
    """Each block of outputs sees its own block of inputs only."""
    layer = BlockLinear(12, 8, 4, torch.Generator().manual_seed(0))
    x = torch.randn(5, 12)
    dense = torch.block_diag(*layer.weight)
    assert dense.shape == (12, 8)
    torch.testing.assert_close(layer(x), x @ dense + layer.bias)


@pytest.mark.parametrize("axes", [(5,), (2, 5)])
def test_norm_and_silu_have_their_gradient(axes):
    """Compared with finite differences, with one scale and with one for each branch."""
    x, weight = rand(3, 2, 5).requires_grad_(), rand(*axes, seed=2).requires_grad_()
    expected = functional.silu(_norm(x, weight))
    torch.testing.assert_close(norm_silu(x, weight), expected)
    assert torch.autograd.gradcheck(norm_silu, (x, weight))


def test_one_step_of_the_recurrence_equals_the_formulas():
    """Three input branches, a block-diagonal hidden layer and a block GRU."""
    net = make()
    deter, stoch, action = rand(3, 8), rand(3, 3, 4, seed=2), 3 * rand(3, 2, seed=3) - 1
    got = net.next_deter(Latent(deter, stoch), net.embed_actions(action), net.shares())

    def branch(part, x):
        return functional.silu(_norm(x @ part.linear.weight.T + part.linear.bias, part.norm.weight))

    bounded = action / action.abs().clamp(min=1)
    shared = torch.cat(
        [branch(net.from_deter, deter), branch(net.from_stoch, stoch.flatten(1)),
         branch(net.from_action, bounded)], -1,
    )  # fmt: skip
    blocks = deter.view(3, 4, 2)
    rows = torch.cat([torch.cat([blocks[:, k], shared], -1) for k in range(4)], -1)
    weights = torch.cat(
        [net.core_own.weight, net.core_shared.weight.T.reshape(15, 4, 2).transpose(0, 1)], 1
    )
    bias = net.core_own.bias + net.core_shared.bias
    hidden = rows @ torch.block_diag(*weights) + bias
    hidden = functional.silu(_norm(hidden, net.core_norm.weight))
    gates = (hidden @ torch.block_diag(*net.gates.weight) + net.gates.bias).view(3, 4, 3, 2)
    reset, candidate, update = (gates[:, :, k].reshape(3, 8) for k in range(3))
    candidate = torch.tanh(torch.sigmoid(reset) * candidate)
    update = torch.sigmoid(update - 1)
    torch.testing.assert_close(got, update * candidate + (1 - update) * deter)


def test_the_recurrence_has_its_gradient():
    """Compared with finite differences, through the gates, into the state and actions' share."""
    net, stoch = make(), rand(3, 3, 4, seed=2)

    def step(deter, embedded):
        return net.next_deter(Latent(deter, stoch), embedded, net.shares())

    given = [(rand(3, 8, seed=k) - 0.5).requires_grad_() for k in (4, 5)]
    assert torch.autograd.gradcheck(step, given)


def test_the_posterior_equals_its_formula():
    """One hidden layer on the deterministic state and the tokens, mixed with 1 % uniform."""
    net = make()
    deter, tokens = rand(3, 8) - 0.5, rand(3, 6, seed=2) - 0.5
    logits = net.posterior_logits(deter, net.project(tokens), net.shares())
    layer = net.post_in
    hidden = torch.cat([deter, tokens], -1) @ layer.weight.T + layer.bias
    hidden = functional.silu(_norm(hidden, net.post_norm.weight))
    expected = (hidden @ net.post_out.weight.T + net.post_out.bias).view(3, 3, 4)
    torch.testing.assert_close(logits, expected)
    start = Latent(torch.zeros(3, 8).double(), torch.zeros(3, 3, 4).double())
    zero, none = torch.zeros(1, 3, 2).double(), torch.zeros(1, 3, dtype=torch.bool)
    seen, log_probs = net.observe(start, tokens[None], zero, none, rand(1, 3, 3))
    logits = net.posterior_logits(seen.deter[0], net.project(tokens), net.shares())
    mixed = 0.99 * functional.softmax(logits, -1) + 0.01 / 4
    torch.testing.assert_close(log_probs[0].exp(), mixed)


def test_the_prior_equals_its_formula():
    """Two hidden layers on the deterministic state, mixed with 1 % uniform."""
    net = make()
    deter = rand(3, 8) - 0.5
    hidden = deter
    first, second, output = net.prior_net
    for layer in (first, second):
        hidden = hidden @ layer.linear.weight.T + layer.linear.bias
        hidden = functional.silu(_norm(hidden, layer.norm.weight))
    logits = (hidden @ output.weight.T + output.bias).view(3, 3, 4)
    mixed = 0.99 * functional.softmax(logits, -1) + 0.01 / 4
    torch.testing.assert_close(net.prior(deter).exp(), mixed)


def test_a_reset_within_a_sequence_equals_two_sequences():
    """A new episode ignores the state and action before it; other envs go on."""
    net = make()
    tokens, actions, noise = rand(6, 2, 6), rand(6, 2, 2, seed=2), rand(6, 2, 3, seed=3)
    none = torch.zeros(6, 2, dtype=torch.bool)
    first = none.clone()
    first[3, 0] = True
    start = Latent(rand(2, 8, seed=4), rand(2, 3, 4, seed=5))
    undisturbed, _ = net.observe(start, tokens, actions, none, noise)
    whole, posteriors = net.observe(start, tokens, actions, first, noise)
    other = Latent(rand(2, 8, seed=6), rand(2, 3, 4, seed=7))
    actions[3] = 9.0
    second, _ = net.observe(other, tokens[3:], actions[3:], first[3:], noise[3:])
    for part in range(2):
        assert torch.equal(whole[part][3:, 0], second[part][:, 0])
        assert torch.equal(whole[part][:, 1], undisturbed[part][:, 1])
    assert posteriors.shape == (6, 2, 3, 4)


def test_imagined_steps_follow_the_prior():
    """The next state is the recurrence and a sample of the prior."""
    net = make()
    latent = Latent(rand(3, 8), rand(3, 3, 4, seed=2))
    for k in range(3):
        action, noise = rand(3, 2, seed=10 + k), rand(3, 3, seed=20 + k)
        deter = net.next_deter(latent, net.embed_actions(action), net.shares())
        expected = draw_one_hot(net.prior(deter).exp(), noise)
        latent = net.imagine_step(latent, action, noise)
        assert torch.equal(latent.deter, deter)
        assert torch.equal(latent.stoch, expected)


@pytest.mark.parametrize(("inputs", "outputs", "size"), [(8, 3, (4, 4)), (3, 5, (1, 6))])
def test_a_doubled_convolution_equals_doubling_and_a_convolution(inputs, outputs, size):
    """Values, and gradients of image, weights and bias, agree."""
    torch.manual_seed(0)
    conv = nn.Conv2d(inputs, outputs, 5, padding=2).double()
    image = torch.randn(2, inputs, *size, dtype=torch.double, requires_grad=True)
    doubled = functional.interpolate(image, scale_factor=2, mode="nearest")
    expected = conv(doubled).permute(0, 2, 3, 1)
    got = doubled_convolution(image, conv)
    torch.testing.assert_close(got, expected)
    weights = torch.randn_like(expected)
    learnt = [image, conv.weight, conv.bias]
    torch.testing.assert_close(
        torch.autograd.grad((got * weights).sum(), learnt),
        torch.autograd.grad((expected * weights).sum(), learnt),
    )


def test_doubling_has_norm_and_silu_of_channels():
    """RMSNorm is over the channels of each pixel."""
    layer = Doubling(2, 4, torch.Generator().manual_seed(0))
    x = torch.randn(3, 2, 5, 5)
    y = layer.conv(functional.interpolate(x, scale_factor=2, mode="nearest"))
    normed = y / (y.square().mean(1, keepdim=True) + 1e-4).sqrt()
    torch.testing.assert_close(layer(x), functional.silu(normed))


def test_laprop_with_agc_equals_numpy():
    """Clip by the parameter's norm, divide by the root mean square, then average."""
    module = nn.Linear(4, 3)
    optimizer = FlatOptimizer(module, partial(LaProp), clip=AdaptiveClip(0.3))
    rng = np.random.default_rng(0)
    weights = [p.detach().numpy().astype(np.float64) for p in module.parameters()]
    squares = [np.zeros_like(w) for w in weights]
    momenta = [np.zeros_like(w) for w in weights]
    for step in range(1, 30):
        factors = [rng.normal(size=w.shape) * 10.0 ** rng.integers(-3, 3) for w in weights]
        pairs = zip(module.parameters(), factors, strict=True)
        loss = sum((p * torch.tensor(f, dtype=torch.float32)).sum() for p, f in pairs)
        optimizer.step(loss, 1e-2)
        for i, raw in enumerate(factors):
            bound = 0.3 * max(np.linalg.norm(weights[i]), 1e-3)
            gradient = raw * min(1.0, bound / np.linalg.norm(raw))
            squares[i] = 0.999 * squares[i] + 0.001 * gradient**2
            scaled = gradient / (np.sqrt(squares[i] / (1 - 0.999**step)) + 1e-20)
            momenta[i] = 0.9 * momenta[i] + 0.1 * scaled
            weights[i] -= 1e-2 * momenta[i] / (1 - 0.9**step)
    for p, w in zip(module.parameters(), weights, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), w, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "named"), [({"lr": -1}, "lr"), ({"betas": (1, 0)}, "betas"), ({"eps": 0}, "eps")]
)
def test_impossible_options_are_named(options, named):
    """Each error gives the option's range."""
    with pytest.raises(ValueError, match=named):
        LaProp([torch.zeros(1)], **options)


def test_a_space_says_where_its_channels_are():
    """A small image that is not square may have more channels than rows."""
    space = spaces.Box(0, 255, (16, 18, 20), np.uint8)
    space.channels_first = False
    (leaf,) = observation_leaves(space, None, "encoder_keys")
    assert (leaf.channels, leaf.resolution) == (20, (16, 18))
    assert leaf.image(torch.zeros(2, 16, 18, 20)).shape == (2, 20, 16, 18)
