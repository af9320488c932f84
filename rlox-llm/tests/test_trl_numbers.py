"""Losses, metrics and gradients through whole models against the numbers of TRL 1.16."""

from __future__ import annotations

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


def test_there_are_numbers_of_every_case() -> None:
    """A new case needs its own, and no number is of none."""
    known = known_numbers()
    assert list(known["grpo"]) == [case.name for case in CASES]
    assert list(known["dpo"]) == [f"{kind}, {name}" for kind in PROMPTS for name in PAIR_LOSSES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_grpo_through_a_model(case: Case) -> None:
    """Every loss, on and off the policy that sampled."""
    ours, _ = ours_grpo(case)
    require_close(ours, known_numbers()["grpo"][case.name])


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("model", ["llama", "gpt2"])
def test_layouts_change_nothing(model: str, layout: str) -> None:
    """Rows filled up, or packed."""
    case = Case(model, off_policy=False)
    ours, _ = ours_grpo(case, layout)
    require_close(ours, known_numbers()["grpo"][case.name])


@pytest.mark.parametrize("loss_type", PAIR_LOSSES)
@pytest.mark.parametrize("kind", PROMPTS)
def test_dpo_through_a_model(kind: str, loss_type: str) -> None:
    """Every loss that TRL has too."""
    require_close(ours_dpo(kind, loss_type), known_numbers()["dpo"][f"{kind}, {loss_type}"])
