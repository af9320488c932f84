"""How torch computes within the blocks that algorithms learn in."""

from __future__ import annotations

import pytest
import torch
from rlox.nn import flush_denormals


def denormal() -> float:
    """Return what the processor makes of a number too small for float32's full precision."""
    return float((torch.tensor([1e-40]) * 1)[0])


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
