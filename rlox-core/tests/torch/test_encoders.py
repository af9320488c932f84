"""Tests of :mod:`rlox.nn.encoders`."""

import math
import pickle
import warnings

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlox.envs.preprocessing import FrameStack
from rlox.errors import ConfigError, SpaceError
from rlox.nn import (
    MLP,
    ConvolutionalEncoder,
    OneHotEncoder,
    VectorEncoder,
    make_encoder,
    set_compute_dtype,
)
from rlox.spaces.data import space_from_data, space_to_data
from rlox.spaces.rows import ObservationRows, map_leaves
from torch import nn


def image(*shape, dtype=np.uint8):
    """Return a space of images."""
    return spaces.Box(0, 255, shape, dtype)


def batch(space, size=3):
    """Return random observations as tensors."""
    space.seed(0)
    rows = ObservationRows(space)
    samples = [rows.batch(space.sample())[0] for _ in range(size)]
    return map_leaves(lambda *leaves: torch.from_numpy(np.concatenate(leaves)), *samples)


def test_vectors_of_any_shape_are_their_numbers():
    """Bytes are divided by the space's upper bound."""
    space = spaces.Box(-1, 1, (2, 3))
    obs = batch(space)
    assert torch.equal(make_encoder(space)(obs), obs.flatten(1))
    memory = spaces.Box(0, 200, (5,), np.uint8)
    features = make_encoder(memory)(torch.full((2, 5), 100, dtype=torch.uint8))
    assert torch.equal(features, torch.full((2, 5), 0.5))
    assert make_encoder(spaces.Box(0, 1, ())).output_size == 1


def test_whole_numbers_are_one_hot():
    """Counted from the space's start."""
    one = make_encoder(spaces.Discrete(3, start=-1))
    assert one(torch.tensor([-1, 1])).tolist() == [[1, 0, 0], [0, 0, 1]]
    several = make_encoder(spaces.MultiDiscrete([2, 3], start=[0, 4]))
    assert several(torch.tensor([[1, 4], [0, 6]])).tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]
    square = make_encoder(spaces.MultiDiscrete([[2, 2]]))
    assert square(torch.tensor([[[1, 0]]])).tolist() == [[0, 1, 1, 0]]


@pytest.mark.parametrize(
    ("shape", "channels"), [((84, 84, 3), 3), ((4, 84, 84), 4), ((84, 84), 1), ((40, 60, 1), 1)]
)
def test_large_images_get_the_nature_network(shape, channels):
    """Wherever the channels are."""
    encoder = make_encoder(image(*shape))
    assert isinstance(encoder, ConvolutionalEncoder)
    filters = [tuple(layer.weight.shape) for layer in encoder.convolutions]
    assert filters == [(32, channels, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3)]
    assert encoder(batch(image(*shape))).shape == (3, 512)


@pytest.mark.parametrize("shape", [(10, 10, 4), (4, 10, 10), (35, 35, 3), (3, 3, 3), (3, 3)])
def test_small_images_get_the_minatar_network(shape):
    """Down to the size of one filter."""
    encoder = make_encoder(image(*shape))
    assert encoder(batch(image(*shape))).shape == (3, 128)


@pytest.mark.parametrize("channels", [3, 20])
def test_channels_first_and_last_are_the_same_image(channels):
    """The same pixels give the same features, also where a square has fewer of them."""
    last = make_encoder(image(12, 12, channels), generator=torch.Generator().manual_seed(0))
    first = make_encoder(image(channels, 12, 12), generator=torch.Generator().manual_seed(0))
    obs = batch(image(12, 12, channels))
    assert torch.equal(last(obs), first(obs.permute(0, 3, 1, 2)))


def test_a_guess_of_the_channels_is_said():
    """An image that is not square may have many channels, or few pixels."""
    with pytest.warns(UserWarning, match=r"\(10, 12, 8\) are read with 8 channels, .* a guess"):
        make_encoder(image(10, 12, 8))
    with warnings.catch_warnings(action="error"):
        make_encoder(FrameStack(image(64, 48, 3), 4).space)


def test_a_space_says_where_its_channels_are():
    """Also in another process, a policy's file, and a stack of frames."""
    said = image(6, 7, 20)
    said.channels_first = False
    stack = FrameStack(said, 2).space
    with warnings.catch_warnings(action="error"):
        for space in (said, pickle.loads(pickle.dumps(said)), space_from_data(space_to_data(said))):
            assert make_encoder(space).convolutions[0].in_channels == 20
        assert make_encoder(stack).convolutions[0].in_channels == 40


