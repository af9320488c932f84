"""Command lines of rlox that end together with the process that started them.

They save first, as on every SIGTERM.
"""

from __future__ import annotations

import os
import signal
import threading

from rlox.cli import main


def _end_with_parent() -> None:
    os.read(0, 1)  # returns when the other end is closed; nothing is ever sent
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    # Ray blocks Ctrl-C in its processes, and so in those that they start
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    main()
