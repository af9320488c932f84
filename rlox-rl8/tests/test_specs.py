"""Importing the distribution does not affect the rest of the process."""

import subprocess
import sys

import pytest


@pytest.mark.slow  # importing torchrl takes seconds
def test_the_start_method_of_processes_stays():
    """Torchrl sets it at import, which must not affect a user's own processes."""
    code = (
        "import multiprocessing\n"
        "import rlox_rl8.algorithms\n"
        "assert multiprocessing.get_start_method(allow_none=True) is None\n"
    )
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code], text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
