"""How torch computes within the blocks that algorithms learn in."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlox.nn import acting, flush_denormals, make_encoder, set_compute_dtype


def denormal() -> float:
    """Return what the processor makes of a number too small for float32's full precision."""
    return float((torch.tensor([1e-40]) * 1)[0])


def test_acting_converts_parameters_once_until_it_ends() -> None:
    """In the outermost block, also if a block within it has ended, with an error or without."""
    encoder: Any = make_encoder(spaces.Box(0, 255, (12, 12, 3), np.uint8))
    set_compute_dtype(encoder, "bfloat16")
    obs = torch.randint(0, 256, (2, 12, 12, 3), dtype=torch.uint8)
    with acting():
        first = encoder(obs)
        assert first.any()
        assert not first.requires_grad
        encoder.layer.weight.data.zero_()
        with pytest.raises(ZeroDivisionError), acting():
            raise ZeroDivisionError
        assert torch.equal(encoder(obs), first)
    features = encoder(obs)
    assert features.requires_grad
    assert not features.any()


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="the processor cannot")
def test_denormals_are_flushed_within_the_block_only() -> None:
    """Also when blocks are nested or end with an error."""
    assert denormal() > 0
    with flush_denormals():
        assert denormal() == 0
        with flush_denormals():
            assert denormal() == 0
        assert denormal() == 0
    with pytest.raises(RuntimeError), flush_denormals():
        raise RuntimeError
    assert denormal() > 0


FAULTS = """
import resource, torch
{before}
def update():
    array = torch.empty(10 << 20)  # 40 MiB
    array.fill_(1.0)
for _ in range(20):  # what aligns the first ones lies between them, freed but not joined
    update()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    update()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
LEARNING = "from rlox.nn import torch_threads\nwith torch_threads(1): pass"


def faults(before: str, **environment: str) -> int:
    """Return the page faults of a process that frees and allocates 40 MiB five times."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    result = subprocess.run(
        [sys.executable, "-c", FAULTS.format(before=before)], capture_output=True, text=True,
        check=True, env={**own, "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip
    return int(result.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_is_kept_while_algorithms_learn() -> None:
    """It is mapped again without that, and where the environment says how memory is freed."""
    mapped_again = faults("")
    assert faults(LEARNING) < mapped_again / 5
    assert faults(LEARNING, MALLOC_TRIM_THRESHOLD_="131072") > mapped_again / 2
