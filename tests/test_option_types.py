"""Types of the options: the generated modules are current, and signatures show every option."""

from __future__ import annotations

import importlib.util
import inspect
import pydoc
from pathlib import Path

import pytest
import rlox
from rlox.algorithms import PPO
from rlox.registry.table import algorithm_class, config_class

ROOT = Path(__file__).parents[1]


def test_the_generated_types_are_what_the_configs_say() -> None:
    """``python rlox-core/option_types.py`` writes them."""
    found = importlib.util.spec_from_file_location("o", ROOT / "rlox-core" / "option_types.py")
    assert found is not None
    assert found.loader is not None
    option_types = importlib.util.module_from_spec(found)
    found.loader.exec_module(option_types)
    assert list(option_types.differences()) == []


@pytest.mark.parametrize("name", rlox.list_algorithms())
def test_a_signature_shows_every_option_with_its_default(name: str) -> None:
    """``help`` and notebooks do not end at ``**config_kwargs``."""
    shown = inspect.signature(algorithm_class(name)).parameters
    for option, field in config_class(name).model_fields.items():
        assert option in shown
        if shown[option].kind is inspect.Parameter.KEYWORD_ONLY and option != "env":
            assert shown[option].default == field.default


def test_help_names_the_options() -> None:
    """What a user reads at the prompt."""
    text = pydoc.plain(pydoc.render_doc(PPO))
    assert "gae_lambda: 'float' = 0.95" in text
    assert "n_envs: 'int | Unset' = 8" in text
