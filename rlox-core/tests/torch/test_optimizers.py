"""Optimisers of any class, clipping rules, accumulated gradients, schedulers and scalers."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from rlox.errors import CheckpointError
from rlox.nn import AdaptiveClip, FlatOptimizer, ModuleOptimizer, make_optimizer
from rlox.protocols import Optimizer
from torch import Tensor, nn

ADAM = partial(torch.optim.Adam, eps=1e-5)
# torch 2.4 has no class that looks at whole tensors, but one that goes tensor by tensor
BY_TENSOR = partial(getattr(torch.optim, "Adafactor", torch.optim.ASGD))
KINDS = (FlatOptimizer, ModuleOptimizer)


def network(seed: int = 0) -> nn.Module:
    """Return a small network."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def loss_of(module: nn.Module, seed: int) -> Tensor:
    """Return the loss of a batch."""
    obs = torch.randn(8, 3, generator=torch.Generator().manual_seed(seed))
    return (module(obs) - obs.sum(1, keepdim=True)).square().mean()


def flat(module: nn.Module) -> Tensor:
    """Return a copy of all parameters in one row."""
    return torch.cat([p.detach().flatten() for p in module.parameters()])


@pytest.mark.parametrize("kind", KINDS)
def test_both_kinds_are_optimizers(kind: Any) -> None:
    """In the sense of the protocol."""
    assert isinstance(kind(network(), ADAM), Optimizer)


@pytest.mark.parametrize("options", [{}, {"max_grad_norm": 0.1}, {"clip": AdaptiveClip(0.01)}])
def test_both_kinds_take_the_same_steps(options: dict[str, Any]) -> None:
    """With and without a bound, up to rounding."""
    modules = network(), network()
    flat_one, by_tensor = (k(m, ADAM, **options) for k, m in zip(KINDS, modules, strict=True))
    for step in range(5):
        for optimizer, module in zip((flat_one, by_tensor), modules, strict=True):
            optimizer.step(loss_of(module, step), 1e-2)
    torch.testing.assert_close(flat(modules[0]), flat(modules[1]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_add_up_until_they_are_applied(kind: Any) -> None:
    """Halves of a batch give the step of the whole, and nothing of it stays."""
    modules = network(), network()
    whole, halves = kind(modules[0], ADAM), kind(modules[1], ADAM)
    for step in range(3):
        whole.step((loss_of(modules[0], step) + loss_of(modules[0], step + 9)) / 2, 1e-2)
        halves.backward(loss_of(modules[1], step) / 2)
        halves.backward(loss_of(modules[1], step + 9) / 2)
        halves.apply(1e-2)
    torch.testing.assert_close(flat(modules[0]), flat(modules[1]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_scheduler_of_torch_decides_if_no_rate_is_given(kind: Any) -> None:
    """It writes ``param_groups``."""
    module = network()
    optimizer = kind(module, partial(torch.optim.SGD, lr=0.5))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer.torch_optimizer, 1, gamma=0.0)
    before = flat(module)
    optimizer.backward(loss_of(module, 0))
    optimizer.apply()
    after = flat(module)
    assert not torch.equal(before, after)
    scheduler.step()
    optimizer.backward(loss_of(module, 1))
    optimizer.apply()
    assert torch.equal(flat(module), after)


@pytest.mark.parametrize("kind", KINDS)
def test_a_scaled_loss_takes_the_same_step(kind: Any) -> None:
    """Gradients are unscaled before they are clipped; overflow leaves the step out."""
    modules = network(), network()
    plain, scaled = (kind(m, ADAM, max_grad_norm=0.5) for m in modules)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(3):
        plain.step(loss_of(modules[0], step), 1e-2)
        scaled.backward(scaler.scale(loss_of(modules[1], step)))
        scaled.apply(1e-2, scaler=scaler)
        scaler.update()
    torch.testing.assert_close(flat(modules[0]), flat(modules[1]), rtol=1e-5, atol=1e-6)
    before = flat(modules[1])
    scaled.backward(scaler.scale(loss_of(modules[1], 0) * float("inf")))
    scaled.apply(1e-2, scaler=scaler)
    assert torch.equal(flat(modules[1]), before)


def test_classes_that_look_at_tensors_go_tensor_by_tensor() -> None:
    """So do parameters of several dtypes."""
    assert isinstance(make_optimizer(network(), ADAM), FlatOptimizer)
    assert isinstance(make_optimizer(network(), BY_TENSOR), ModuleOptimizer)
    mixed = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2).double()])
    assert isinstance(make_optimizer(mixed, ADAM), ModuleOptimizer)


