"""Code run in several ranks on one machine, for tests."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

DEADLINE = 540.0
"""Time limit of all ranks in seconds."""


def run_in_ranks(
    code: str, *arguments: str, size: int, deadline: float = DEADLINE
) -> list[subprocess.CompletedProcess[str]]:
    """Run Python code in ranks that :func:`rlox.ranks.join_ranks` finds, as ``torchrun`` would.

    Args:
        code: the program.
        arguments: its ``sys.argv[1:]``.
        size: number of ranks; 1 is a training of one process.
        deadline: seconds until all are killed.

    Returns:
        Exit status and output of each rank.

    Raises:
        TimeoutExpired: the deadline passed.
    """
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = int(listening.getsockname()[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(size)}
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        subprocess.Popen(  # noqa: S603  # our own interpreter, and a test's code
            [sys.executable, "-c", code, *arguments],
            env={**environment, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    done = []
    try:
        for process in processes:
            output, errors = process.communicate(timeout=deadline)
            done.append(
                subprocess.CompletedProcess(process.args, process.returncode, output, errors)
            )
    finally:
        for process in processes:
            process.kill()
    return done
