"""Losses by their registered names, and checks of their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from rlox.errors import UnknownNameError, suggest
from rlox.registry.table import get_registry
from torch import Tensor


def registered_loss(hook: str, name: str, options: Any = None) -> Callable[[Any], Any]:
    """Return the loss of a name, a function of a batch.

    Args:
        hook: ``"rlox_policy_losses"`` or ``"rlox_preference_losses"``.
        name: its registered name.
        options: an instance of the loss's options model; ``None``: its defaults.

    Raises:
        ValueError: no loss of that name is registered.
        PluginError: the loss is broken.
    """
    try:
        registered = get_registry().get(hook, name)
    except UnknownNameError as error:
        raise ValueError(str(error)) from None
    function, model = registered.load(), registered.options_model()
    if options is None and model is not None:
        options = model()
    loss = function if options is None else partial(function, options=options)
    try:
        with suppress(ValueError):  # compiled code may lack a signature
            inspect.signature(loss).bind(None)
    except TypeError as error:
        raise registered.broken(
            f"'{registered.spec.factory}' must be callable with (batch), and with the keyword "
            f"options if the spec names a model of options: {error}"
        ) from None
    return loss


def require_name(option: str, value: str, known: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``known``.

    Raises:
        ValueError: it is not; the message lists the known names.
    """
    names = list(known)
    if value not in names:
        raise ValueError(
            f"{option} must be one of {', '.join(names)}, got {value!r}{suggest(str(value), names)}"
        )
    return value


def require_shapes(shape: tuple[int, ...], tensors: Mapping[str, Tensor | None]) -> None:
    """Check shapes of tensors, because other shapes might broadcast silently.

    Raises:
        ValueError: a tensor has another shape than ``shape``.
    """
    for name, tensor in tensors.items():
        if tensor is not None and tuple(tensor.shape) != shape:
            raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")
