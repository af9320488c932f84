"""Input parsing and random words for the reference replay buffers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from rlox.kernels.reference.arrays import Array, shaped
from rlox.kernels.reference.arrays import size as parse_size

OBS_DTYPES = ("uint8", "int32", "int64", "float32", "float64")
ACT_DTYPES = ("float32", "int64")

UNKNOWN_NEXT_OBS = (
    "the buffer holds transitions that were pushed without next_obs, so there is nothing to "
    "bootstrap from; push next_obs with every transition"
)


class PartialBatch(dict[str, Any]):
    """A batch without next observations, from a buffer that does not know all of them."""

    def __missing__(self, key: str) -> Any:
        raise KeyError(UNKNOWN_NEXT_OBS if key == "next_obs" else key)


def parse_shape(name: str, dim: SupportsIndex | Sequence[SupportsIndex]) -> tuple[int, ...]:
    """Return the shape for an integer or a sequence of integers."""
    return tuple(parse_size(name, n) for n in (dim if isinstance(dim, Sequence) else (dim,)))


def parse_dtype(name: str, dtype: npt.DTypeLike, allowed: Sequence[str]) -> np.dtype[Any]:
    """Return a dtype that is one of ``allowed``."""
    found = _dtype(dtype)
    if found is None or found.name not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {dtype!r}")
    return found


def empty_fields(capacity: int, fields: Mapping[str, tuple[Any, Any]]) -> dict[str, Array]:
    """Return empty rows of numeric fields, given by shape and dtype."""
    made = {}
    for field, (shape, dtype) in fields.items():
        found = _dtype(dtype)
        if found is None or found.kind not in "biuf":
            got = dtype if found is None else found
            raise ValueError(f"fields must hold real numbers, got dtype {got} for '{field}'")
        made[field] = np.zeros((capacity, *parse_shape("fields", shape)), found)
    return made


def _dtype(dtype: npt.DTypeLike) -> np.dtype[Any] | None:
    try:
        return np.dtype(dtype)
    except (SyntaxError, TypeError, ValueError):  # SyntaxError for some texts, such as ","
        return None


def convert(name: str, values: npt.ArrayLike, shape: tuple[int, ...], like: Array) -> Array:
    """Return ``values`` in the dtype of ``like``; refuse numbers not finite or out of range."""
    raw = np.asarray(values)
    if raw.size and raw.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers, got dtype {raw.dtype}")
    element = like.shape[1:]
    if math.prod(element) == 1 and raw.shape == shape[: len(shape) - len(element)]:
        raw = raw.reshape(shape)
    if raw.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {raw.shape}")
    if not np.isfinite(raw).all():
        raise ValueError(f"{name} must be finite")
    with np.errstate(over="ignore", invalid="ignore"):
        converted = raw.astype(like.dtype)
    rounds = converted.dtype.kind == "f"
    if not (np.isfinite(converted).all() and (rounds or (converted == raw).all())):
        raise ValueError(f"{name} must fit {like.dtype}")
    return converted


def one_row(
    fields: dict[str, Array],
    obs: Any,
    action: Any,
    reward: Any,
    terminated: Any,
    truncated: Any,
    next_obs: Any,
) -> dict[str, Array]:
    """Return one checked transition, in arrays with one row."""
    given = {"obs": obs, "action": action, "reward": _element(reward)}
    given |= {} if next_obs is None else {"next_obs": next_obs}
    rows = {}
    for name, value in given.items():
        key = {"action": "actions", "reward": "rewards"}.get(name, name)
        rows[key] = convert(name, value, fields[key].shape[1:], fields[key])[None]
    rows["terminated"] = np.array([float(_element(terminated)) != 0])
    rows["truncated"] = np.array([float(_element(truncated)) != 0])
    return rows


def _element(value: Any) -> Any:
    """Return the element of a list or an array of one; anything else unchanged."""
    array = np.asarray(value)
    return array.item() if array.ndim and array.size == 1 else value


def many_rows(
    fields: dict[str, Array],
    obs: Any,
    actions: Any,
    rewards: Any,
    terminated: Any,
    truncated: Any,
    next_obs: Any,
) -> dict[str, Array]:
    """Return n checked transitions, in arrays with n rows."""
    given = {"obs": obs, "actions": actions, "rewards": rewards}
    given |= {} if next_obs is None else {"next_obs": next_obs}
    n = len(np.asarray(rewards))
    rows = {}
    for name, value in given.items():
        rows[name] = convert(name, value, (n, *fields[name].shape[1:]), fields[name])
    for name, value in {"terminated": terminated, "truncated": truncated}.items():
        if np.shape(value) != (n,):
            raise ValueError(f"{name} must have shape {(n,)}, got {np.shape(value)}")
        rows[name] = np.asarray(value) != 0
    return rows


def recorded_shape(
    name: str,
    array: Array,
    n: int,
    dim_name: str,
    dim: SupportsIndex | Sequence[SupportsIndex] | None,
) -> tuple[int, ...]:
    """Return the shape of each of n rows: the given one, or that from the size of the array."""
    if n == 0:
        raise ValueError("rewards must hold at least 1 number, got 0")
    if dim is not None:
        return parse_shape(dim_name, dim)
    if array.ndim > 1 and array.size:
        return array.shape[1:]
    if array.ndim == 1 and array.size and array.size % n == 0:
        return (array.size // n,)
    raise ValueError(
        f"{name} must hold as many numbers for each of {n} rewards, got shape {array.shape}"
    )


def recorded_rows(array: Array, shape: tuple[int, ...]) -> Array:
    """Return a flat array as rows of a shape, and any other array unchanged."""
    if array.ndim == 1 and array.size == math.prod(shape):
        return array.reshape(shape)
    return array


def stream_words(rng: np.random.Generator) -> Array:
    """Return the state of a generator as six words, in the format of the Rust buffers."""
    state: Any = rng.bit_generator.state
    words = [
        state["state"][key] >> shift & 2**64 - 1 for key in ("state", "inc") for shift in (64, 0)
    ]
    spare = state["uinteger"] if state["has_uint32"] else 0
    return np.array([*words, state["has_uint32"], spare], np.uint64)


def stream(words: Array) -> np.random.Generator:
    """Return the generator with these :func:`stream_words`."""
    if np.shape(words) != (6,):
        raise ValueError(f"rng must have shape (6,), got {np.shape(words)}")
    high, low, inc_high, inc_low, has_spare, spare = (int(word) for word in words)
    if not inc_low & 1 or has_spare > 1 or spare >= 2**32:
        raise ValueError("rng is not a valid state")
    bits = np.random.PCG64()
    bits.state = {
        "bit_generator": "PCG64",
        "state": {"state": high << 64 | low, "inc": inc_high << 64 | inc_low},
        "has_uint32": has_spare,
        "uinteger": spare,
    }
    return np.random.Generator(bits)


def parse_queue(state: Mapping[str, Any], n_envs: int, length: int) -> tuple[Array, Array, Array]:
    """Return the checked counts and queue of a saved buffer of streams.

    Args:
        state: with ``totals`` (n_envs,), ``queued`` (n_envs,) and ``queue`` (K, 2).
        n_envs: number of streams.
        length: number of rows of a queued sequence after its context.
    """
    counts = (shaped(key, state[key], (n_envs,)) for key in ("totals", "queued"))
    totals, queued = (count.astype(np.int64) for count in counts)
    if (totals < 0).any() or (totals > np.iinfo(np.int64).max // 2 // n_envs).any():
        raise ValueError(f"totals must hold counts of rows, got {totals}")
    if (queued < 0).any() or (queued > totals).any():
        raise ValueError(f"queued must lie in [0, totals], got {queued}")
    queue = shaped("queue", state["queue"], (len(state["queue"]), 2)).astype(np.int64)
    complete = queue[:, 1] + length < totals[queue[:, 0] % n_envs]
    if not (complete & (queue >= 0).all(-1) & (queue[:, 0] < n_envs)).all():
        raise ValueError("queue must name sequences whose rows are all stored")
    return totals, queued, queue
