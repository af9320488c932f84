"""Importing the family changes nothing for the rest of the process."""

import subprocess
import sys

import pytest


@pytest.mark.slow  # to import torchrl takes seconds
def test_the_start_method_of_processes_stays():
    """Torchrl sets it when it is imported; a user's own processes must not notice."""
    code = (
        "import multiprocessing\n"
        "import rlox_rl8.algorithms\n"
        "assert multiprocessing.get_start_method(allow_none=True) is None\n"
    )
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code], text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