def test_bytes_are_scaled_to_one():
    """An image of bytes gives what its floats divided by 255 give."""
    made = [
        make_encoder(space, kind="cnn", generator=torch.Generator().manual_seed(0))
        for space in (image(12, 12, 3), spaces.Box(0, 1, (12, 12, 3)))
    ]
    obs = batch(image(12, 12, 3))
    torch.testing.assert_close(made[0](obs), made[1](obs / 255.0))


def test_half_precision_changes_features_by_its_rounding_alone():
    """Features, parameters and gradients stay float32; other networks refuse the option."""
    encoder = make_encoder(image(4, 84, 84), generator=torch.Generator().manual_seed(0))
    obs = batch(image(4, 84, 84))
    exact = encoder(obs)
    set_compute_dtype(encoder, "bfloat16")
    features = encoder(obs)
    assert features.dtype == torch.float32
    assert not torch.equal(features, exact)
    torch.testing.assert_close(features, exact, atol=0.03, rtol=0.03)
    features.sum().backward()
    assert all(each.grad.dtype == torch.float32 for each in encoder.parameters())
    set_compute_dtype(encoder, "float32")
    assert torch.equal(encoder(obs), exact)
    with pytest.raises(ConfigError, match="compute_dtype='bfloat16' is of rlox's convolutions"):
        set_compute_dtype(make_encoder(spaces.Box(-1, 1, (3,))), "bfloat16")
    mlp = MLP((6, 64, 64, 2), generator=torch.Generator().manual_seed(1))
    inputs = torch.rand(8, 6)
    exact = mlp(inputs)
    set_compute_dtype(mlp, "bfloat16")
    assert not torch.equal(mlp(inputs), exact)
    torch.testing.assert_close(mlp(inputs), exact, atol=0.01, rtol=0.03)


def test_convolutions_are_orthogonal():
    """Gain √2, biases 0, nothing drawn from torch's global generator."""
    state = torch.get_rng_state()
    encoder = make_encoder(image(36, 36, 3), generator=torch.Generator().manual_seed(0))
    assert torch.equal(torch.get_rng_state(), state)
    assert isinstance(encoder, ConvolutionalEncoder)
    weight = encoder.convolutions[0].weight.flatten(1)
    torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(32), atol=1e-5, rtol=1e-5)
    assert math.isclose(encoder.layer.weight.square().sum().item(), 2 * 64, rel_tol=1e-4)
    assert not encoder.convolutions[0].bias.any()


def test_nested_spaces_have_an_encoder_for_each_leaf():
    """Features stand side by side in the leaves' order."""
    space = spaces.Dict(
        {
            "camera": image(12, 12, 3),
            "state": spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,))]),
        }
    )
    encoder = make_encoder(space)
    obs = batch(space)
    features = encoder(obs)
    assert features.shape == (3, encoder.output_size) == (3, 128 + 3 + 2)
    assert torch.equal(features[:, 131:], obs["state.1"])
    kinds = [type(leaf) for leaf in encoder.encoders]
    assert kinds == [ConvolutionalEncoder, OneHotEncoder, VectorEncoder]


def test_kind_overrules_the_table():
    """Images may be flattened, and boxes of floats be images."""
    assert isinstance(make_encoder(image(12, 12, 3), kind="mlp"), VectorEncoder)
    assert isinstance(make_encoder(spaces.Box(0, 1, (12, 12)), kind="cnn"), ConvolutionalEncoder)
    with pytest.raises(SpaceError, match="the 'cnn' network needs a Box with 2 or 3 dimensions"):
        make_encoder(spaces.Box(0, 1, (12,)), kind="cnn")


@pytest.mark.parametrize(
    ("conv", "n_convolutions", "n_features"),
    [
        ("nature", 3, 512),
        ("minatar", 1, 128),
        ("impala", 15, 256),
        (((6, 5, 2),), 1, 512),
    ],
)
def test_convolutions_are_as_asked_for(conv, n_convolutions, n_features):
    """By name or one by one; without an image, or with one that is too small, they are refused."""
    encoder = make_encoder(image(40, 36, 3), conv=conv)
    assert sum(isinstance(m, nn.Conv2d) for m in encoder.modules()) == n_convolutions
    assert encoder(batch(image(40, 36, 3))).shape[1] == n_features
    with pytest.raises(SpaceError, match="needs a Box with 2 or 3 dimensions"):
        make_encoder(spaces.Box(0, 1, (12,)), conv=conv)
    with pytest.raises(SpaceError, match="are too small for"):
        make_encoder(image(12, 12, 3), conv=((4, 13, 1),))
