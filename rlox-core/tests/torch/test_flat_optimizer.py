"""Tests of :mod:`rlox.nn.optimizers` against ``torch.optim``'s own optimisers."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from rlox.errors import CheckpointError
from rlox.nn import FlatOptimizer
from torch import nn


def network(seed: int = 0) -> nn.Sequential:
    """Return a small seeded network."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def loss_of(module: nn.Module, step: int, scale: float = 1.0) -> torch.Tensor:
    """Return a loss that differs from step to step."""
    obs = torch.randn(16, 3, generator=torch.Generator().manual_seed(step))
    return scale * (module(obs) - obs[:, :2].sin()).square().mean()


def flat_adam(module: nn.Module, max_grad_norm: float = 0.5) -> FlatOptimizer:
    """Return the optimiser under test."""
    make = partial(torch.optim.Adam, eps=1e-5, fused=True)
    return FlatOptimizer(module, make, max_grad_norm=max_grad_norm)


@pytest.mark.parametrize("max_grad_norm", [0.05, 0.5, 1e9])
def test_equals_torch_adam_with_clipping(max_grad_norm: float) -> None:
    """200 steps with a changing learning rate end in the same parameters."""
    module = network()
    twin = copy.deepcopy(module)
    ours = flat_adam(module, max_grad_norm)
    theirs = torch.optim.Adam(twin.parameters(), lr=1e-2, eps=1e-5)
    for step in range(200):
        learning_rate = 1e-2 * (1 - step / 200)
        ours.step(loss_of(module, step, 3.0), learning_rate)
        theirs.param_groups[0]["lr"] = learning_rate
        theirs.zero_grad()
        loss_of(twin, step, 3.0).backward()
        nn.utils.clip_grad_norm_(twin.parameters(), max_grad_norm)
        theirs.step()
    for a, b in zip(module.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_equals_torch_rmsprop_with_clipping() -> None:
    """Any elementwise optimiser may be flat; its state is known before its first step."""
    module = network()
    twin = copy.deepcopy(module)
    make = partial(torch.optim.RMSprop, lr=7e-4, alpha=0.99, eps=1e-5)
    ours, theirs = FlatOptimizer(module, make, max_grad_norm=0.5), make(list(twin.parameters()))
    for step in range(100):
        ours.step(loss_of(module, step, 3.0), 7e-4)
        theirs.zero_grad()
        loss_of(twin, step, 3.0).backward()
        nn.utils.clip_grad_norm_(twin.parameters(), 0.5)
        theirs.step()
    for a, b in zip(module.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    fresh = FlatOptimizer(network(), make, max_grad_norm=0.5)
    fresh.load_state_dict(ours.state_dict())
    assert set(fresh.state_dict()) == {"step", "square_avg"}


def test_construction_changes_no_value() -> None:
    """The parameters become views of one tensor and keep their values and shapes."""
    module = network()
    before = copy.deepcopy(module.state_dict())
    ours = flat_adam(module)
    assert all(torch.equal(module.state_dict()[k], v) for k, v in before.items())
    flat = torch.cat([p.detach().flatten() for p in module.parameters()])
    assert torch.equal(ours.parameters, flat)


def test_views_stay_valid() -> None:
    """A step moves the module's own parameters, and loading a state moves the flat ones."""
    module = network()
    ours = flat_adam(module)
    ours.step(loss_of(module, 0), 1e-2)
    module.load_state_dict(network(1).state_dict())
    ours.step(loss_of(module, 1), 1e-2)
    flat = torch.cat([p.detach().flatten() for p in module.parameters()])
    gradient = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
    assert torch.equal(ours.parameters, flat)
    assert torch.equal(ours.gradients, gradient)


def test_frozen_parameters_stay() -> None:
    """What needs no gradient is no part of the flat tensor."""
    module = network()
    module[0].requires_grad_(False)
    before = module[0].weight.clone()
    ours = flat_adam(module)
    ours.step(loss_of(module, 0), 1e-2)
    assert torch.equal(module[0].weight, before)
    assert len(ours.parameters) == 8 * 2 + 2


def test_unused_parameter_is_left_alone() -> None:
    """A parameter that the loss does not reach has gradient 0."""
    module = nn.ModuleDict({"used": nn.Linear(3, 2), "unused": nn.Linear(3, 2)})
    before = module["unused"].weight.clone()
    ours = flat_adam(module)
    ours.step(module["used"](torch.ones(1, 3)).square().mean(), 1e-2)
    assert torch.equal(module["unused"].weight, before)


@pytest.mark.parametrize("steps", [0, 5])
def test_state_round_trip_is_exact(steps: int) -> None:
    """A restored optimiser takes the same steps, bit for bit."""
    module = network()
    ours = flat_adam(module)
    for step in range(steps):
        ours.step(loss_of(module, step), 1e-2)
    twin = copy.deepcopy(network(7))
    restored = flat_adam(twin)
    restored.step(loss_of(twin, 99), 1e-2)
    twin.load_state_dict(module.state_dict())
    saved = ours.state_dict()
    restored.load_state_dict(saved)
    assert all(
        a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)
        for a, b in zip(saved.values(), restored.state_dict().values(), strict=True)
    )
    for step in range(5):
        ours.step(loss_of(module, step), 1e-2)
        restored.step(loss_of(twin, step), 1e-2)
    assert torch.equal(ours.parameters, restored.parameters)


def test_state_is_a_copy() -> None:
    """Further steps do not change a saved state, nor does loading tie the two."""
    module = network()
    ours = flat_adam(module)
    ours.step(loss_of(module, 0), 1e-2)
    saved = ours.state_dict()
    before = {name: value.copy() for name, value in saved.items()}
    ours.load_state_dict(saved)
    ours.step(loss_of(module, 1), 1e-2)
    assert all(np.array_equal(saved[name], before[name]) for name in before)


@pytest.mark.parametrize("reset", [None, torch.zeros(8, 3)], ids=["none", "other"])
def test_replaced_gradient_is_detected(reset: Any) -> None:
    """A gradient that is no view any more would be lost without a word."""
    module = network()
    ours = flat_adam(module)
    module[0].weight.grad = reset
    with pytest.raises(RuntimeError, match=r"was replaced; call FlatOptimizer\.step instead"):
        ours.step(loss_of(module, 0), 1e-2)


def replace_data(module: Any) -> None:
    """Give a parameter other data, as ``nn.Module.half`` does."""
    module[0].weight.data = module[0].weight.data.clone()


def replace_all_data(module: Any) -> None:
    """Give all parameters the data of one vector."""
    values = nn.utils.parameters_to_vector(module.parameters()).detach().clone()
    nn.utils.vector_to_parameters(values, module.parameters())


def replace_parameter(module: Any) -> None:
    """Put another parameter into a layer."""
    module[2].bias = nn.Parameter(module[2].bias.detach().clone())


def replace_layer(module: Any) -> None:
    """Put another layer into the module."""
    module[2] = nn.Linear(8, 2)


def add_layer(module: Any) -> None:
    """Put another layer behind the others."""
    module.append(nn.Linear(2, 2))


@pytest.mark.parametrize(
    "replace",
    [replace_data, replace_all_data, replace_parameter, replace_layer, add_layer, flat_adam],
)
def test_replaced_parameters_are_detected(replace: Any) -> None:
    """Steps would not reach parameters that are no views any more."""
    module = network()
    ours = flat_adam(module)
    ours.step(loss_of(module, 0), 1e-2)
    ours.require_views()
    replace(module)
    with pytest.raises(RuntimeError, match=r"of the Sequential were replaced, .*copy_\(values\)"):
        ours.require_views()


def test_values_written_in_place_are_learnt_from() -> None:
    """Loading, copying and freezing leave the views what they are."""
    module = network()
    ours = flat_adam(module)
    module.load_state_dict(network(1).state_dict())
    module[0].weight.data.copy_(torch.ones(8, 3))
    module[2].requires_grad_(False)
    ours.require_views()
    assert torch.equal(ours.parameters[:24], torch.ones(24))


def test_a_parameter_without_elements_was_not_replaced() -> None:
    """It has no place in the vector."""
    module = network()
    module.register_parameter("none", nn.Parameter(torch.empty(0)))
    flat_adam(module).require_views()


@pytest.mark.parametrize(
    ("value", "finite"),
    [(1.0, True), (3e38, True), (float("nan"), False), (-float("inf"), False)],
)
def test_finite_parameters_are_reported(value: float, finite: bool) -> None:
    """Their sum may overflow where each of them is a number."""
    module = network()
    ours = flat_adam(module)
    module[2].bias.data.fill_(value)
    assert ours.is_finite() is finite


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Tanh(), "needs trainable parameters, and has none"),
        (
            nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1).double()]),
            "must share one dtype and device, .*float32.*float64",
        ),
    ],
)
def test_unequal_or_no_parameters_are_refused(module: nn.Module, message: str) -> None:
    """One flat tensor has one dtype and one device."""
    with pytest.raises(ValueError, match=message):
        flat_adam(module)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"exp_avg": np.zeros(3, np.float32)}, r"exp_avg has shape \(3,\), expected \(50,\)"),
        ({"step": np.zeros(2, np.float32)}, r"step has shape \(2,\), expected \(\)"),
        ({"extra": np.zeros(1)}, "must hold .'exp_avg', 'exp_avg_sq', 'step'., got"),
    ],
)
def test_wrong_state_is_a_checkpoint_error(change: dict[str, Any], message: str) -> None:
    """Moments of another network are refused."""
    module = network()
    ours = flat_adam(module)
    ours.step(loss_of(module, 0), 1e-2)
    with pytest.raises(CheckpointError, match=message):
        ours.load_state_dict({**ours.state_dict(), **change})


