"""A stdout that ignores broken pipes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

__all__ = ["PipeSafeStdout", "stdout_is_broken"]


class PipeSafeStdout:
    """A stdout that discards text after a write error, as of a broken pipe.

    Such errors come after ``| head``, a closed terminal or a full disk. What a training prints
    is in its folder too. :func:`stdout_is_broken` says whether there was such an error.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None
        """The first write error, if there was one."""

    def write(self, text: str) -> int:
        """Write text, or discard it."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush the buffer, or discard it."""
        self._try(self._stream.flush)

    def _try(self, send: Callable[[], object]) -> None:
        try:
            send()
        except OSError as error:
            self.error = error
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())  # what is still in the buffer goes there too
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def stdout_is_broken() -> bool:
    """Return whether a write to stdout has failed."""
    return getattr(sys.stdout, "error", None) is not None
