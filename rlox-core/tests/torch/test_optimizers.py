"""Tests of :mod:`rlox.nn.optimizers` against those of ``torch.optim``."""

import copy
from functools import partial

import numpy as np
import pytest
import torch
from rlox.errors import CheckpointError
from rlox.nn import AdaptiveClip, FlatOptimizer, ModuleOptimizer, make_optimizer
from torch import nn

ADAM = partial(torch.optim.Adam, eps=1e-5)
# torch 2.4 has no class that looks at whole tensors, but one that goes tensor by tensor
BY_TENSOR = partial(getattr(torch.optim, "Adafactor", torch.optim.ASGD))
KINDS = (FlatOptimizer, ModuleOptimizer)


def network(seed=0):
    """Return a small seeded network."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def loss_of(module, step, scale=1.0):
    """Return a loss that differs from step to step."""
    obs = torch.randn(16, 3, generator=torch.Generator().manual_seed(step))
    return scale * (module(obs) - obs[:, :2].sin()).square().mean()


def flat(module):
    """Return a copy of all parameters in one row."""
    return torch.cat([p.detach().flatten() for p in module.parameters()])


@pytest.mark.parametrize("options", [{}, {"max_grad_norm": 0.1}, {"clip": AdaptiveClip(0.01)}])
def test_both_kinds_take_the_same_steps(options):
    """With and without a bound, up to rounding."""
    modules = network(), network()
    flat_one, by_tensor = (k(m, ADAM, **options) for k, m in zip(KINDS, modules, strict=True))
    for step in range(5):
        for optimizer, module in zip((flat_one, by_tensor), modules, strict=True):
            optimizer.step(loss_of(module, step), 1e-2)
    torch.testing.assert_close(flat(modules[0]), flat(modules[1]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_add_up_until_they_are_applied(kind):
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
def test_a_scheduler_of_torch_decides_if_no_rate_is_given(kind):
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
def test_a_scaled_loss_takes_the_same_step(kind):
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


def test_classes_that_look_at_tensors_go_tensor_by_tensor():
    """So do parameters of several dtypes."""
    assert isinstance(make_optimizer(network(), ADAM), FlatOptimizer)
    assert isinstance(make_optimizer(network(), BY_TENSOR), ModuleOptimizer)
    mixed = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2).double()])
    assert isinstance(make_optimizer(mixed, ADAM), ModuleOptimizer)


@pytest.mark.parametrize("make", [ADAM, BY_TENSOR])
def test_any_class_goes_on_where_it_was_saved(make):
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


def test_a_state_of_other_parameters_is_refused():
    """The text has their numbers."""
    optimizer = ModuleOptimizer(network(), ADAM)
    with pytest.raises(CheckpointError, match="parameters 7, but there are 4"):
        optimizer.load_state_dict({"7": {}})


@pytest.mark.parametrize("kind", KINDS)
def test_two_bounds_are_refused(kind):
    """Neither would be the bound."""
    with pytest.raises(ValueError, match=r"max_grad_norm=1\.0 and clip= both bound the gradient"):
        kind(network(), ADAM, max_grad_norm=1.0, clip=AdaptiveClip())


def test_adaptive_clipping_equals_its_formula():
    """Each parameter's gradient is at most the share of its norm, and short ones stay."""
    parameter, short = nn.Parameter(torch.tensor([3.0, 4.0])), nn.Parameter(torch.ones(1))
    parameter.grad, short.grad = torch.tensor([6.0, 8.0]), torch.full((1,), 0.01)
    zero = nn.Parameter(torch.zeros(1))
    zero.grad = torch.ones(1)
    AdaptiveClip(0.1, floor=1e-3)([parameter, short, zero])
    torch.testing.assert_close(parameter.grad, torch.tensor([0.3, 0.4]))
    torch.testing.assert_close(short.grad, torch.full((1,), 0.01))
    torch.testing.assert_close(zero.grad, torch.full((1,), 1e-4))


def flat_adam(module, max_grad_norm=0.5):
    """Return the optimiser under test."""
    make = partial(torch.optim.Adam, eps=1e-5, fused=True)
    return FlatOptimizer(module, make, max_grad_norm=max_grad_norm)


