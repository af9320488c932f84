"""Every algorithm here keeps the offline algorithms' contract."""

from __future__ import annotations

from typing import Any

import data
import numpy as np
import pytest
import rlox.testing


class Middle:
    """A policy with a constant action."""

    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        return np.full((*np.shape(obs)[:-1], 2), 0.5, np.float32)


SMALL = {"hidden": 8, "batch_size": 16}

CASES: list[Any] = [
    pytest.param("bc", {"stochastic": True}, id="bc"),
    pytest.param("td3_bc", {}, id="td3_bc"),
    pytest.param("awac", {}, id="awac"),
    pytest.param("iql", {}, id="iql"),
    pytest.param("cql", {"auto_alpha": True, "calibrated": True, "bc_steps": 3}, id="cql"),
    pytest.param("fqe", {"policy": Middle()}, id="fqe"),
]


@pytest.mark.parametrize("check", rlox.testing.OFFLINE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("name", "options"), CASES)
def test_algorithm_conforms(name: str, options: dict[str, Any], check: Any) -> None:
    """Continuous actions, and a normalised dataset with other bounds than the networks."""
    check(name, data.continuous(), **SMALL, **options)


@pytest.mark.parametrize("check", rlox.testing.OFFLINE_CHECKS, ids=lambda check: check.__name__)
def test_discrete_bc_conforms(check: Any) -> None:
    """Discrete actions, one of which the dataset never takes."""
    check("bc", data.discrete(), continuous=False, **SMALL)
