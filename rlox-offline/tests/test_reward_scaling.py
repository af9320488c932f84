"""Options that scale and shift a dataset's rewards."""

from __future__ import annotations

from typing import Any

import data
import numpy as np
import pytest
import rlox
import torch
from rlox_offline.datasets import Dataset

SIZES: dict[str, Any] = {"hidden": 8, "batch_size": 16, "seed": 0}


@pytest.mark.parametrize(
    ("name", "options"),
    [("td3_bc", {}), ("iql", {}), ("cql", {"calibrated": True})],
)
def test_scaled_rewards_train_as_a_dataset_of_such_rewards_does(
    name: str, options: dict[str, Any]
) -> None:
    """Scale first, then shift; the recorded rewards stay as they are."""
    recorded = data.continuous()
    columns = {**recorded.columns, "rewards": np.float32(0.25) * recorded.columns["rewards"] - 1}
    bounds = {"act_low": recorded.act_low, "act_high": recorded.act_high}
    options = {**SIZES, **options}
    plain = rlox.make(name, dataset=Dataset(columns, **bounds), **options)
    scaled = rlox.make(name, dataset=recorded, reward_scale=0.25, reward_shift=-1, **options)
    untouched = rlox.make(name, dataset=recorded, **options)
    for algorithm in (plain, scaled, untouched):
        algorithm.train(5)

    def weights(algorithm: Any) -> torch.Tensor:
        return torch.nn.utils.parameters_to_vector(algorithm.critic.parameters()).detach()

    torch.testing.assert_close(weights(scaled), weights(plain), rtol=1e-6, atol=1e-7)
    assert not torch.equal(weights(scaled), weights(untouched))