@pytest.mark.parametrize(
    ("make", "max_grad_norm"),
    [
        (partial(torch.optim.Adam, lr=1e-2, eps=1e-5), 0.05),
        (partial(torch.optim.Adam, lr=1e-2, eps=1e-5), 1e9),
        (partial(torch.optim.RMSprop, lr=7e-4, alpha=0.99, eps=1e-5), 0.5),
    ],
)
def test_equals_torch_with_clipping(make, max_grad_norm):
    """100 steps with a changing learning rate end in the same parameters."""
    module = network()
    twin = copy.deepcopy(module)
    ours = FlatOptimizer(module, make, max_grad_norm=max_grad_norm)
    theirs = make(list(twin.parameters()))
    for step in range(100):
        learning_rate = make.keywords["lr"] * (1 - step / 100)
        ours.step(loss_of(module, step, 3.0), learning_rate)
        theirs.param_groups[0]["lr"] = learning_rate
        theirs.zero_grad()
        loss_of(twin, step, 3.0).backward()
        nn.utils.clip_grad_norm_(twin.parameters(), max_grad_norm)
        theirs.step()
    for a, b in zip(module.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_views_stay_valid():
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


def test_frozen_parameters_stay():
    """Parameters without a gradient are not in the flat tensor."""
    module = network()
    module[0].requires_grad_(False)
    before = module[0].weight.clone()
    ours = flat_adam(module)
    ours.step(loss_of(module, 0), 1e-2)
    assert torch.equal(module[0].weight, before)
    assert len(ours.parameters) == 8 * 2 + 2


def test_state_is_a_copy():
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
def test_replaced_gradient_is_detected(reset):
    """A gradient that is not a view any more would be lost silently."""
    module = network()
    ours = flat_adam(module)
    module[0].weight.grad = reset
    with pytest.raises(RuntimeError, match=r"was replaced; call FlatOptimizer\.step instead"):
        ours.step(loss_of(module, 0), 1e-2)


def replace_data(module):
    """Give a parameter other data, as ``nn.Module.half`` does."""
    module[0].weight.data = module[0].weight.data.clone()


def replace_parameter(module):
    """Put another parameter into a layer."""
    module[2].bias = nn.Parameter(module[2].bias.detach().clone())


def add_layer(module):
    """Put another layer behind the others."""
    module.append(nn.Linear(2, 2))


@pytest.mark.parametrize(
    "replace",
    [replace_data, replace_parameter, add_layer, flat_adam],
)
def test_replaced_parameters_are_detected(replace):
    """Steps would not reach parameters that are not views any more."""
    module = network()
    ours = flat_adam(module)
    ours.step(loss_of(module, 0), 1e-2)
    ours.require_views()
    replace(module)
    with pytest.raises(RuntimeError, match=r"of the Sequential were replaced, .*copy_\(values\)"):
        ours.require_views()


def test_values_written_in_place_are_learnt_from():
    """Loading, copying and freezing leave the views what they are."""
    module = network()
    ours = flat_adam(module)
    module.load_state_dict(network(1).state_dict())
    module[0].weight.data.copy_(torch.ones(8, 3))
    module[2].requires_grad_(False)
    ours.require_views()
    assert torch.equal(ours.parameters[:24], torch.ones(24))


@pytest.mark.parametrize(
    ("value", "finite"),
    [(1.0, True), (3e38, True), (float("nan"), False), (-float("inf"), False)],
)
@pytest.mark.parametrize("kind", KINDS)
def test_finite_parameters_are_reported(kind, value, finite):
    """Their sum may overflow where each of them is a number."""
    module = network()
    ours = kind(module, ADAM)
    module[2].bias.data.fill_(value)
    assert ours.is_finite() is finite


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Tanh(), "needs trainable parameters, and has none"),
        (nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1).double()]),
         "must share one dtype and device, .*float32.*float64"),
    ],
)  # fmt: skip
def test_unequal_or_no_parameters_are_refused(module, message):
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
def test_wrong_state_is_a_checkpoint_error(change, message):
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
def test_state_before_the_first_step_is_what_the_optimiser_keeps(make):
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


def test_steps_taken_elsewhere_are_gone_on_from():
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


@pytest.mark.parametrize(
    "make",
    [torch.optim.Adam, lambda p: torch.optim.Adam(p, fused=True), partial(dict)],
    ids=["class", "function", "other class"],
)
def test_other_makers_are_refused(make):
    """The class and its options are to be known before the optimiser is made."""
    with pytest.raises(TypeError, match=r"must be a functools\.partial of an optimiser's class"):
        FlatOptimizer(network(), make)
