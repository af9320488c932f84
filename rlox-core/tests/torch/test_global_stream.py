"""Tests of torch's global generator as a stream of the run."""

from __future__ import annotations

import pytest
import torch
from rlox import seeding
from rlox.seeding import SeedStreams


def test_global_draws_are_the_runs_and_leave_the_callers_alone() -> None:
    """Two runs of a seed draw the same, whatever the caller drew between."""
    torch.manual_seed(0)
    before = torch.get_rng_state()
    draws = []
    for noise in (1, 5):
        torch.rand(noise)
        streams = SeedStreams(7)
        with streams.as_global("envs"):
            first = torch.rand(3)
        with streams.as_global("envs"):
            draws.append((first, torch.rand(3)))
    assert torch.equal(draws[0][0], draws[1][0])
    assert torch.equal(draws[0][1], draws[1][1])
    assert not torch.equal(*draws[0])
    torch.manual_seed(0)
    torch.rand(6)
    assert not torch.equal(torch.get_rng_state(), before)


def test_the_stream_is_saved_where_a_block_left_it() -> None:
    """A resumed run draws on."""
    whole = SeedStreams(3)
    with whole.as_global("dropout"):
        torch.rand(5)
        state_expected = torch.rand(4)
    resumed = SeedStreams(3)
    with resumed.as_global("dropout"):
        torch.rand(5)
    other = SeedStreams(0)
    other.load_state_dict(resumed.state_dict())
    with other.as_global("dropout"):
        assert torch.equal(torch.rand(4), state_expected)


def test_an_error_restores_the_callers_generator() -> None:
    """As every context manager does."""
    before = torch.get_rng_state()

    def stop() -> None:
        with SeedStreams(1).as_global("x"):
            torch.rand(1)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        stop()
    assert torch.equal(torch.get_rng_state(), before)


def test_devices_have_a_stream_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is drawn on the CPU is the same with GPUs, which are seeded again in every block.

    Those that the process has not used yet are seeded when it does; after a block, as before.
    """
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    found = []
    for gpus in (0, 2):
        monkeypatch.setattr(seeding, "_count_gpus", lambda gpus=gpus: gpus)
        streams = SeedStreams(5)
        for _ in range(2):
            with streams.as_global("envs"):
                found.append(torch.rand(3).tolist())
    assert found[:2] == found[2:]
    first, before, second, after = seeds
    assert before == after == torch.initial_seed()
    assert len({first, second, before}) == 3
