"""Two ranks with half the batch each take the gradient steps of one."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from rlox.testing import run_in_ranks

pytestmark = pytest.mark.timeout(600)  # two interpreters import torch on a busy machine

STEPS = """
import sys
import numpy as np
import torch
import rlox
from rlox.batches.transitions import TransitionBatch
from rlox.ranks import join_ranks, leave_ranks

path = sys.argv[1]
ranks = join_ranks()
size, rank = (1, 0) if ranks is None else (ranks.size, ranks.rank)
sac = rlox.make("discrete_sac", env="CartPole-v1", seed=0, backend="torch", hidden=16)
drawn = np.random.default_rng(0)
rows = slice(rank * (32 // size), (rank + 1) * (32 // size))

def tensor(array):
    return torch.from_numpy(array[rows])

for _ in range(3):
    sac.learner.step("learn", TransitionBatch(
        obs=tensor(drawn.normal(size=(32, 4)).astype(np.float32)),
        actions=tensor(drawn.integers(2, size=(32, 1))),
        rewards=tensor(drawn.normal(size=32).astype(np.float32)),
        next_obs=tensor(drawn.normal(size=(32, 4)).astype(np.float32)),
        discounts=tensor(np.full(32, 0.99, np.float32)),
        weights=torch.ones(()),
    ), 1e-3)
found = [each.parameters.numpy() for _, each in sorted(sac.optimizers.items())]
np.save(f"{path}-{size}-{rank}.npy", np.concatenate(found))
sac.close()
leave_ranks()
"""


def test_two_ranks_take_the_gradient_steps_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Critics, policy and temperature of SAC for discrete actions, three steps each."""
    for rank, done in enumerate(run_in_ranks(STEPS, str(tmp_path / "p"), size=2)):
        assert done.returncode == 0, f"rank {rank}: {done.stderr}"
    monkeypatch.setattr(sys, "argv", ["alone", str(tmp_path / "p")])
    exec(STEPS, {})
    one, other = (np.load(tmp_path / f"p-2-{rank}.npy") for rank in range(2))
    np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(one, np.load(tmp_path / "p-1-0.npy"), rtol=0, atol=1e-5)
