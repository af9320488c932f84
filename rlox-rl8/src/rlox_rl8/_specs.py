"""Tensor specs of torchrl, imported without a change of the process."""

# ruff: noqa: PLC0414  # the form in which type checkers take names as handed on

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def _same_start_method() -> Iterator[None]:
    """Keep multiprocessing's start method, which torchrl makes ``"spawn"`` for the whole process.

    A user's own processes, such as those of gymnasium's ``AsyncVectorEnv``, would be started so.
    """
    before = multiprocessing.get_start_method(allow_none=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="failed to set start method")
        yield
    if multiprocessing.get_start_method(allow_none=True) != before:
        multiprocessing.set_start_method(before, force=True)


with _same_start_method():
    from torchrl.data import Binary as Binary
    from torchrl.data import Bounded as Bounded
    from torchrl.data import Categorical as Categorical
    from torchrl.data import Composite as Composite
    from torchrl.data import MultiCategorical as MultiCategorical
    from torchrl.data import TensorSpec as TensorSpec
    from torchrl.data import Unbounded as Unbounded


def kind_of(spec: Any) -> Any:
    """Return which of the classes above a spec is of; ``None`` of another.

    The order matters, as switches and choices of unequal numbers derive from ``Categorical``.
    """
    kinds = (Composite, Binary, MultiCategorical, Categorical, Bounded, Unbounded)
    return next((kind for kind in kinds if isinstance(spec, kind)), None)
