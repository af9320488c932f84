"""``rlox dataset`` and other commands with offline algorithms."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import data
import numpy as np
import pytest
import yaml
from rlox.training import checkpoint
from rlox_offline.datasets import load_dataset, save_dataset
from rlox_testing.probes import first_difference
from shared_fixtures import Result


@pytest.fixture(autouse=True)
def _workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)


def test_info_shows_what_is_known(run: Callable[..., Result]) -> None:
    """Sizes, returns, bounds and reference scores; the same as JSON."""
    dataset = data.continuous(env_id="Pendulum-v1", random_return=-5.0, expert_return=9.5)
    save_dataset(dataset, "set.npz")
    result = run("dataset", "info", "set.npz")
    assert result.code == 0, result.err
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert "transitions 120" in lines
    assert "episodes 12 (6 terminated)" in lines
    assert "actions (2,) in [-2, 2]" in lines
    assert "random, expert return -5.0, 9.5" in lines
    assert result.out == run("dataset", "info", "stream:set.npz").out.replace("stream:", "")
    printed = json.loads(run("dataset", "info", "set.npz", "--json").out)
    assert printed["n_transitions"] == 120
    assert printed["env_id"] == "Pendulum-v1"


def test_info_draws_the_returns(run: Callable[..., Result]) -> None:
    """A picture in the named format."""
    save_dataset(data.discrete(expert_return=1.0), "set.npz")
    assert run("dataset", "info", "set.npz", "--plot", "out/returns.png").code == 0
    assert Path("out/returns.png").read_bytes().startswith(b"\x89PNG")
    assert run("dataset", "info", "set.npz", "--plot", "returns.gif").code == 2


def test_record_writes_all_sets(run: Callable[..., Result]) -> None:
    """The template gives the file names, the file the options."""
    pytest.importorskip("rlox_onpolicy")
    options = {"n_envs": 4, "n_steps": 32, "batch_size": 64, "n_epochs": 1, "hidden": 8}
    Path("ppo.yaml").write_text(yaml.safe_dump(options), encoding="utf-8")
    result = run(
        "dataset", "record", "ppo", "--env", "CartPole-v1", "--total-timesteps", 1280,
        "--n-transitions", 200, "--config", "ppo.yaml", "--to", "sets/cartpole-{kind}.npz",
    )  # fmt: skip
    assert result.code == 0, result.err
    for kind in ("random", "medium", "replay", "expert"):
        dataset = load_dataset(f"sets/cartpole-{kind}.npz")
        assert dataset.env_id == "CartPole-v1"
        assert f"saved as sets/cartpole-{kind}.npz" in result.out
    assert result.out.splitlines()[0].split()[:3] == ["random", "200", "transitions,"]


@pytest.mark.parametrize(
    ("to", "reason"),
    [("sets/all.npz", "--to must hold {kind}"), ("{kind}.csv", "has the suffix '.csv'")],
)
def test_record_refuses_a_bad_target_before_training(
    run: Callable[..., Result], to: str, reason: str
) -> None:
    """No training is wasted."""
    result = run("dataset", "record", "ppo", "--env", "CartPole-v1", "--to", to)
    assert result.code == 2
    assert reason in result.err


@pytest.fixture
def recorded(run: Callable[..., Result]) -> str:
    """Return the file of a dataset of Pendulum's shapes."""
    save_dataset(data.Dataset(data.columns(act_dim=1), act_low=-2.0, act_high=2.0), "set.npz")
    return "set.npz"


