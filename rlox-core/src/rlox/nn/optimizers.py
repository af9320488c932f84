"""Optimisers: all parameters of a module as one tensor, clipped and stepped.

For RL's small networks most of an optimiser step is per-tensor overhead: a norm, a scale and an
update for each of a dozen tensors. Here parameters and gradients are views of two flat tensors, so
a step is one norm, one scale and one update for any module.

Torch's optimiser is made on first use: making one imports torch's compiler, which takes longer than
a small training, and a learner that takes the steps itself only needs the optimiser's state.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlox.errors import CheckpointError, ConfigError
from rlox.nn.devices import torch_threads
from rlox.ranks import RANKS

ELEMENTWISE: tuple[type[torch.optim.Optimizer], ...] = (
    torch.optim.Adadelta,
    torch.optim.Adagrad,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.SGD,
)
"""Classes that treat every element alike, regardless of its tensor."""


def class_and_options(
    make_optimizer: partial[Any],
) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    """Return the optimiser's class and all its options, defaults included."""
    made = getattr(make_optimizer, "func", None)
    if not (isinstance(made, type) and issubclass(made, torch.optim.Optimizer)):
        raise TypeError(
            "make_optimizer must be a functools.partial of an optimiser's class, such as "
            f"partial(torch.optim.Adam, eps=1e-5), got {make_optimizer!r}"
        )
    options = inspect.signature(make_optimizer).parameters.values()
    return made, {o.name: o.default for o in options if o.default is not o.empty}


def state_of_one_element(make_optimizer: partial[Any], like: Tensor) -> dict[str, Tensor]:
    """Return the optimiser's state for one element, to know it before the first step."""
    element = torch.zeros(1, dtype=like.dtype, device=like.device)
    element.grad = torch.zeros_like(element)
    optimizer = make_optimizer([element])
    optimizer.step()
    return dict(optimizer.state[element])


Clip = Callable[[Sequence[nn.Parameter]], None]
"""Scales the gradients of a module's trainable parameters in place."""


def require_one_bound(max_grad_norm: float | None, clip: Clip | None) -> None:
    """Check that an optimiser's gradients have at most one bound.

    Raises:
        ValueError: both a norm and a rule are given.
    """
    if clip is not None and max_grad_norm is not None:
        raise ValueError(
            f"max_grad_norm={max_grad_norm} and clip= both bound the gradient; leave one out"
        )


class AdaptiveClip:
    """Bounds each parameter's gradient by a share of the parameter's own norm (AGC).

        g ← g min(1, c max(‖w‖, ε) / ‖g‖)

    Args:
        share: c > 0, 0.3 in DreamerV3.
        floor: ε, lower bound of a parameter's norm.

    Raises:
        ValueError: ``share`` or ``floor`` is not positive.

    Source:
        Brock et al. 2021, "High-performance large-scale image recognition without normalization",
        eq. 3. Deviation, as in DreamerV3: one norm per parameter instead of per row.
    """

    def __init__(self, share: float = 0.3, floor: float = 1e-3) -> None:
        for name, value in (("share", share), ("floor", floor)):
            if not value > 0:
                raise ValueError(f"{name} must be above 0, got {value}")
        self.share = share
        self.floor = floor

    @torch.no_grad()
    def __call__(self, parameters: Sequence[nn.Parameter]) -> None:
        """Scale the gradients in place."""
        moved = [p for p in parameters if p.grad is not None and p.numel()]
        gradients = [p.grad for p in moved if p.grad is not None]
        # one call for all norms, since a network has a hundred parameters, mostly small ones
        norms = torch.stack(torch._foreach_norm(gradients))
        bounds = (
            torch.stack(torch._foreach_norm(list[Tensor](moved))).clamp(min=self.floor) * self.share
        )
        shares = torch.clamp(bounds / norms.clamp(min=1e-12), max=1.0)
        torch._foreach_mul_(gradients, list(shares.unbind()))


_MOMENTS: dict[Any, tuple[str, ...]] = {
    torch.optim.Adam: ("exp_avg", "exp_avg_sq"),
    torch.optim.RMSprop: ("square_avg",),
}
"""State of these per element, unless one of the options below adds to it."""

_MORE_MOMENTS = ("amsgrad", "centered", "momentum")


def flatten_parameters(module: nn.Module) -> Tensor:
    """Make all parameters of a module views of one flat tensor, and return it.

    Afterwards do not move the module to another device.

    Args:
        module: its parameters must share one dtype and device.

    Returns:
        (P,) the parameters in the module's order.

    Raises:
        ConfigError: there are no parameters.
        ValueError: they differ in dtype or device.
    """
    return _flatten(list(module.parameters()))


