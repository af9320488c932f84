"""Tests of the parts of algorithms on the command line."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path

import pytest
from rlox.cli.runs.folder import resume_command_of
from rlox.cli.runs.options import RunOptions
from rlox.cli.runs.parts import flag_of, load_parts, part_parameters
from rlox.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "flag"),
    [("dataset", "--dataset"), ("reward_fn", "--reward"), ("ref_model", "--ref-model")],
)
def test_parts_become_flags(name: str, flag: str) -> None:
    """A function's flag goes without its ending."""
    assert flag_of(name) == flag


def test_needed_parts_are_required_and_others_are_not() -> None:
    """The env has a flag of its own."""
    parameters = part_parameters(("env", "model", "reward_fn"), ("ref_model", "model"))
    required = {p.name: p.default is inspect.Parameter.empty for p in parameters}
    assert required == {"model": True, "reward_fn": True, "ref_model": False}


def test_functions_are_imported_and_other_texts_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules of the working directory are found."""
    (tmp_path / "my_rewards.py").write_text("def length(x):\n    return len(x)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    loaded = load_parts({"model": "folder", "reward_fn": "my_rewards:length"})
    assert loaded["model"] == "folder"
    assert loaded["reward_fn"]("abc") == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("length", "--reward must look like module:function, got 'length'"),
        ("no_such_module:f", "--reward no_such_module:f: there is no module 'no_such_module'"),
        ("json:f", "--reward json:f: 'json' has no 'f'"),
        ("math:pi", "--reward math:pi: it cannot be called, it is float"),
    ],
)
def test_a_text_that_names_no_function_is_refused(text: str, message: str) -> None:
    """The flag is named."""
    with pytest.raises(ConfigError) as caught:
        load_parts({"reward_fn": text})
    assert str(caught.value) == message


def test_no_file_names_code() -> None:
    """What is recorded of a run has its data; the command that resumes it has the functions."""
    options = RunOptions(parts={"model": "folder", "reward_fn": "my:reward"})
    assert options.to_dict()["parts"] == {"model": "folder"}
    assert RunOptions.from_dict(json.loads(json.dumps(options.to_dict()))).parts == {
        "model": "folder"
    }
    command = resume_command_of(Path("run"), None, options.parts)
    assert command == "rlox resume run --reward my:reward"
    flags = options.to_flags()
    assert flags[:4] == ["--model", "folder", "--reward", "my:reward"]


def test_records_with_a_dataset_of_their_own_are_read() -> None:
    """Runs of older versions resume."""
    older = RunOptions(env="CartPole-v1").to_dict()
    del older["parts"]
    assert RunOptions.from_dict({**older, "dataset": "set.npz"}).parts == {"dataset": "set.npz"}
    assert RunOptions.from_dict({**older, "dataset": None}).parts == {}
