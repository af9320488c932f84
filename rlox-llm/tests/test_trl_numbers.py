"""Losses, metrics and gradients through whole models against TRL 1.16's numbers."""

from itertools import product

import pytest
from trl_cases import (
    CASES,
    PAIR_LOSSES,
    PROMPTS,
    Case,
    known_numbers,
    ours_dpo,
    ours_grpo,
    require_close,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")


def by_night(values, kept):
    """Return parameters, some of them for nightly tests only."""
    return [v if kept(v) else pytest.param(v, marks=pytest.mark.slow) for v in values]


def test_there_are_numbers_of_every_case():
    """Every case has numbers, and every number a case."""
    known = known_numbers()
    assert list(known["grpo"]) == [case.name for case in CASES]
    assert list(known["dpo"]) == [f"{kind}, {name}" for kind in PROMPTS for name in PAIR_LOSSES]


@pytest.mark.parametrize(
    "case",
    by_night(CASES, lambda case: case.model == "llama" or not case.off_policy),
    ids=lambda case: case.name,
)
def test_grpo_through_a_model(case):
    """Every loss, on-policy and off-policy."""
    ours, _ = ours_grpo(case)
    require_close(ours, known_numbers()["grpo"][case.name])


@pytest.mark.parametrize(("model", "layout"), [("llama", "packed"), ("gpt2", "padded")])
def test_layouts_change_nothing(model, layout):
    """With padded and with packed rows."""
    case = Case(model, off_policy=False)
    ours, _ = ours_grpo(case, layout)
    require_close(ours, known_numbers()["grpo"][case.name])


@pytest.mark.parametrize(
    "case",
    by_night(product(PROMPTS, PAIR_LOSSES), lambda case: case[0] == "llama" or case[1] == "ipo"),
    ids=", ".join,
)
def test_dpo_through_a_model(case):
    """Every loss that TRL also has."""
    require_close(ours_dpo(*case), known_numbers()["dpo"][", ".join(case)])
