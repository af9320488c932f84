"""Options of huge values are refused before anything is built, for every algorithm."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from rlox import errors
from small_algorithms import ALGORITHMS

SCRIPT = Path(__file__).with_name("option_sizes.py")


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space, and forks")
@pytest.mark.timeout(900)
def test_huge_options_are_refused_or_harmless() -> None:
    """With an error of rlox that names what is wrong; none fills the memory or hangs."""
    output = subprocess.run(
        [sys.executable, SCRIPT], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    refused = Counter[str]()
    for name, option, value, outcome, text, _seconds in map(json.loads, output.splitlines()):
        case = name, option, value, outcome, text
        if outcome != "trained":
            refused[name] += 1
            assert issubclass(getattr(errors, outcome, type), errors.RloxError), case
            assert option in text or str(value) in text, case
    assert set(refused) == set(ALGORITHMS)
    assert min(refused.values()) > 4, refused