@pytest.mark.parametrize("make", [ADAM, BY_TENSOR])
def test_any_class_goes_on_where_it_was_saved(make: partial[Any]) -> None:
    """To the bit, through plain values and arrays."""
    module = network()
    optimizer = ModuleOptimizer(module, make)
    for step in range(3):
        optimizer.step(loss_of(module, step), 1e-2)
    twin = copy.deepcopy(module)
    restored = ModuleOptimizer(twin, make)
    saved = optimizer.state_dict()
    assert all(isinstance(i, str) for i in saved)
    assert any(isinstance(v, np.ndarray) for kept in saved.values() for v in kept.values())
    restored.load_state_dict(saved)
    for step in range(3, 6):
        optimizer.step(loss_of(module, step), 1e-2)
        restored.step(loss_of(twin, step), 1e-2)
    assert torch.equal(flat(module), flat(twin))


def test_a_state_of_other_parameters_is_refused() -> None:
    """The text has their numbers."""
    optimizer = ModuleOptimizer(network(), ADAM)
    with pytest.raises(CheckpointError, match="parameters 7, but there are 4"):
        optimizer.load_state_dict({"7": {}})


@pytest.mark.parametrize("kind", KINDS)
def test_two_bounds_are_refused(kind: Any) -> None:
    """Neither would be the bound."""
    with pytest.raises(ValueError, match=r"max_grad_norm=1\.0 and clip= both bound the gradient"):
        kind(network(), ADAM, max_grad_norm=1.0, clip=AdaptiveClip())


def test_adaptive_clipping_equals_its_formula() -> None:
    """Each parameter's gradient is at most the share of its norm, and short ones stay."""
    parameter, short = nn.Parameter(torch.tensor([3.0, 4.0])), nn.Parameter(torch.ones(1))
    parameter.grad, short.grad = torch.tensor([6.0, 8.0]), torch.full((1,), 0.01)
    zero = nn.Parameter(torch.zeros(1))
    zero.grad = torch.ones(1)
    AdaptiveClip(0.1, floor=1e-3)([parameter, short, zero])
    torch.testing.assert_close(parameter.grad, torch.tensor([0.3, 0.4]))
    torch.testing.assert_close(short.grad, torch.full((1,), 0.01))
    torch.testing.assert_close(zero.grad, torch.full((1,), 1e-4))


@pytest.mark.parametrize(("name", "value"), [("share", 0.0), ("floor", -1.0)])
def test_adaptive_clipping_needs_positive_numbers(name: str, value: float) -> None:
    """The text has the name and the value."""
    with pytest.raises(ValueError, match=f"{name} must be above 0, got {value}"):
        AdaptiveClip(**{name: value})


def test_replaced_parameters_are_reported() -> None:
    """Steps would not reach them."""
    module = network()
    optimizer = ModuleOptimizer(module, ADAM)
    optimizer.require_views()
    module[0] = nn.Linear(3, 4)
    with pytest.raises(RuntimeError, match="parameters of the Sequential were replaced"):
        optimizer.require_views()


def test_parameters_that_are_not_finite_are_seen() -> None:
    """Wherever they are."""
    module = network()
    optimizer = ModuleOptimizer(module, ADAM)
    assert optimizer.is_finite()
    with torch.no_grad():
        module[2].bias.fill_(float("nan"))
    assert not optimizer.is_finite()


def test_gradients_of_a_replay_are_copied() -> None:
    """What a later part of the loss is added to does not lie where the first was computed."""
    module = nn.Linear(3, 1)
    optimizer = ModuleOptimizer(module, partial(torch.optim.SGD, lr=0.1))
    computed: list[Tensor] = []
    for p in module.parameters():
        p.register_post_accumulate_grad_hook(lambda p: computed.append(p.grad))
    optimizer.backward(module(torch.ones(4, 3)).mean(), copies=True)
    for gradient in computed:
        gradient.fill_(7.0)  # as the next replay does
    optimizer.backward(module(torch.ones(4, 3)).mean(), copies=True)
    assert torch.equal(module.weight.grad, torch.full((1, 3), 2.0))
    assert torch.equal(module.bias.grad, torch.full((1,), 2.0))
    optimizer.apply()
    assert module.weight.grad is None
