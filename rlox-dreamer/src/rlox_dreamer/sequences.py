"""Rows of replayed streams, and batches of sequences drawn from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rlox.preprocessing import Preprocessor
from rlox.protocols import SequenceBuffer
from rlox.spaces.rows import ObservationRows, map_leaves
from torch import Tensor

from rlox_dreamer.rssm import Latent

__all__ = ["OBS", "Acted", "Batches", "SequenceBatch", "row_fields"]

Array = npt.NDArray[Any]

OBS = "obs"
"""Prefix of the fields that hold an observation's leaves."""


@dataclass(frozen=True)
class Acted:
    """What the policy did at N observations."""

    deter: Array
    """(N, D) float32."""
    stoch: Array
    """(N, S) classes."""
    actions: Array
    """(N, A) float32 as the model sees them."""
    env_actions: Any
    """N actions as the envs take them."""


@dataclass(frozen=True)
class SequenceBatch:
    """T consecutive rows of B streams, time-major, and the states before them."""

    obs: Any
    """(T, B, *shape) by leaf name, as the networks see them."""
    actions: Tensor
    """(T, B, A) that led to the observations."""
    rewards: Tensor
    """(T, B) that they paid."""
    is_first: Tensor
    """(T, B) bool."""
    is_last: Tensor
    """(T, B) bool, also where the next row begins an episode."""
    is_terminal: Tensor
    """(T, B) bool, whether the task ended."""
    context_deter: Tensor
    """(B, D) state after the row before."""
    context_stoch: Tensor
    """(B, S) classes of it."""
    indices: Array
    """(B, T) of the rows."""


def row_fields(
    space: Any, action_size: int, deter: int, stoch: int, classes: int
) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Return shape and dtype of the fields of a row."""
    empty = ObservationRows(space).empty(1)
    leaves = empty if isinstance(empty, dict) else {"": empty}
    index = np.uint8 if classes <= 256 else np.int16
    return {
        **{f"{OBS}{name}": (leaf.shape[1:], leaf.dtype) for name, leaf in leaves.items()},
        "action": ((action_size,), np.float32),
        "reward": ((), np.float32),
        "is_first": ((), np.bool_),
        "is_last": ((), np.bool_),
        "is_terminal": ((), np.bool_),
        "deter": ((deter,), np.float32),
        "stoch": ((stoch,), index),
    }


class Batches:
    """Draws sequences of a buffer for the networks, and writes their states back.

    Rows hold observations as the env gives them; they are normalised when they are seen.

    Args:
        buffer: with the fields of :func:`row_fields`.
        preprocessor: normalises; ``None`` leaves observations as they are.
        device: of the batches.
    """

    def __init__(
        self, buffer: SequenceBuffer, preprocessor: Preprocessor | None, device: torch.device
    ) -> None:
        self.buffer, self.preprocessor, self.device = buffer, preprocessor, device

    def see(self, obs: Any) -> Any:
        """Return what the networks see of observations (N, *shape) by leaf name."""
        seen = obs if self.preprocessor is None else self.preprocessor.begin(obs)
        return map_leaves(self._tensor, seen)

    def draw(self, count: int, length: int, seed: int | None = None) -> SequenceBatch:
        """Return ``count`` sequences of ``length`` rows; a seed leaves the next batches alone."""
        drawn = self.buffer.sample(count, length, seed)
        names = [name for name in drawn if name.startswith(OBS)]
        leaves = {
            name[len(OBS) :]: np.ascontiguousarray(drawn[name][:, 1:].swapaxes(0, 1))
            for name in names
        }
        flat = map_leaves(
            lambda leaf: leaf.reshape(-1, *leaf.shape[2:]),
            leaves[""] if list(leaves) == [""] else leaves,
        )
        is_first = self._sequence(drawn["is_first"])
        is_last = self._sequence(drawn["is_last"])
        is_last[:-1] |= is_first[1:]
        return SequenceBatch(
            obs=map_leaves(lambda leaf: leaf.unflatten(0, (length, count)), self.see(flat)),
            actions=self._sequence(drawn["action"]),
            rewards=self._sequence(drawn["reward"]),
            is_first=is_first,
            is_last=is_last,
            is_terminal=self._sequence(drawn["is_terminal"]),
            context_deter=self._tensor(drawn["deter"][:, 0]),
            context_stoch=self._tensor(drawn["stoch"][:, 0]),
            indices=drawn["indices"][:, 1:],
        )

    def write_back(self, indices: Array, latents: Latent) -> None:
        """Store the states that a model newly has of rows.

        Args:
            indices: (B, T) of the batch.
            latents: of its (T, B) steps.
        """
        stoch = latents.stoch.argmax(-1).transpose(0, 1).cpu().numpy()
        deter = latents.deter.transpose(0, 1).float().cpu().numpy()
        self.buffer.update(indices, {"deter": deter, "stoch": stoch})

    def _sequence(self, array: Array) -> Tensor:
        """Return (T, B, ...) of (B, T + 1, ...), without the context."""
        return self._tensor(array[:, 1:].swapaxes(0, 1))

    def _tensor(self, array: Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)
