"""Every algorithm here keeps the contract of offline algorithms."""

from __future__ import annotations

from typing import Any

import data
import pytest
import rlox.testing

SMALL = {"hidden": 8, "batch_size": 16}

CASES: list[Any] = [
    pytest.param("bc", {}, id="bc"),
    pytest.param("bc", {"stochastic": True}, id="bc-stochastic"),
]


@pytest.mark.parametrize("check", rlox.testing.OFFLINE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("name", "options"), CASES)
def test_algorithm_conforms(name: str, options: dict[str, Any], check: Any) -> None:
    """Continuous actions, a normalised dataset whose bounds are not those of the networks."""
    check(name, data.continuous(), **SMALL, **options)


@pytest.mark.parametrize("check", rlox.testing.OFFLINE_CHECKS, ids=lambda check: check.__name__)
def test_discrete_bc_conforms(check: Any) -> None:
    """Discrete actions, one of which the dataset never takes."""
    check("bc", data.discrete(), continuous=False, **SMALL)
