"""Tables of options for people who come from another library."""

from pathlib import Path

import pytest
from rlox.registry import config_class

PAGES = Path(__file__).parents[1] / "docs/how-to"
OURS = {"TD3PlusBC": "td3_bc", "CalQL": "cql"}
"""Registered names of what another library calls differently."""

COMMON = {
    "stable-baselines3": "In every algorithm", "cleanrl": "In every file",
    "rllib": "In every algorithm", "rlox-1": "In every algorithm", "d3rlpy": "In every algorithm",
    "trl": "In every trainer",
}  # fmt: skip
"""Headings of the tables of what all have."""

SECTIONS = [
    (page, name)
    for page, names in {
        "stable-baselines3": "PPO A2C SAC TD3 DDPG DQN",
        "cleanrl": "PPO SAC TD3 DQN",
        "rllib": "PPO SAC IMPALA",
        "rlox-1": "PPO A2C SAC TD3 DQN",
        "d3rlpy": "BC TD3PlusBC AWAC IQL CQL CalQL FQE",
        "trl": "GRPO DPO SFT",
    }.items()
    for name in names.split()
]


def text_of(page):
    """Return the page for people who come from a library."""
    return (PAGES / f"come-from-{page}.md").read_text(encoding="utf-8")


def rows_of(page, heading):
    """Return the rows of a section's table: the peer's option and default, ours and its."""
    text = text_of(page).split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    cells = [[cell.strip().strip("`") for cell in line.strip("|").split(" |")] for line in lines]
    return [(row[0], row[1], row[2], row[3]) for row in cells]


@pytest.mark.parametrize(("page", "name"), SECTIONS)
def test_our_options_exist_with_their_defaults(page, name):
    """And those named in every algorithm's table exist in every one."""
    fields = config_class(OURS.get(name, name.lower())).model_fields
    named = {row[2]: row[3] for row in rows_of(page, name) if row[2]}
    assert {key: repr(fields[key].default) for key in named} == named
    for _, _, option, default in rows_of(page, COMMON[page]):
        assert not option or default in ("any", repr(fields[option].default)), option