def _flatten(parameters: Sequence[nn.Parameter]) -> Tensor:
    kinds = {(p.dtype, p.device) for p in parameters}
    if not kinds:
        raise ConfigError("a network that is to learn needs trainable parameters, and has none")
    if len(kinds) != 1:
        raise ValueError(
            f"the parameters must share one dtype and device, got {sorted(map(str, kinds))}"
        )
    flat = torch.cat([p.detach().flatten() for p in parameters])
    for p, part in zip(parameters, torch.split(flat, [p.numel() for p in parameters]), strict=True):
        p.data = part.view(p.shape)
    return flat


class FlatOptimizer:
    """An elementwise torch optimiser over all parameters of a module.

    The module's parameters and gradients become views of :attr:`parameters` and :attr:`gradients`.
    Afterwards do not move the module to another device, do not set its gradients to ``None``, and
    write new values into the parameters (``parameter.data.copy_(values)``,
    ``module.load_state_dict(values)``) instead of replacing them, since steps would not reach new
    ones. :meth:`require_views` detects that. Every training calls it once per iteration; a loop of
    your own has to.

    Args:
        module: its trainable parameters must share one dtype and device.
        make_optimizer: class and options of an optimiser that treats every element alike, such as
            ``functools.partial(torch.optim.Adam, eps=1e-5, fused=True)``.
        max_grad_norm: longer gradients are scaled down to this Euclidean norm; ``None`` does not
            clip.
        clip: a rule for the gradients that replaces ``max_grad_norm``, see
            :data:`rlox.nn.optimizers.Clip`; ``None`` uses ``max_grad_norm``.

    Raises:
        TypeError: ``make_optimizer`` is not a partial of an optimiser's class.
        ValueError: the parameters differ in dtype or device, or there are none; the optimiser has
            no such option.
    """

    def __init__(
        self,
        module: nn.Module,
        make_optimizer: partial[Any],
        *,
        max_grad_norm: float | None = None,
        clip: Clip | None = None,
    ) -> None:
        require_one_bound(max_grad_norm, clip)
        self.clip = clip
        """Rule that bounds the gradients instead of the Euclidean norm, or ``None``."""
        self.optimizer_class, self.options = class_and_options(make_optimizer)
        parameters = [p for p in module.parameters() if p.requires_grad]
        self.parameters = _flatten(parameters)
        """(P,) all trainable parameters, in the module's order."""
        self.gradients = torch.zeros_like(self.parameters)
        """(P,) their gradients."""
        self._module = module
        self._found = list(module.parameters())
        self._views = parameters
        self._offsets = []
        offset = 0
        for p in parameters:
            span = slice(offset, offset + p.numel())
            p.grad = self.gradients[span].view(p.shape)
            self._offsets.append(offset * p.element_size())
            offset += p.numel()
        self.parameters.grad = self.gradients
        self.max_grad_norm = max_grad_norm
        self._make_optimizer = make_optimizer
        self._applied = True
        self._state: dict[str, Tensor] = {}  # the same dict object that torch's optimiser fills

    @cached_property
    def torch_optimizer(self) -> torch.optim.Optimizer:
        """The optimiser of :attr:`parameters`; loading a state replaces it."""
        optimizer: torch.optim.Optimizer = self._make_optimizer([self.parameters])
        optimizer.state[self.parameters].update(self._state)
        self._state = optimizer.state[self.parameters]
        return optimizer

    def require_views(self) -> None:
        """Check that the module's parameters were not replaced and are views of :attr:`parameters`.

        Raises:
            RuntimeError: a parameter or its data was replaced, for example by a second optimiser of
                the module, so that steps would not reach it.
        """
        found = list(self._module.parameters())
        if len(found) == len(self._found) and all(map(operator.is_, found, self._found)):
            start = self.parameters.data_ptr()
            places = zip(self._views, self._offsets, strict=True)
            # empty parameters have no address
            if all(p.data_ptr() == start + at for p, at in places if p.numel()):
                return
        raise RuntimeError(
            f"parameters of the {type(self._module).__name__} were replaced, or another optimiser "
            "was made for it, and training would not reach them; write new values in place, with "
            "parameter.data.copy_(values) or load_state_dict(values), and train a copy "
            "(copy.deepcopy) with another algorithm"
        )

    def is_finite(self) -> bool:
        """Return whether all parameters are finite."""
        with torch_threads(1):
            # the sum takes a fraction of the time, and is finite if all are, unless it overflows
            total = self.parameters.sum().item()
            return math.isfinite(total) or bool(self.parameters.isfinite().all())

    def step(self, loss: Tensor, learning_rate: float) -> None:
        """Take one step down the gradient of ``loss`` alone; see :meth:`apply`.

        Args:
            loss: scalar.
            learning_rate: step size.

        Raises:
            RuntimeError: a parameter's gradient is no longer a view of :attr:`gradients`.
        """
        self._applied = True
        self.backward(loss)
        self.apply(learning_rate)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of ``loss``, a scalar, to :attr:`gradients`.

        The first call after a step zeroes them first.
        """
        if self._applied:
            self.gradients.zero_()
            self._applied = False
        loss.backward()  # type: ignore[no-untyped-call]

    def apply(
        self, learning_rate: float | None = None, *, scaler: torch.amp.GradScaler | None = None
    ) -> None:
        """Average the gradients over ranks, clip them and take one step down them.

        Args:
            learning_rate: step size; ``None`` takes the one in ``torch_optimizer.param_groups``,
                where torch's schedulers write it.
            scaler: has scaled the losses; the gradients are unscaled before clipping, and the step
                is skipped if they are not finite. The caller updates the scaler.

        Raises:
            RuntimeError: a parameter's gradient is no longer a view of :attr:`gradients`.
        """
        if any(p.grad is None or p.grad._base is not self.gradients for p in self._views):
            raise RuntimeError(
                "a parameter's gradient was replaced; call FlatOptimizer.step instead of "
                "optimizer.zero_grad() and step()"
            )
        for ranks in RANKS:
            ranks.average(self.gradients)
        if scaler is not None:
            scaler.unscale_(self.torch_optimizer)
        if self.clip is not None:
            self.clip(self._views)
        elif self.max_grad_norm is not None:
            norm = torch.linalg.vector_norm(self.gradients)
            shrinks = torch.clamp(self.max_grad_norm / (norm + 1e-6), max=1.0)
            # on a CPU, checking whether to multiply is free
            if shrinks.device.type != "cpu" or shrinks != 1.0:
                self.gradients.mul_(shrinks)
        if learning_rate is not None:
            self.torch_optimizer.param_groups[0]["lr"] = learning_rate
        if scaler is None:
            self.torch_optimizer.step()
        else:
            scaler.step(self.torch_optimizer)
        self._applied = True

    def state(self) -> dict[str, Tensor]:
        """Return the optimiser's state in its own tensors; all are 0 before the first step."""
        if not self._state:
            for name, element in self._state_template.items():
                like = self.parameters if element.dim() else element
                self._state[name] = torch.zeros_like(like)
        return dict(self._state)

    def state_dict(self) -> dict[str, Any]:
        """Return the moments and the number of steps as arrays; nothing before the first step."""
        return {name: value.cpu().numpy().copy() for name, value in self._state.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the moments and the number of steps.

        Raises:
            CheckpointError: the state belongs to another optimiser or other parameters.
        """
        if state and set(state) != set(self._state_template):
            raise CheckpointError(
                f"the optimiser's state must hold {sorted(self._state_template)}, got "
                f"{sorted(state)}"
            )
        restored = {}
        for name in state:
            element = self._state_template[name]
            shape = tuple(self.parameters.shape) if element.dim() else ()
            if np.shape(state[name]) != shape:
                raise CheckpointError(
                    f"the optimiser's {name} has shape {np.shape(state[name])}, expected {shape}"
                )
            restored[name] = torch.tensor(
                np.asarray(state[name]), dtype=element.dtype, device=element.device
            )
        self._state = restored
        self.__dict__.pop("torch_optimizer", None)

    @cached_property
    def _state_template(self) -> dict[str, Tensor]:
        """The optimiser's state for one element, by name."""
        moments = _MOMENTS.get(self.optimizer_class, ())
        more = any(self.options.get(name) for name in _MORE_MOMENTS)
        if not moments or more or self.parameters.device.type != "cpu":
            return state_of_one_element(self._make_optimizer, self.parameters)
        element = torch.zeros(1, dtype=self.parameters.dtype)
        return {"step": torch.zeros((), dtype=torch.float32), **dict.fromkeys(moments, element)}


class ModuleOptimizer:
    """A torch optimiser of any class over the parameters of a module, tensor by tensor.

    For classes that do not treat every element alike, such as ``torch.optim.Muon``, and for
    parameters of several dtypes or devices; otherwise :class:`FlatOptimizer` is faster.

    Args:
        module: its trainable parameters are optimised.
        make_optimizer: class and options, such as ``functools.partial(torch.optim.Adafactor)``.
        max_grad_norm: longer gradients are scaled down to this Euclidean norm; ``None`` does not
            clip.
        clip: a rule for the gradients that replaces ``max_grad_norm``, see
            :data:`rlox.nn.optimizers.Clip`; ``None`` uses ``max_grad_norm``.

    Raises:
        TypeError: ``make_optimizer`` is not a partial of an optimiser's class.
        ValueError: there are no trainable parameters, or both bounds of the gradient are given.
    """

    def __init__(
        self,
        module: nn.Module,
        make_optimizer: partial[Any],
        *,
        max_grad_norm: float | None = None,
        clip: Clip | None = None,
    ) -> None:
        require_one_bound(max_grad_norm, clip)
        self.optimizer_class, self.options = class_and_options(make_optimizer)
        self.max_grad_norm = max_grad_norm
        self.clip = clip
        self._module = module
        self._found = list(module.parameters())
        self._learnt = [p for p in self._found if p.requires_grad]
        if not self._learnt:
            raise ValueError(f"the {type(module).__name__} has no trainable parameters")
        self.torch_optimizer: torch.optim.Optimizer = make_optimizer(self._learnt)

    def require_views(self) -> None:
        """Check that the module's parameters were not replaced.

        Raises:
            RuntimeError: one was replaced, so that steps would not reach it.
        """
        found = list(self._module.parameters())
        if len(found) != len(self._found) or not all(map(operator.is_, found, self._found)):
            raise RuntimeError(
                f"parameters of the {type(self._module).__name__} were replaced, and training "
                "would not reach them; write new values in place, with parameter.data.copy_(values)"
            )

    def is_finite(self) -> bool:
        """Return whether all parameters are finite."""
        return all(bool(p.isfinite().all()) for p in self._learnt)

    def step(self, loss: Tensor, learning_rate: float) -> None:
        """Take one step down the gradient of ``loss`` alone; see :meth:`apply`."""
        self.torch_optimizer.zero_grad()
        self.backward(loss)
        self.apply(learning_rate)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of ``loss``, a scalar, to the gradients since the last step."""
        loss.backward()  # type: ignore[no-untyped-call]

    def apply(
        self, learning_rate: float | None = None, *, scaler: torch.amp.GradScaler | None = None
    ) -> None:
        """Average the gradients over ranks, clip them, take one step down them and drop them.

        Args:
            learning_rate: step size of every parameter group; ``None`` takes the ones in
                ``torch_optimizer.param_groups``.
            scaler: see :meth:`rlox.nn.FlatOptimizer.apply`.
        """
        for ranks in RANKS:
            for p in self._learnt:
                if p.grad is None:
                    p.grad = torch.zeros_like(p)
                ranks.average(p.grad)
        if scaler is not None:
            scaler.unscale_(self.torch_optimizer)
        if self.clip is not None:
            self.clip(self._learnt)
        elif self.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self._learnt, self.max_grad_norm)
        if learning_rate is not None:
            for group in self.torch_optimizer.param_groups:
                group["lr"] = learning_rate
        if scaler is None:
            self.torch_optimizer.step()
        else:
            scaler.step(self.torch_optimizer)
        self.torch_optimizer.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """Return the optimiser's state for each parameter, by its number in the module."""
        state = self.torch_optimizer.state_dict()["state"]
        return {
            str(i): {name: _saved(value) for name, value in kept.items()}
            for i, kept in state.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            CheckpointError: the state belongs to other parameters.
        """
        unknown = [i for i in state if not i.isdigit() or int(i) >= len(self._learnt)]
        if unknown:
            raise CheckpointError(
                f"the optimiser's state is of parameters {', '.join(unknown)}, but there are "
                f"{len(self._learnt)}"
            )
        own = self.torch_optimizer.state_dict()
        own["state"] = {
            int(i): {name: _restored(value) for name, value in kept.items()}
            for i, kept in state.items()
        }
        self.torch_optimizer.load_state_dict(own)


def _saved(value: Any) -> Any:
    return value.detach().cpu().numpy().copy() if isinstance(value, Tensor) else value


def _restored(value: Any) -> Any:
    return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value


def make_optimizer(
    module: nn.Module,
    make: partial[Any],
    *,
    max_grad_norm: float | None = None,
    clip: Clip | None = None,
) -> FlatOptimizer | ModuleOptimizer:
    """Return a flat optimiser if the class allows it, else one that works tensor by tensor.

    Args:
        module: its trainable parameters are optimised.
        make: class and options; see :class:`FlatOptimizer`.
        max_grad_norm: see there.
        clip: see there.
    """
    kind, _ = class_and_options(make)
    parameters = [p for p in module.parameters() if p.requires_grad]
    alike = len({(p.dtype, p.device) for p in parameters}) == 1
    flat = kind in ELEMENTWISE and alike
    made = FlatOptimizer if flat else ModuleOptimizer
    return made(module, make, max_grad_norm=max_grad_norm, clip=clip)