def test_record_warns_of_an_expert_that_is_no_better_than_chance(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorded returns are compared with those of random actions, within an interval."""
    better = data.columns(seed=2)
    better["rewards"] = better["rewards"] + 2
    sets = {"random": data.columns(), "medium": data.columns(seed=1), "expert": better}
    made = [(kind, data.Dataset(columns)) for kind, columns in sets.items()]
    monkeypatch.setattr("rlox_offline.cli.record_sets", lambda *_, **__: iter(made))
    result = run("dataset", "record", "ppo", "--env", "CartPole-v1")
    assert result.code == 0, result.err
    assert "medium is no better than random actions (mean returns" in result.err
    assert "expert is no better" not in result.err


def test_a_table_of_numbers_becomes_a_dataset(run: Callable[..., Result]) -> None:
    """The error about a missing array names all columns and the command, which joins them."""
    arrays = data.columns()
    known = ("rewards", "terminated", "truncated")
    columns = [*arrays["obs"].T, arrays["rewards"], *(arrays[name] * 1 for name in known)]
    header = ",".join(["obs_0", "obs_1", "obs_2", "force", *known])
    np.savetxt("table.csv", np.stack(columns, 1), "%.9g", ",", header=header, comments="")
    plain = run("dataset", "convert", "table.csv", "out.parquet")
    assert plain.code == 2
    assert f"the column 'obs' is missing; there are {header.replace(',', ', ')}; to" in plain.err
    assert "rlox dataset convert TABLE OUT --obs 'obs_*'" in plain.err
    assert "; rlox dataset convert reads .csv" in run("dataset", "info", "table.csv").err
    convert = ("dataset", "convert", "table.csv", "out.parquet", "--obs", "obs_?")
    assert (
        "no column is called 'act*', for actions; there" in run(*convert, "--actions", "act*").err
    )
    assert "'r*', for actions, takes rewards too; narrow" in run(*convert, "--actions", "r*").err
    assert run(*convert, "--actions", "force").code == 0
    found = load_dataset("out.parquet")
    assert found.columns["actions"].shape == (len(found), 1)
    ends = arrays["terminated"] | ~arrays["truncated"]  # what follows a cut step is unknown
    np.testing.assert_allclose(found.columns["obs"], arrays["obs"][ends], rtol=1e-6)


IQL = ("train", "iql", "--env", "Pendulum-v1", "--hidden", "8", "--eval-episodes", "2")


def test_train_learns_from_a_dataset(run: Callable[..., Result], recorded: str) -> None:
    """Steps are gradient steps in the flag, the record and the evaluation."""
    result = run(
        *IQL, "--dataset", recorded, "--total-timesteps", 40, "--steps-per-iteration", 10,
        "--checkpoint-freq", 20, "--run-dir", "run",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "40/40 gradient steps" in result.out
    record = json.loads(Path("run/run.json").read_text(encoding="utf-8"))
    assert (record["status"], record["gradient_steps"]) == ("finished", 40)
    assert record["options"]["parts"] == {"dataset": "set.npz"}
    assert {path.stem for path in Path("run/checkpoints").iterdir()} == {
        "step-20", "step-40", "final",
    }  # fmt: skip
    evaluated = run("eval", "run", "--episodes", 2, "--json")
    assert json.loads(evaluated.out)["gradient_steps"] == 40
    wrong = run("eval", "run", "--env", "CartPole-v1")
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    assert "but the env has observations in" in wrong.err


def test_an_interrupted_run_is_finished_from_its_dataset(
    run: Callable[..., Result], recorded: str
) -> None:
    """It resumes from the last checkpoint and equals an uninterrupted run bit for bit."""
    arguments = (
        *IQL, "--dataset", recorded, "--total-timesteps", 40, "--steps-per-iteration", 10,
        "--checkpoint-freq", 10,
    )  # fmt: skip
    for folder in ("whole", "broken"):
        assert run(*arguments, "--run-dir", folder).code == 0
    path = Path("broken/run.json")
    broken = json.loads(path.read_text(encoding="utf-8")) | {"status": "running"}
    path.write_text(json.dumps(broken), encoding="utf-8")
    for name in ("final", "step-40", "step-30"):
        Path(f"broken/checkpoints/{name}.safetensors").unlink()
    result = run("resume", "broken")
    assert result.code == 0, result.err
    whole, resumed = (
        checkpoint.read(f"{folder}/checkpoints/final.safetensors")["state"]["algorithm"]["networks"]
        for folder in ("whole", "broken")
    )
    assert first_difference(whole, resumed) is None
    assert json.loads(path.read_text(encoding="utf-8"))["resumed"][0]["gradient_steps"] == 20


def test_train_without_a_dataset_says_what_is_missing(run: Callable[..., Result]) -> None:
    """Algorithms that learn in an env have no such flag."""
    result = run(*IQL)
    assert (result.code, "--dataset" in result.err) == (2, True)
    assert "--dataset" in run("train", "iql", "--help").out


def test_no_env_is_needed(run: Callable[..., Result], recorded: str) -> None:
    """Without one, nothing is evaluated; requested evaluations need one."""
    arguments = ("train", "iql", "--hidden", 8, "--dataset", recorded, "--total-timesteps", 4)
    result = run(*arguments, "--run-dir", "run")
    assert result.code == 0, result.err
    assert "evaluation return" not in result.out
    record = json.loads(Path("run/run.json").read_text(encoding="utf-8"))
    assert (record["status"], record["evaluation"]) == ("finished", None)
    for refused in (
        (*arguments, "--eval-freq", 2),
        ("tune", "iql", "--dataset", recorded, "--space", "gamma=0.9:0.99"),
    ):
        wrong = run(*refused)
        assert (wrong.code, wrong.err.count("\n"), "--env" in wrong.err) == (2, 1, True), wrong.err
    assert run("eval", "run", "--env", "Pendulum-v1", "--episodes", 1).code == 0


def test_a_policy_file_is_evaluated(run: Callable[..., Result]) -> None:
    """Bounds of actions are the file's; the estimate is printed, and the policy run in an env."""
    save_dataset(data.Dataset(data.columns(3, act_dim=1), act_low=-2.0, act_high=2.0), "set.npz")
    learn = ("--dataset", "set.npz", "--hidden", 8, "--total-timesteps", 20)
    assert run("train", "bc", *learn, "--run-dir", "bc").code == 0
    assert run("export", "bc", "policy.rlox").code == 0
    save_dataset(data.Dataset(data.columns(3, act_dim=1)), "set.npz")
    every = ("--steps-per-iteration", 10, "--checkpoint-freq", 10)
    result = run("train", "fqe", *learn, *every, "--policy", "policy.rlox", "--run-dir", "run")
    assert result.code == 0, result.err
    assert re.search(
        r"discounted return +\S+, 95 % interval \[\S+, \S+\] over \d+ first", result.out
    )
    log = Path("run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    estimates = [row["estimate"] for row in map(json.loads, log) if "estimate" in row]
    assert len(estimates) == 2
    assert all(map(math.isfinite, estimates))
    evaluated = run("eval", "run", "--env", "Pendulum-v1", "--episodes", 2, "--json")
    assert evaluated.code == 0, evaluated.err
    assert json.loads(evaluated.out)["n_episodes"] == 2
    missing = run("train", "fqe", *learn, "--policy", "none.rlox")
    assert (missing.code, missing.err.count("\n"), "none.rlox" in missing.err) == (2, 1, True)
