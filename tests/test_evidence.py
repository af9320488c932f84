"""Trainings whose parameters' hashes are kept: resumed, and verified by a part of them."""

import json

import pytest
from rlox.cli.app import build_app
from rlox.cli.commands.doctor import processor
from rlox.registry import config_class
from rlox_tools.evidence import train
from typer.testing import CliRunner

OPTIONS = {"n_envs": 2, "n_steps": 16, "batch_size": 16, "hidden": 8}
CELL = {
    "algorithm": "ppo", "env": "CartPole-v1", "env_steps": 640, "eval_freq": 32,
    "eval_episodes": 1, "episodes": 2, "config": config_class("ppo")(**OPTIONS).to_dict(),
}  # fmt: skip


@pytest.fixture(scope="module", name="kept")
def fixture_kept(tmp_path_factory):
    """Return a run of seed 3 and the folder of its file and checkpoints."""
    folder = tmp_path_factory.mktemp("evidence")
    run = train(CELL, 3, folder=folder) | {"machine": {"cpu": processor()}}
    (folder / "cell.json").write_text(json.dumps({**CELL, "runs": [run]}))
    return run, folder


def verify(path, *flags):
    """Return what ``rlox verify`` did."""
    return CliRunner().invoke(build_app(), ["verify", str(path), *map(str, flags)])


def test_an_interrupted_run_goes_on_to_the_same_end(kept):
    """All it keeps is equal, but for the time."""
    run, folder = kept
    again = train(CELL, 3, start=folder / "step-320.safetensors")
    for each in (run, again):
        each["segments"] = {**each["segments"], "processor_seconds": None}
    assert {**again, "machine": run["machine"]} == run
    assert run["segments"]["env_steps"] == [*range(64, 641, 64)]
    assert len(set(run["segments"]["hash"])) == 10


def test_a_segment_verifies_a_run(kept):
    """The first, or a later one from its checkpoint; another hash is an error."""
    run, folder = kept
    for flags in ((), ("--segment", 7, "--run", folder)):
        done = verify(folder / "cell.json", "--seed", 3, *flags)
        assert done.exit_code == 0, done.output
        assert "at most 0.0 outside the range of the 1 seeds" in done.output
    assert f"published {run['segments']['hash'][6]}" in done.output
    (folder / "other.json").write_text(
        (folder / "cell.json").read_text().replace(run["segments"]["hash"][0], "0" * 16)
    )
    assert "hashes differ" in str(verify(folder / "other.json", "--seed", 3).exception)
    assert "it has 3" in str(verify(folder / "other.json").exception)
    for wrong in ("none.json", "step-64.safetensors", "foreign.json"):
        (folder / "foreign.json").write_text("[1]")
        assert "is not a task's file" in str(verify(folder / wrong).exception)
