"""Static caches of keys and values for sampling with models of transformers."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from torch import Tensor

__all__ = ["fixed_layers", "with_room"]


def with_room(found: Any, index: Tensor, room: int) -> None:
    """Repeat the rows of a cache, and let its layers take further tokens without copying.

    Layers that keep all keys get tensors that hold the tokens to come; others, such as those of
    sliding windows, stay of their kind.

    Args:
        found: a cache of transformers with P rows, changed in place.
        index: (N,) the row of each of the new rows.
        room: most tokens that will be added.
    """
    dynamic, static = _classes()
    for place, layer in enumerate(found.layers):
        if type(layer) is dynamic and layer.get_seq_length() > 0:
            found.layers[place] = static(layer, index, room)
        else:
            layer.batch_select_indices(index)


def fixed_layers(found: Any) -> list[Any]:
    """Return the layers of a cache with room, each of which can be fixed in size.

    Raises:
        NotImplementedError: there is one of another kind.
    """
    for layer in found.layers:
        if type(layer) is not _classes()[1]:
            raise NotImplementedError(f"its cache has a {type(layer).__name__}")
    return list(found.layers)


@cache
def _classes() -> tuple[type[Any], type[Any]]:
    """Return the class of layers that grow by copying, and that of layers that do not."""
    base: Any = importlib.import_module("transformers.cache_utils").DynamicLayer

    class StaticLayer(base):  # type: ignore[misc]
        """Keys and values at the beginning of tensors with room for more."""

        place: Tensor | None
        """Where the next token goes, if the layer shows all of its room; it does not move then."""

        def __init__(self, layer: Any, index: Tensor, room: int) -> None:
            # as an initialised layer stands; the arguments of initialising differ by version
            self.__dict__.update(layer.__dict__)
            self.place = None
            self._keys, self._values = (_enlarged(x, index, room)
                                        for x in (layer.keys, layer.values))  # fmt: skip
            self._show(layer.keys.shape[2])

        def _show(self, length: int) -> None:
            self.keys, self.values = self._keys[:, :, :length], self._values[:, :, :length]

        def update(
            self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
        ) -> tuple[Tensor, Tensor]:
            if self.place is not None:
                self._keys.index_copy_(2, self.place, key_states.to(self._keys.dtype))
                self._values.index_copy_(2, self.place, value_states.to(self._values.dtype))
                return self.keys, self.values
            start, end = self.keys.shape[2], self.keys.shape[2] + key_states.shape[2]
            self._keys[:, :, start:end] = key_states
            self._values[:, :, start:end] = value_states
            self._show(end)
            return self.keys, self.values

        def fix(self, place: Tensor) -> None:
            """Show all of the room from now on, and put tokens where ``place`` (1,) says."""
            if self.place is None:  # what a mask hides is multiplied by 0, and must not be NaN
                for room in (self._keys, self._values):
                    room[:, :, self.keys.shape[2] :] = 0
            self.place = place
            self._show(self._keys.shape[2])

        def refill(self, layer: Any, index: Tensor) -> None:
            """Take the rows of another layer at ``index``, as when this one was made."""
            length = layer.keys.shape[2]
            self._keys[:, :, :length] = layer.keys[index]
            self._values[:, :, :length] = layer.values[index]

        def batch_select_indices(self, indices: Tensor) -> None:
            length = self.keys.shape[2]
            self._keys, self._values = self._keys[indices], self._values[indices]
            self._show(length)

    return base, StaticLayer


def _enlarged(values: Tensor, index: Tensor, room: int) -> Tensor:
    """Return rows (N, H, L + room, D) that begin with those of (P, H, L, D) at ``index``."""
    _, heads, length, size = values.shape
    made = values.new_empty(len(index), heads, length + room, size)
    made[:, :, :length] = values[index]
    return made
