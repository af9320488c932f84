"""The decoder's convolutions of doubled images."""

import pytest
import torch
from rlox_dreamer.observations import Doubling, doubled_convolution
from torch import nn
from torch.nn import functional


@pytest.mark.parametrize(("inputs", "outputs", "size"), [(8, 3, (4, 4)), (3, 5, (1, 6))])
def test_a_doubled_convolution_equals_doubling_and_a_convolution(
    inputs: int, outputs: int, size: tuple[int, int]
) -> None:
    """Values and gradients of image, weights and bias."""
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


def test_doubling_has_norm_and_silu_of_channels() -> None:
    """RMSNorm is over the channels of each pixel."""
    layer = Doubling(2, 4, torch.Generator().manual_seed(0))
    x = torch.randn(3, 2, 5, 5)
    y = layer.conv(functional.interpolate(x, scale_factor=2, mode="nearest"))
    normed = y / (y.square().mean(1, keepdim=True) + 1e-4).sqrt()
    torch.testing.assert_close(layer(x), functional.silu(normed))
