"""Stdout that nobody may read any more."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

__all__ = ["PatientStdout", "stdout_is_lost"]


class PatientStdout:
    """A stdout that fails nobody who prints: once it takes no more, text goes nowhere.

    That is so after ``| head``, with the terminal closed or on a full disk. What a training prints
    is in its folder too; what is to end asks :func:`stdout_is_lost`.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None
        """Why it takes no more, if so."""

    def write(self, text: str) -> int:
        """Write text, or lose it."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Send on what is in the buffer, or lose it."""
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


def stdout_is_lost() -> bool:
    """Return whether it has been found that stdout takes no more."""
    return getattr(sys.stdout, "error", None) is not None
