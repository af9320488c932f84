"""State of envs as raw arrays, sent in pieces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from rlox.errors import EnvError
from rlox.protocols import StatefulVecEnv
from rlox.spaces.data import NUMBERS, number_dtype

from rlox_distributed.link import Link
from rlox_distributed.protocol import workers_pb2 as pb

Arrays = dict[str, npt.NDArray[Any]]

PIECE = 1 << 15
"""Bytes of a piece, which fits into every message."""

MAX_STATE = 1 << 28
"""Largest honest size of a state in bytes."""


def state_to_bytes(state: Mapping[str, Any]) -> bytes:
    """Return arrays of numbers by name as an ``EnvState``.

    Raises:
        EnvError: an array is not numeric, or the state is too large.
    """
    message = pb.EnvState()
    for name, value in state.items():
        array = np.asarray(value)
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        if not NUMBERS.fullmatch(little.dtype.str):
            raise EnvError(f"a sent state must be numbers, got {array.dtype} of '{name}'")
        message.arrays.add(
            name=name, dtype=little.dtype.str, shape=array.shape, data=little.tobytes()
        )
    data: bytes = message.SerializeToString()
    if len(data) > MAX_STATE:
        raise EnvError(f"the envs' state has {len(data):,} bytes, at most {MAX_STATE:,} are sent")
    return data


def state_from_bytes(data: bytes) -> Arrays:
    """Return the arrays packed by :func:`state_to_bytes`.

    Raises:
        ValueError: the bytes are not a state.
    """
    try:
        message = pb.EnvState.FromString(data)
        return {array.name: _array(array) for array in message.arrays}
    except (ArithmeticError, DecodeError, TypeError, ValueError) as error:
        raise ValueError(f"these bytes are not a state: {error}") from None


def _array(given: Any) -> npt.NDArray[Any]:
    dtype = number_dtype(given.dtype)
    array = np.frombuffer(given.data, dtype).reshape(tuple(given.shape))
    return array.astype(dtype.newbyteorder("="))


def fetch_state(link: Link, seconds: float) -> bytes:
    """Return the state of a worker's envs.

    Args:
        link: the worker's, without a request under way.
        seconds: time limit of each piece.

    Raises:
        EnvError: the pieces do not form a state.
        NewSessionError: the worker was restarted.
        WorkerLostError: it does not answer in time, or cannot be reached.
    """
    data, size = b"", 1
    while len(data) < size:
        link.send(pb.Request(save=pb.Save(offset=len(data))))
        saved = link.receive(seconds).saved
        size = saved.size if not data else size
        if size > MAX_STATE or (size and not saved.data) or len(data) + len(saved.data) > size:
            raise EnvError(
                f"the worker {link.address} sent {len(data) + len(saved.data):,} bytes of a state "
                f"of {size:,}"
            )
        data += saved.data
    return data


def send_state(link: Link, data: bytes, seconds: float) -> None:
    """Restore the state of a worker's envs; arguments and errors as in :func:`fetch_state`."""
    for offset in range(0, len(data), PIECE):
        piece = pb.Load(size=len(data), offset=offset, data=data[offset : offset + PIECE])
        link.send(pb.Request(load=piece))
        link.receive(seconds)


class ServedState:
    """A worker's side: the pieces of a state being saved and of one being loaded.

    Args:
        env: the env of the state.
    """

    def __init__(self, env: StatefulVecEnv) -> None:
        self._env = env
        self._saved = self._loading = b""

    def save(self, offset: int) -> Any:
        """Answer with the piece that begins at ``offset``."""
        if not offset:
            self._saved = state_to_bytes(self._env.state())
        data = self._saved[offset : offset + PIECE]
        return pb.Reply(saved=pb.Saved(size=len(self._saved), data=data))

    def take(self, piece: Any) -> Arrays | None:
        """Take a piece, and return the state if it was the last one.

        Raises:
            ValueError: it is not the next piece, or the pieces are not a state.
        """
        before = self._loading if piece.offset else b""
        self._loading = b""
        if piece.offset != len(before) or piece.size > MAX_STATE or not piece.data:
            raise ValueError(
                f"expected the piece at {len(before)} of a state of at most {MAX_STATE:,} bytes, "
                f"got {len(piece.data)} bytes at {piece.offset} of {piece.size:,}"
            )
        data = before + piece.data
        if len(data) < piece.size:
            self._loading = data
            return None
        return state_from_bytes(data)

    def load(self, state: Arrays | None) -> Any:
        """Restore a complete state; ``None`` does nothing."""
        if state is not None:
            self._env.set_state(state)
        return pb.Reply(loaded=pb.Loaded())
