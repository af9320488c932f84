"""Preference data: which of two completions of a prompt is preferred."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["DPOPair"]

Tokens = npt.NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class DPOPair:
    """A prompt with a preferred and a rejected completion, as token ids.

    Args:
        prompt_tokens: (P,) non-negative integers below 2**32, as in all three.
        chosen_tokens: (C,) the preferred completion.
        rejected_tokens: (R,) the other.

    Raises:
        ValueError: an array has not one dimension, or an id is out of range.
        TypeError: an array holds something other than integers.

    Source:
        Rafailov et al. 2023, "Direct Preference Optimization", sec. 4.
    """

    prompt_tokens: Tokens
    """(P,) uint32."""
    chosen_tokens: Tokens
    """(C,) uint32."""
    rejected_tokens: Tokens
    """(R,) uint32."""

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "chosen_tokens", "rejected_tokens"):
            object.__setattr__(self, name, _token_ids(name, getattr(self, name)))

    def prompt_len(self) -> int:
        """Return the number of tokens of the prompt."""
        return len(self.prompt_tokens)

    def chosen_len(self) -> int:
        """Return the number of tokens of the preferred completion."""
        return len(self.chosen_tokens)

    def rejected_len(self) -> int:
        """Return the number of tokens of the rejected completion."""
        return len(self.rejected_tokens)


def _token_ids(name: str, values: npt.ArrayLike) -> Tokens:
    tokens = np.asarray(values)
    if tokens.ndim != 1:
        raise ValueError(f"{name} must have 1 dimension, got {tokens.ndim}")
    if tokens.dtype.kind not in "iu" and tokens.size:
        raise TypeError(f"{name} must be integers, got dtype {tokens.dtype}")
    if tokens.size and not (tokens.min() >= 0 and tokens.max() < 2**32):
        raise ValueError(f"{name} must lie in [0, {2**32 - 1}], got {tokens.min()}..{tokens.max()}")
    return tokens.astype(np.uint32)
