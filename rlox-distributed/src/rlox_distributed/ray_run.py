"""Command lines of rlox that end with the process that started them.

They save first, as on any SIGTERM.
"""

from __future__ import annotations

import os
import signal
import threading

from rlox.cli import main


def _end_with_parent() -> None:
    os.read(0, 1)  # until the other end is closed; nothing is ever sent
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    main()
