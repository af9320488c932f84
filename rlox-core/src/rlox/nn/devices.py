"""Torch devices, threads, memory and random draws; the state and the modes of modules."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from rlox.errors import CheckpointError, ConfigError

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from glibc's malloc.h
_KEPT_BLOCK, _KEPT_IN_ALL = 256 << 20, 1 << 30


def find_device(name: str | torch.device) -> torch.device:
    """Return the torch device called ``name``.

    Raises:
        ConfigError: this machine has no such device, or it holds no numbers.
    """
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device '{name}' cannot be used: {reason}") from None
    return device


def set_matmul_precision(config: Any) -> None:
    """Set torch's precision of matrix products to a config's, unless it is the default."""
    if (precision := getattr(config, "matmul_precision", "highest")) != "highest":
        torch.set_float32_matmul_precision(precision)


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Run the block with ``count`` torch threads; ``None`` keeps torch's setting.

    On a small network, two threads spend more time waiting for each other than computing. Freed
    memory is kept from then on (:func:`keep_freed_memory`).
    """
    keep_freed_memory()
    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def keep_freed_memory() -> bool:
    """Have the process keep up to a GiB of freed memory, in blocks of up to 256 MiB.

    By default glibc at once returns blocks of more than 32 MiB, and free memory at the end of its
    heap, to the system. An update frees and allocates the same arrays again and again, and the
    system maps and clears every page each time: a third of an update of DreamerV3 on images.

    Returns:
        Whether that was set. It is not set with another C library, or if the environment configures
        glibc's allocator (``MALLOC_TRIM_THRESHOLD_``, ``MALLOC_MMAP_THRESHOLD_`` or
        ``GLIBC_TUNABLES``).
    """
    given = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
    if any(name in os.environ for name in given):
        return False
    if "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "") or os.name != "posix":
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    if not library.mallopt(_M_MMAP_THRESHOLD, _KEPT_BLOCK):
        library.mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the maximum in older versions
    return bool(library.mallopt(_M_TRIM_THRESHOLD, _KEPT_IN_ALL))


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Run the block with numbers below 1.2e-38 treated as 0, if the processor can do that.

    The moments of Adam decay to such numbers wherever gradients are 0, as behind idle ReLUs, and
    processors are many times slower with them. The setting applies to this thread only.
    """
    denormal = torch.tensor(1e-40)
    if not (denormal * 1).item() or not torch.set_flush_denormal(True):
        yield
        return
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@contextmanager
def acting() -> Iterator[None]:
    """Run the block without gradients and with constant parameters.

    Layers that compute in another precision (:func:`rlox.nn.set_compute_dtype`) convert their
    parameters once, at the first call in the block, instead of at every call, which takes a third
    of a call on a few images.
    """
    torch.autocast_increment_nesting()  # conversions are cached until the outermost block ends
    try:
        with torch.no_grad():
            yield
    finally:
        if not torch.autocast_decrement_nesting():
            torch.clear_autocast_cache()


def standard_normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return standard normal numbers of the shape and type of ``like``.

    They are drawn on the generator's device, so that a seed gives the same numbers on any device.
    """
    device = like.device if generator is None else generator.device
    noise = torch.randn(like.shape, generator=generator, device=device, dtype=like.dtype)
    return noise.to(like.device)


def uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    """Return numbers uniform in [-1, 1], drawn on ``generator``'s device."""
    drawn = torch.rand(like.shape, generator=generator, device=generator.device, dtype=like.dtype)
    return drawn.mul_(2).sub_(1).to(like.device)


BFLOAT16 = "$bfloat16"
"""Key of the bits of a bfloat16 tensor, a dtype that NumPy lacks."""


def _array(tensor: Tensor) -> Any:
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        return {BFLOAT16: tensor.view(torch.uint16).numpy().copy()}
    return tensor.numpy().copy()


