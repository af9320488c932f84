"""Code written for rl8 1.0 finds its names and can call them as before.

``rl8_interface.json`` has the name, kind and default of each parameter, by module, name and method.
"""

import importlib
import inspect
import json
from pathlib import Path

import pytest

RECORD = json.loads(Path(__file__).with_name("rl8_interface.json").read_text("utf-8"))


def of(module, name, method):
    """Return rlox's object under a name of rl8."""
    found = getattr(importlib.import_module(f"rlox.rl8.{module}".rstrip(".")), name)
    return getattr(found, method) if method else found


def bind(module, name, method):
    """Require that rlox accepts a call of rl8."""
    ours = of(module, name, method)
    recorded = [each for each in RECORD[module][name][method] if "VAR" not in each[1]]
    if not recorded:
        return
    signature = inspect.signature(ours)
    free = {p.name: p for p in signature.parameters.values()}
    placed, named = [], {}
    for parameter, kind, default in recorded:
        if kind == "POSITIONAL_ONLY" or parameter not in free:
            placed.append(parameter)
        else:
            named[parameter] = parameter
        if default and parameter in free:
            assert repr(free[parameter].default) == default
    bound_self = [] if not method or inspect.ismethod(ours) or "self" not in free else ["self"]
    signature.bind(*bound_self, *placed, **named)
    by_place = [p for p, kind, _ in recorded if kind != "KEYWORD_ONLY"]
    signature.bind(
        *bound_self, *by_place, **{p: p for p, kind, _ in recorded if kind == "KEYWORD_ONLY"}
    )


@pytest.mark.parametrize("module", RECORD)
def test_calls_of_rl8_bind(module):
    """Every parameter has rl8's default and is accepted by position or keyword as there."""
    for name, methods in RECORD[module].items():
        for method in methods:
            bind(module, name, method)
