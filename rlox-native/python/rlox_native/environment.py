"""Settings from environment variables."""

import os

MAX_THREADS = 1024


def num_threads() -> int | None:
    """Return the number of threads of ``RLOX_NUM_THREADS``; ``None`` is one per core.

    Raises:
        ValueError: the variable is neither ``auto`` nor a number in [1, 1024].
    """
    text = os.environ.get("RLOX_NUM_THREADS", "").strip()
    if text in ("", "auto"):
        return None
    if text.isdecimal() and 1 <= int(text) <= MAX_THREADS:
        return int(text)
    raise ValueError(
        f"RLOX_NUM_THREADS must be auto or a number in [1, {MAX_THREADS}], got '{text}'; "
        "unset it for one thread per core"
    )
