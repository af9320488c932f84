"""Terms of losses: added losses, means over an iteration, metrics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from rlox.errors import CheckpointError, ConfigError, suggest
from rlox.ranks import RANKS

__all__ = [
    "AddedLoss",
    "AddedLosses",
    "Losses",
    "Scalar",
    "make_metrics",
    "mean_by_name",
    "mean_terms",
    "passes_target_kl",
]

MetricsT = TypeVar("MetricsT")

AddedLoss = Callable[[Any, Any], Tensor]
"""From a module and the batch it learns from to a scalar, which is added to the module's loss."""

Losses = Mapping[str, AddedLoss | Iterable[AddedLoss]]
"""Added losses by the name of the part that minimises them, such as ``"policy"``."""


class AddedLosses:
    """The losses that a user adds, by the part of the algorithm that minimises each.

    Each is logged, as its mean over an iteration's gradient steps, under the function's name.

    Args:
        losses: functions ``(module, batch) -> scalar`` by part; ``None`` adds none.
        parts: the names of the parts, those of ``algorithm.optimizers``.

    Raises:
        ConfigError: a part is unknown, two losses have one name, or one has no name.
        TypeError: a loss cannot be called.
    """

    def __init__(self, losses: Losses | None, parts: Collection[str]) -> None:
        self._losses: dict[str, dict[str, AddedLoss]] = {}
        self._collected: dict[str, list[Tensor]] = {}
        for part, given in (losses or {}).items():
            if part not in parts:
                raise ConfigError(
                    f"added_losses names the part '{part}'{suggest(part, parts)}; there are "
                    f"{', '.join(parts)}"
                )
            for loss in given if isinstance(given, Iterable) else (given,):
                self._add(part, loss)

    def _add(self, part: str, loss: AddedLoss) -> None:
        if not callable(loss):
            raise TypeError(
                f"added_losses['{part}'] must be functions (module, batch) -> scalar, got {loss!r}"
            )
        name = getattr(loss, "__name__", type(loss).__name__)
        if not name.isidentifier():
            raise ConfigError(
                f"an added loss is logged and saved under its name, and '{name}' is none; "
                "define it with def"
            )
        if name in self._collected:
            raise ConfigError(f"two added losses are called '{name}'; rename one")
        self._losses.setdefault(part, {})[name] = loss
        self._collected[name] = []

    def __bool__(self) -> bool:
        return bool(self._losses)

    @property
    def names(self) -> list[str]:
        """``part.function`` of every loss, sorted; checkpoints hold them."""
        return sorted(f"{part}.{name}" for part, found in self._losses.items() for name in found)

    def add(self, part: str, loss: Tensor, module: nn.Module, batch: Any) -> Tensor:
        """Return ``loss`` plus the part's added losses, and keep their values for the metrics.

        Args:
            part: whose loss it is.
            loss: scalar.
            module: what learns.
            batch: what it learns from.

        Raises:
            ValueError: a function returns something else than a scalar tensor.
        """
        for name, added in self._losses.get(part, {}).items():
            value = added(module, batch)
            if not isinstance(value, Tensor) or value.dim():
                got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise ValueError(
                    f"the added loss '{name}' must return a scalar tensor, got {got}; "
                    "take its mean over the batch"
                )
            self._collected[name].append(value.detach())
            loss = loss + value
        return loss

    def means(self) -> dict[str, float]:
        """Return each loss's mean over the gradient steps since the last call; NaN over none."""
        means = {
            name: float(torch.stack(values).mean()) if values else float("nan")
            for name, values in self._collected.items()
        }
        for values in self._collected.values():
            values.clear()
        return means

    def require_same(self, saved: Collection[str]) -> None:
        """Check the losses against those that a checkpoint was trained with.

        Raises:
            CheckpointError: one is missing or new.
        """
        if sorted(saved) != self.names:
            raise CheckpointError(
                f"it was trained with the added losses {sorted(saved) or 'none'}, got "
                f"{self.names or 'none'}; pass the same functions as added_losses="
            )


Scalar = Tensor | float
"""A tensor () without gradient, or a number of a learner that computes without torch."""


def mean_terms(kind: type[Any], terms: Sequence[Any]) -> dict[str, float]:
    """Return the means over gradient steps, in one transfer from the device.

    Args:
        kind: a dataclass of scalars, all tensors or all numbers.
        terms: instances of it, one a gradient step; of none the means are NaN.
    """
    names = [field.name for field in fields(kind)]
    if not terms:
        return dict.fromkeys(names, float("nan"))
    values = [value for each in terms for value in vars(each).values()]
    if isinstance(values[0], Tensor):
        means = torch.stack(values).reshape(len(terms), -1).mean(0).tolist()
    else:
        means = np.reshape(values, (len(terms), -1)).mean(0).tolist()
    return dict(zip(names, means, strict=True))


def mean_by_name(terms: Sequence[Mapping[str, Scalar]]) -> dict[str, float]:
    """Return the means of scalars by name, each over the mappings that have it.

    Args:
        terms: one mapping a gradient step, of numbers and of tensors, which cost one transfer from
            the device.
    """
    found: dict[str, list[Any]] = {}
    for each in terms:
        for name, value in each.items():
            found.setdefault(name, []).append(value)
    tensors = {name: torch.stack(v).mean() for name, v in found.items() if isinstance(v[0], Tensor)}
    means = torch.stack(list(tensors.values())).tolist() if tensors else []
    numbers = {name: float(np.mean(v)) for name, v in found.items() if name not in tensors}
    return numbers | dict(zip(tensors, means, strict=True))


KL_TOLERANCE = 1.5
"""Epochs end if the approximate KL passes so many times its target (openai/spinningup ppo)."""


def passes_target_kl(terms: Any, target_kl: float | None) -> bool:
    """Return whether the approximate KL is past 1.5 times ``target_kl``, if one is given.

    Raises:
        ConfigError: the terms have no ``approx_kl``.
    """
    if target_kl is None:
        return False
    if not hasattr(terms, "approx_kl"):
        raise ConfigError(
            f"target_kl needs an objective that reports approx_kl, got {type(terms).__name__}; "
            "add it to the terms, or leave target_kl out"
        )
    kl = float(terms.approx_kl)
    if RANKS:  # all stop, or none
        kl = RANKS[0].total(kl, "the stop at target_kl") / RANKS[0].size
    return kl > KL_TOLERANCE * target_kl


def make_metrics(
    kind: type[MetricsT], terms: Mapping[str, float], added: AddedLosses, **more: float
) -> MetricsT:
    """Return the metrics of an iteration.

    Args:
        kind: dataclass of the metrics. Those that nothing reports are NaN.
        terms: means of the loss's terms. Those that ``kind`` has no field for are put into its
            field ``added``, as means of the added losses are.
        added: the user's own losses.
        more: further metrics.
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    known = {name: value for name, value in terms.items() if name in names}
    beside = {name: value for name, value in terms.items() if name not in names}
    return kind(
        **{name: float("nan") for name in names} | known | more | {"added": beside | added.means()}
    )
