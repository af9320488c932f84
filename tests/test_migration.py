"""Tables of options for people who come from another library."""

from __future__ import annotations

import dataclasses
import inspect
import re
import warnings
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import stable_baselines3
import transformers
import trl
from rlox.registry import config_class

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import d3rlpy
    from d3rlpy.ope import FQEConfig

PAGES = Path(__file__).parents[1] / "docs/how-to"
OURS = {"TD3PlusBC": "td3_bc", "CalQL": "cql"}
"""Registered names of what another library calls differently."""

COMMON = {
    "stable-baselines3": "In every algorithm",
    "cleanrl": "In every file",
    "rllib": "In every algorithm",
    "rlox-1": "In every algorithm",
    "d3rlpy": "In every algorithm",
    "trl": "In every trainer",
}
"""Headings of the tables of what all have."""

INSTALLED = ("stable-baselines3", "d3rlpy", "trl")
"""Libraries that the tests compare with; of the others the page is compared with rlox alone."""

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

Row = tuple[str, str, str, str]


def text_of(page: str) -> str:
    """Return the page for people who come from a library."""
    return (PAGES / f"come-from-{page}.md").read_text(encoding="utf-8")


def rows_of(page: str, heading: str) -> list[Row]:
    """Return the rows of a section's table: the peer's option and default, ours and its."""
    text = text_of(page).split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    cells = [[cell.strip().strip("`") for cell in line.strip("|").split(" |")] for line in lines]
    return [(row[0], row[1], row[2], row[3]) for row in cells]


def of_fields(found: Any) -> dict[str, Any]:
    """Return the options of a dataclass with their defaults."""
    return {each.name: each.default for each in dataclasses.fields(found)}


def options_of_peer(page: str, name: str) -> Mapping[str, Any]:
    """Return the options of another library's algorithm with their defaults."""
    if page == "stable-baselines3":
        parameters = inspect.signature(getattr(stable_baselines3, name)).parameters
        return {key: parameter.default for key, parameter in parameters.items()}
    if page == "d3rlpy":
        every: dict[str, Any] = {**vars(d3rlpy.algos), "FQEConfig": FQEConfig}
        return of_fields(every[f"{name}Config"])
    shared = of_fields(transformers.TrainingArguments)
    options = of_fields(getattr(trl, f"{name}Config"))
    return {key: value for key, value in options.items() if key not in shared}


@pytest.mark.parametrize(
    ("page", "name"),
    [section for section in SECTIONS if section[0] in INSTALLED],
)
def test_every_option_of_the_peer_is_there_with_its_default(page: str, name: str) -> None:
    """Those of all algorithms in one table, its own in another; ``-`` stands for any default."""
    rows = {row[0]: row[1] for row in [*rows_of(page, COMMON[page]), *rows_of(page, name)]}
    for option, default in options_of_peer(page, name).items():
        found = [rows[each] for each in rows if fnmatch(option, each)]
        assert found, option
        assert found[-1] in ("-", repr(default)), option


@pytest.mark.parametrize(("page", "name"), SECTIONS)
def test_our_options_exist_with_their_defaults(page: str, name: str) -> None:
    """And those named in every algorithm's table exist in every one."""
    fields = config_class(OURS.get(name, name.lower())).model_fields
    named = {row[2]: row[3] for row in rows_of(page, name) if row[2]}
    assert {key: repr(fields[key].default) for key in named} == named
    for _, _, option, default in rows_of(page, COMMON[page]):
        assert not option or default in ("any", repr(fields[option].default)), option


@pytest.mark.parametrize("page", COMMON)
def test_cells_fit_the_page(page: str) -> None:
    """None is longer than 70 characters, the targets of links aside."""
    cells = re.findall(r"(?<=\| )[^|\n]+(?= \|)", text_of(page))
    assert [cell for cell in cells if len(re.sub(r"\(\S+\)", "", cell)) > 70] == []
