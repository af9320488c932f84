"""Limits of speed: env steps alone, and with the matrix products.

Two contenders of ``rlox bench`` that learn nothing. One steps the envs with random actions. The
other also does, in torch, the products and convolutions that it recorded from a training with the
torch backend, and nothing between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from rlox import api, registry
from rlox.cli.bench.random_steps import random_steps
from rlox.config.composition import selection
from rlox.envs import make_vec_env
from rlox.nn import torch_threads

__all__ = ["env_alone", "env_and_products"]

RECORDED = 512
"""Env steps, rounded up to whole iterations, whose products are recorded."""

_aten = torch.ops.aten
PRODUCTS = {
    _aten.mm, _aten.addmm, _aten.bmm, _aten.baddbmm, _aten.mv, _aten.addmv, _aten.dot,
    _aten.convolution, _aten.convolution_backward, _aten.mkldnn_rnn_layer,
    _aten.mkldnn_rnn_layer_backward,
}  # fmt: skip

Call = tuple[Any, tuple[Any, ...], Mapping[str, Any]]


def env_alone(algorithm: str, env: str, config: Mapping[str, Any]) -> Callable[[int], int]:
    """Return what steps the envs of a training with random actions, and does nothing else."""
    typed = registry.config_class(algorithm)(**config)
    envs = make_vec_env(
        env,
        n_envs=config["n_envs"],
        backend=selection(typed, "env_backend"),
        vectorization=config["vectorization"],
        env_kwargs=config["env_kwargs"],
    )
    step = random_steps(envs, config["seed"])

    def run(env_steps: int) -> int:
        steps = -(-env_steps // envs.n_envs)
        step(steps)
        return steps * envs.n_envs

    return run


def env_and_products(algorithm: str, env: str, config: Mapping[str, Any]) -> Callable[[int], int]:
    """Return what steps the envs and multiplies as often as a training with the torch backend."""
    step, products = env_alone(algorithm, env, config), Products()
    options = dict(config, backend="torch")
    if "learning_starts" in options:
        options["learning_starts"] = config["batch_size"]
    with api.make(algorithm, env, config=options) as learner:
        learner.train(RECORDED)  # which includes all that happens once
        before = learner.clock.env_steps
        with products:
            learner.train(RECORDED)
        recorded = learner.clock.env_steps - before

    def run(env_steps: int) -> int:
        done = step(env_steps)
        with torch_threads(config["torch_threads"]):
            products.run(done / recorded)
        return done

    return run


class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The matrix products and convolutions that run while this is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls: dict[Any, Call] = {}
        self._counts: Counter[Any] = Counter()

    @property
    def count(self) -> int:
        """How many were recorded."""
        return self._counts.total()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record a product, with tensors of its own if it is the first of its shapes."""
        kwargs = kwargs or {}
        if func.overloadpacket in PRODUCTS:
            key = (func, str(pytree.tree_map(_form, (args, kwargs))))
            self._counts[key] += 1
            if key not in self._calls:
                # later calls write to what they share, and NaN or denormals would slow it
                self._calls[key] = (func, *pytree.tree_map(_of_that_form, (args, kwargs)))
        return func(*args, **kwargs)

    def run(self, times: float) -> None:
        """Do each product ``times`` as often as it was recorded, rounded down."""
        with torch.no_grad():
            for key, (func, args, kwargs) in self._calls.items():
                for _ in range(int(self._counts[key] * times)):
                    func(*args, **kwargs)


def _form(value: Any) -> Any:
    """Return what says how long a product with a tensor takes; others as they are."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.stride(), str(value.dtype), str(value.device)
    return value


def _of_that_form(value: Any) -> Any:
    """Return a tensor of random numbers with the strides of another, 0 too; others as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    last = sum((n - 1) * stride for n, stride in zip(value.shape, value.stride(), strict=True))
    numbers = torch.zeros(last + 1, dtype=value.dtype, device=value.device)
    if numbers.is_floating_point():
        numbers.normal_()
    return numbers.as_strided(value.shape, value.stride())