@pytest.mark.parametrize(
    "make",
    [
        partial(torch.optim.Adam, eps=1e-5, fused=True),
        partial(torch.optim.Adam, amsgrad=True),
        partial(torch.optim.RMSprop, alpha=0.9),
        partial(torch.optim.RMSprop, momentum=0.9, centered=True),
        partial(torch.optim.Adagrad),
    ],
    ids=["adam", "amsgrad", "rmsprop", "momentum", "adagrad"],
)
def test_state_before_the_first_step_is_what_the_optimiser_keeps(make: partial[Any]) -> None:
    """A learner that steps by itself finds the names, shapes and dtypes that torch would make."""
    stepped, module = network().double(), network().double()
    theirs = FlatOptimizer(stepped, make)
    theirs.step(stepped(torch.ones(1, 3, dtype=torch.float64)).sum(), 1e-2)
    ours = FlatOptimizer(module, make).state()
    expected = theirs.state()
    assert ours.keys() == expected.keys()
    for name, value in ours.items():
        assert (value.shape, value.dtype) == (expected[name].shape, expected[name].dtype)
        assert not value.any()


def test_steps_taken_elsewhere_are_gone_on_from() -> None:
    """Torch's optimiser, made late, finds what a learner of its own left in the state."""
    module = network()
    twin = copy.deepcopy(module)
    ours, theirs = flat_adam(module), flat_adam(twin)
    theirs.step(loss_of(twin, 0), 1e-2)
    for name, value in ours.state().items():
        value.copy_(theirs.state()[name])
    module.load_state_dict(twin.state_dict())
    for step in range(1, 4):
        ours.step(loss_of(module, step), 1e-2)
        theirs.step(loss_of(twin, step), 1e-2)
    assert torch.equal(ours.parameters, theirs.parameters)
    assert torch.equal(ours.state()["exp_avg_sq"], theirs.state()["exp_avg_sq"])


