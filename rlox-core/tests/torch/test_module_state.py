"""Tests of :mod:`rlox.nn.state` and :mod:`rlox.nn.mlp`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rlox.errors import CheckpointError
from rlox.nn import (
    TanhMLP,
    load_module_state,
    load_parts_state,
    module_digest,
    module_state,
    parts_state,
    require_digest,
    torch_threads,
)
from torch import nn


def network(seed: int) -> nn.Module:
    """Return a network with parameters and buffers."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def test_state_round_trip_is_exact() -> None:
    """Parameters and buffers, 0-dimensional ones included, come back bit for bit."""
    module, other = network(0), network(1)
    module(torch.randn(8, 3))
    load_module_state(other, module_state(module))
    for a, b in zip(module.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_state_is_a_copy() -> None:
    """Training on does not change a saved state."""
    module = network(0)
    state = module_state(module)
    with torch.no_grad():
        next(module.parameters()).zero_()
    assert state["0.weight"].any()


def test_load_is_in_place() -> None:
    """Views of the parameters stay views."""
    module = network(0)
    weight = module.get_parameter("0.weight")
    address = weight.data_ptr()
    load_module_state(module, module_state(network(1)))
    assert module.get_parameter("0.weight") is weight
    assert weight.data_ptr() == address


def test_mismatch_names_every_difference_and_copies_nothing() -> None:
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


def test_mlp_has_tanh_between_linear_layers() -> None:
    """The forward pass is that of the same layers called as modules; no tanh follows the last."""
    mlp = TanhMLP((3, 8, 8, 2), output_gain=1.0)
    first, second, last = mlp.layers
    modules = nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), last)
    inputs = torch.randn(5, 3)
    assert torch.equal(mlp(inputs), modules(inputs))


def test_mlp_weights_come_from_their_generator_alone() -> None:
    """The same generator state gives the same weights; torch's global state is left alone."""
    before = torch.get_rng_state()
    one, two = (
        TanhMLP((3, 4, 1), output_gain=1.0, generator=torch.Generator().manual_seed(1))
        for _ in range(2)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert all(map(torch.equal, one.parameters(), two.parameters()))


@pytest.mark.parametrize("count", [None, 1, 2])
def test_threads_are_restored(count: int | None) -> None:
    """The block has the threads asked for, and an error restores the setting too."""
    before = torch.get_num_threads()
    with pytest.raises(KeyError), torch_threads(count):  # noqa: PT012
        assert torch.get_num_threads() == (count or before)
        raise KeyError
    assert torch.get_num_threads() == before


def test_parts_are_saved_and_restored_by_name() -> None:
    """Modules and whatever has a state of its own; one that is missing is named."""

    class Counter:
        """Counts."""

        count = 0

        def state_dict(self) -> dict[str, int]:
            return {"count": self.count}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.count = state["count"]

    saved = {"net": nn.Linear(2, 3), "counter": Counter()}
    saved["counter"].count = 5
    state = parts_state(saved)
    restored = {"net": nn.Linear(2, 3), "counter": Counter()}
    load_parts_state(restored, state)
    assert torch.equal(restored["net"].weight, saved["net"].weight)
    assert restored["counter"].count == 5
    with pytest.raises(CheckpointError, match="no state of 'counter'"):
        load_parts_state(restored, {"net": state["net"]})


def test_bfloat16_round_trip_is_exact() -> None:
    """Its bits are saved, for NumPy has no such dtype."""
    source, target = (nn.Linear(3, 2).to(torch.bfloat16) for _ in range(2))
    load_module_state(target, module_state(source))
    for name, tensor in source.state_dict().items():
        assert target.state_dict()[name].dtype == torch.bfloat16
        assert torch.equal(target.state_dict()[name], tensor)


def test_frozen_weights_are_known_by_their_digest() -> None:
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
