"""Validation of the first batch that a replay buffer returns.

A batch of other shapes would be broadcast against the networks' outputs, and learning be destroyed
without an error. One batch is enough, as the same code makes all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rlox.errors import ConfigError
from rlox.replay.buffers import BufferOptions
from rlox.seeding import SeedStreams

__all__ = ["require_transitions", "sampler"]

Conversion = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]

Sample = Callable[[int], Mapping[str, Any]]
"""From a number of transitions B to a batch of them."""


def sampler(buffer: Any, options: BufferOptions, streams: SeedStreams) -> Sample:
    """Return ``sample`` of a buffer, by seeds of the run if it has ``push`` alone and takes one.

    The first call raises what :func:`require_transitions` does. Numbers of other types are
    converted, discrete actions if they are whole (else a ValueError), and single actions (B,) are
    taken for (B, 1).

    Args:
        buffer: what :func:`rlox.replay.buffers.make_buffer` returned.
        options: what it was asked for.
        streams: of the run.
    """
    draw = _draw(buffer, streams)
    conversions: dict[str, Conversion] | None = None

    def sample(batch_size: int) -> Mapping[str, Any]:
        nonlocal conversions
        drawn = draw(batch_size)
        if conversions is None:
            conversions = require_transitions(drawn, buffer, batch_size, options)
        if not conversions:
            return drawn
        return {**drawn, **{key: convert(drawn[key]) for key, convert in conversions.items()}}

    return sample


def _draw(buffer: Any, streams: SeedStreams) -> Sample:
    by_rows = not hasattr(buffer, "push_batch")
    if not by_rows or "seed" not in inspect.signature(buffer.sample).parameters:
        return cast("Sample", buffer.sample)
    seeds = streams.numpy("replay draws")
    return lambda batch_size: buffer.sample(batch_size, seed=int(seeds.integers(2**32)))


def require_transitions(
    drawn: Any, buffer: object, batch_size: int, options: BufferOptions
) -> dict[str, Conversion]:
    """Check the keys, shapes and dtypes of a batch.

    Args:
        drawn: what ``sample`` of the buffer returned; see
            :meth:`rlox.protocols.ReplayBuffer.sample`.
        buffer: the buffer.
        batch_size: transitions B that were asked for.
        options: what the buffer was asked for.

    Returns:
        By key, what makes the array of it one of the type and shape that was asked for; only where
        it is another.

    Raises:
        ConfigError: the batch is another; the text names the buffer's class, the key, what was
            expected and what was there.
    """
    called = f"{type(buffer).__name__}.sample({batch_size})"
    if not isinstance(drawn, Mapping):
        raise ConfigError(f"{called} must return arrays by key, got {type(drawn).__name__}")
    n_step = max(options.n_step, getattr(buffer, "n_step", 1))
    if n_step > 1 and drawn.get("discounts") is None:
        raise ConfigError(
            f"{called} returns no 'discounts', which say how many steps its transitions span, "
            f"where n_step={n_step}; set n_step=1 or take buffer='uniform'"
        )
    # a buffer that has fewer than were asked for may return those
    rows = getattr(drawn.get("obs"), "shape", (batch_size,))[:1]
    expected: dict[str, tuple[tuple[int, ...], str]] = {
        "obs": ((*rows, *options.obs_shape), options.obs_dtype),
        "actions": ((*rows, *options.act_shape), options.act_dtype),
        "rewards": (rows, "float32"),
        "next_obs": ((*rows, *options.obs_shape), options.obs_dtype),
    }
    if drawn.get("discounts") is None:
        expected["terminated"] = rows, "bool"
    optional = {"terminated": "bool", "truncated": "bool", "discounts": "float32"}
    optional["weights"] = "float32"
    expected |= {key: (rows, dtype) for key, dtype in optional.items() if key in drawn}
    conversions: dict[str, Conversion] = {}
    for key, (shape, dtype) in expected.items():
        asked = f"{called} must return '{key}', an array {shape} of {dtype}"
        try:
            got = drawn[key]
        except KeyError as error:
            raise ConfigError(f"{asked}, got the keys {sorted(drawn)}: {error}") from None
        if not isinstance(got, np.ndarray):
            raise ConfigError(f"{asked}, got {type(got).__name__}")
        single = key == "actions" and got.shape == rows and shape == (*rows, 1)
        other = got.dtype != dtype
        # networks recognise images by their dtype
        numbers = got.dtype.kind in "biuf" and dtype != "uint8"
        if (got.shape != shape and not single) or (other and not numbers):
            raise ConfigError(f"{asked}, got {got.shape} of {got.dtype}")
        if single or (other and dtype != "bool"):
            whole = key == "actions" and dtype == "int64"
            conversions[key] = partial(_convert, dtype=dtype, single=single, whole=whole)
    return conversions


def _convert(array: npt.NDArray[Any], *, dtype: str, single: bool, whole: bool) -> npt.NDArray[Any]:
    with np.errstate(invalid="ignore"):  # a NaN is no whole number
        converted = array.astype(dtype, copy=False)
    if whole and len(wrong := array[array != converted]):
        raise ValueError(
            "discrete actions must be whole numbers, the replay buffer gave "
            f"{wrong[0].item():.6g}; make it with act_dtype='int64'"
        )
    return converted[:, None] if single else converted
