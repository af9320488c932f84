"""Tables of options for people who come from another library."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import stable_baselines3
from rlox.registry import config_class

PAGE = Path(__file__).parents[1] / "docs/how-to/come-from-stable-baselines3.md"
ALGORITHMS = ("PPO", "A2C", "SAC", "TD3", "DDPG", "DQN")

Row = tuple[str, str, str, str]


def rows_of(heading: str) -> list[Row]:
    """Return the rows of a section's table: the peer's option and default, ours and its."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    cells = [[cell.strip().strip("`") for cell in line.strip("|").split(" |")] for line in lines]
    return [(row[0], row[1], row[2], row[3]) for row in cells]


COMMON = rows_of("In every algorithm")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_option_of_the_peer_is_there_with_its_default(name: str) -> None:
    """Those of all algorithms in one table, its own in another."""
    rows = {row[0]: row[1] for row in [*COMMON, *rows_of(name)]}
    parameters = inspect.signature(getattr(stable_baselines3, name)).parameters
    defaults = {
        key: "-" if parameter.default is parameter.empty else repr(parameter.default)
        for key, parameter in parameters.items()
    }
    assert {key: rows.get(key) for key in defaults} == defaults


@pytest.mark.parametrize("name", ALGORITHMS)
def test_our_options_exist_with_their_defaults(name: str) -> None:
    """And those named in every algorithm's table exist in every one."""
    fields = config_class(name.lower()).model_fields
    named = {row[2]: row[3] for row in rows_of(name) if row[2]}
    assert {key: repr(fields[key].default) for key in named} == named
    for _, _, option, default in COMMON:
        assert not option or default in ("any", repr(fields[option].default))


def test_cells_fit_the_page() -> None:
    """None is longer than 60 characters."""
    cells = re.findall(r"(?<=\| )[^|\n]+(?= \|)", PAGE.read_text(encoding="utf-8"))
    assert [cell for cell in cells if len(re.sub(r"\(\S+\)", "", cell)) > 70] == []
