"""Signal handling: SIGINT, SIGTERM and SIGHUP."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["HANG_UP", "ending_signals", "handling_signals"]

HANG_UP = getattr(signal, "SIGHUP", signal.SIGTERM)  # Windows has none
"""Says that the terminal, or who read the output, is gone. It may come along with another signal,
as with a Ctrl-C that ends ``| tee`` too, so that the two count as one."""


def ending_signals() -> list[int]:
    """Return SIGINT, SIGTERM and, unless ``nohup`` has it ignored, :data:`HANG_UP`."""
    hang_up = [] if signal.getsignal(HANG_UP) is signal.SIG_IGN else [int(HANG_UP)]
    return list(dict.fromkeys([int(signal.SIGINT), int(signal.SIGTERM), *hang_up]))


@contextmanager
def handling_signals(handle: Callable[[int], None]) -> Iterator[None]:
    """Call ``handle`` in the block when a signal comes that ends a training, as often as one comes.

    A hang-up after another signal is left out.
    """
    came = False

    def handler(number: int, _frame: FrameType | None) -> None:
        nonlocal came
        if not (came and number == HANG_UP):
            came = True
            handle(number)

    previous = {number: signal.signal(number, handler) for number in ending_signals()}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)
