"""Memories of episodes that clients play, by name and in bounded number."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Session", "Sessions"]


@dataclass
class Session:
    """The episodes of one client."""

    rows: int
    """Observations of each request."""
    state: Mapping[str, Any]
    """What the policy remembers of them."""
    used: float
    busy: bool = False
    """Whether a request is under way."""


class Sessions:
    """Sessions by name, of which the least recently used are forgotten.

    Args:
        most_rows: episodes of all sessions together.
        seconds: after which an unused one is forgotten.
    """

    def __init__(self, most_rows: int, seconds: float) -> None:
        self._most_rows = most_rows
        self._seconds = seconds
        self._found: OrderedDict[str, Session] = OrderedDict()
        self.rows = 0
        """Episodes that are remembered."""

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._found)

    def get(self, name: str) -> Session | None:
        """Return a session; ``None`` if there is none, or it is forgotten."""
        self._forget()
        return self._found.get(name)

    def put(self, name: str, session: Session) -> None:
        """Keep a session as the one used last, and forget what there is no room for."""
        self.drop(name)
        session.used = time.monotonic()
        self._found[name] = session
        self.rows += session.rows
        self._forget()

    def drop(self, name: str) -> bool:
        """Forget a session and return whether there was one."""
        session = self._found.pop(name, None)
        self.rows -= 0 if session is None else session.rows
        return session is not None

    def _forget(self) -> None:
        oldest = time.monotonic() - self._seconds
        while self._found:
            name, session = next(iter(self._found.items()))
            if self.rows <= self._most_rows and session.used >= oldest:
                return
            self.drop(name)
