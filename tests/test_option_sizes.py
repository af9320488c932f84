"""Options of huge values end in an error, for every algorithm."""

import builtins
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import rlox
from rlox import errors
from rlox.errors import MemoryLimitError
from small_algorithms import ALGORITHMS

SCRIPT = Path(__file__).with_name("option_sizes.py")


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space, and forks")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "names", [["dqn"], pytest.param(ALGORITHMS, marks=pytest.mark.slow)], ids=["one", "all"]
)
def test_huge_options_are_refused_or_harmless(names):
    """With an error that names what is wrong, or torch's of an allocation; none hangs."""
    output = subprocess.run(
        [sys.executable, SCRIPT, *names], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    refused = Counter[str]()
    for name, option, value, outcome, text, _seconds in map(json.loads, output.splitlines()):
        case = name, option, value, outcome, text
        if outcome != "trained":
            refused[name] += 1
            kind = getattr(errors, outcome, getattr(builtins, outcome, type))
            assert issubclass(kind, (errors.RloxError, MemoryError, RuntimeError)), case
            named = option in text or str(value) in text
            assert named or (kind is RuntimeError and ("alloc" in text or "overflow" in text)), case
    assert set(refused) == set(names)
    assert min(refused.values()) > 4, refused


@pytest.mark.parametrize(
    ("algorithm", "options", "named"),
    [
        ("ppo", {"backend": "torch"}, "n_steps = 1000000"),
        ("ppo", {"backend": "native"}, "n_steps = 1000000"),
        ("impala", {"n_envs": 1, "n_steps": 8, "queue_size": 2**40}, "queue_size = 1099511627776"),
        ("impala", {"n_envs": 1, "n_steps": 8, "unrolls_per_update": 2**40}, "unrolls_per_update"),
    ],
)
def test_rollouts_that_no_memory_holds_are_refused(algorithm, options, named):
    """Where they are allocated, by their option."""
    sizes = {"n_envs": 1 << 16, "n_steps": 10**6, **options}
    with (
        pytest.raises(MemoryLimitError, match=named),
        rlox.make(algorithm, env="CartPole-v1", **sizes) as made,
    ):
        made.train(1)
