"""NumPy generators as arrays, for states of envs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["generator_words", "set_generator_words"]

WORD = 2**64


def generator_words(generator: np.random.Generator) -> npt.NDArray[np.uint64]:
    """Return the state of a PCG64 generator as (6,) words."""
    state = generator.bit_generator.state
    numbers = (state["state"]["state"], state["state"]["inc"])
    words = [part for number in numbers for part in (number % WORD, number // WORD)]
    return np.array([*words, state["has_uint32"], state["uinteger"]], np.uint64)


def set_generator_words(generator: np.random.Generator, words: npt.ArrayLike) -> None:
    """Restore the state of a PCG64 generator from the words of :func:`generator_words`."""
    low, high, inc_low, inc_high, has_uint32, uinteger = np.asarray(words, np.uint64).tolist()
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": high * WORD + low, "inc": inc_high * WORD + inc_low},
        "has_uint32": has_uint32,
        "uinteger": uinteger,
    }