def test_loading_a_state_changes_the_next_step_of_torch() -> None:
    """An optimiser that has stepped goes on from the state loaded, an empty one included."""
    module = network()
    ours, start = flat_adam(module), copy.deepcopy(module.state_dict())
    empty = ours.state_dict()
    ours.step(loss_of(module, 0), 1e-2)
    first = ours.parameters.clone()
    ours.step(loss_of(module, 1), 1e-2)
    ours.load_state_dict(empty)
    module.load_state_dict(start)
    ours.step(loss_of(module, 0), 1e-2)
    assert torch.equal(ours.parameters, first)


@pytest.mark.parametrize(
    "make",
    [torch.optim.Adam, lambda p: torch.optim.Adam(p, fused=True), partial(dict)],
    ids=["class", "function", "other class"],
)
def test_other_makers_are_refused(make: Any) -> None:
    """The class and its options are to be known before the optimiser is made."""
    with pytest.raises(TypeError, match=r"must be a functools\.partial of an optimiser's class"):
        FlatOptimizer(network(), make)


def test_options_that_the_optimiser_lacks_are_refused_at_once() -> None:
    """A misspelt option does not wait for the first step."""
    with pytest.raises(ValueError, match="epsilon"):
        FlatOptimizer(network(), partial(torch.optim.Adam, epsilon=1e-5))