def _tensor(value: Any) -> Tensor:
    if isinstance(value, Mapping) and set(value) == {BFLOAT16}:
        return torch.from_numpy(np.array(value[BFLOAT16], np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(value))


def module_state(module: nn.Module) -> dict[str, Any]:
    """Return a copy of a module's parameters and buffers as arrays; bfloat16 as its bits."""
    return {name: _array(tensor) for name, tensor in module.state_dict().items()}


def module_digest(module: nn.Module) -> str:
    """Return the SHA-256 of a module's parameters and buffers, their names, shapes and dtypes.

    Checkpoints hold it instead of weights that training does not change.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    return digest.hexdigest()


def require_digest(module: nn.Module, name: str, saved: str) -> None:
    """Check a module whose weights are in no checkpoint against the module of the training.

    Raises:
        CheckpointError: its weights differ.
    """
    if module_digest(module) != saved:
        raise CheckpointError(
            f"the weights of the {name} are not those that the training used; pass the same {name}"
        )


def load_module_state(module: nn.Module, state: Mapping[str, Any]) -> None:
    """Copy arrays into a module's parameters and buffers, in place.

    Raises:
        CheckpointError: names or shapes differ; nothing was copied.
    """
    own = module.state_dict()
    state = {name: _tensor(value) for name, value in state.items()}
    problems = [f"'{name}' is missing" for name in own if name not in state]
    problems += [f"'{name}' is unknown" for name in state if name not in own]
    problems += [
        f"'{name}' has shape {tuple(state[name].shape)}, expected {tuple(tensor.shape)}"
        for name, tensor in own.items()
        if name in state and state[name].shape != tensor.shape
    ]
    if problems:
        raise CheckpointError("the network differs from the saved one: " + "; ".join(problems))
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(state[name])


def parts_state(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the states of an algorithm's parts by name.

    Args:
        parts: modules, and other objects with ``state_dict`` and ``load_state_dict``.
    """
    return {
        name: module_state(part) if isinstance(part, nn.Module) else part.state_dict()
        for name, part in parts.items()
    }


def load_parts_state(parts: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Restore the states of an algorithm's parts, in their order.

    Raises:
        CheckpointError: a state is missing or does not fit.
    """
    for name, part in parts.items():
        if name not in state:
            raise CheckpointError(f"there is no state of '{name}'")
        if isinstance(part, nn.Module):
            load_module_state(part, state[name])
        else:
            part.load_state_dict(state[name])


_DEPEND = (_NormBase, _DropoutNd, nn.RReLU)


def learning_mode(networks: Iterable[Any]) -> AbstractContextManager[None]:
    """Return a context for gradient steps that puts networks into training mode.

    Outside it they are in evaluation mode. Dropout and batch normalisation thus use whole layers
    and running moments when a network acts, is evaluated or is another's target, as in
    Stable-Baselines3. Networks that compute the same in both modes are left alone.

    Args:
        networks: any objects; only modules that may depend on their mode are affected. Networks
            whose parameters do not learn, such as target networks, and parts already in evaluation
            mode, such as a frozen normalisation, are never in training mode.
    """
    depending = [each for each in networks if isinstance(each, nn.Module) and _depends(each)]
    learning = [
        module
        for network in depending
        if any(parameter.requires_grad for parameter in network.parameters())
        for module in network.modules()
        if module.training
    ]
    for network in depending:
        network.eval()
    return _Training(learning) if learning else nullcontext()


class _Training:
    """A context in which modules are in training mode."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._modules = modules

    def __enter__(self) -> None:
        for module in self._modules:
            module.training = True

    def __exit__(self, *_: object) -> None:
        for module in self._modules:
            module.training = False


def _depends(network: nn.Module) -> bool:
    """Return whether it may depend on training mode, as any user's class may."""
    return any(
        isinstance(module, _DEPEND) or not type(module).__module__.startswith(("torch.", "rlox"))
        for module in network.modules()
    )
