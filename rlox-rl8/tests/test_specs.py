"""Importing the family changes nothing for the rest of the process."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("method", [None, "fork", "spawn"])
def test_the_start_method_of_processes_stays(method: str | None) -> None:
    """Torchrl sets it when it is imported; a user's own processes must not notice."""
    code = (
        "import multiprocessing\n"
        f"method = {method!r}\n"
        "if method:\n"
        "    multiprocessing.set_start_method(method)\n"
        "import rlox_rl8.algorithms\n"
        "assert multiprocessing.get_start_method(allow_none=True) == method\n"
    )
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code], text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
