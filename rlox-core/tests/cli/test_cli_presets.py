"""Tests of ``--preset`` and ``rlox list --presets``, with an algorithm that counts."""

import json
from pathlib import Path

import pytest
import yaml

TRAIN = ("train", "counting", "--env", "CartPole-v1", "--eval-episodes", "2")
MINE = """
presets:
  counting:
    CartPole-v1:
      tuned: {steps: 48, source: a book, score: 9, tolerance: 1, options: {n_envs: 3, n_steps: 4}}
"""


@pytest.fixture(autouse=True)
def _presets(monkeypatch):
    """Keep one preset of the user's."""
    folder = Path("presets")
    folder.mkdir()
    (folder / "mine.yaml").write_text(MINE, encoding="utf-8")
    monkeypatch.setenv("RLOX_PRESETS", str(folder.absolute()))


def read(folder):
    """Return a run's record and config."""
    config = yaml.safe_load(Path(folder, "config.yaml").read_text("utf-8"))
    return json.loads(Path(folder, "run.json").read_text("utf-8")), config


def test_preset_trains_its_steps_and_is_recorded(run):
    """Record and config name it, and the length is the preset's."""
    result = run(*TRAIN, "--preset", "tuned", "--run-dir", "a")
    assert result.code == 0, result.err
    record, config = read("a")
    assert (record["preset"], config["preset"]) == ("CartPole-v1/tuned",) * 2
    assert (record["total_timesteps"], record["env_steps"]) == (48, 48)
    assert (config["n_envs"], config["n_steps"]) == (3, 4)


def test_given_options_win_over_the_preset(run):
    """Flags and the file of ``--config`` do, and so do given steps."""
    Path("c.yaml").write_text("n_steps: 2\n", encoding="utf-8")
    result = run(
        *TRAIN, "--preset", "tuned", "--config", "c.yaml", "--n-envs", 2, "--total-timesteps", 8,
        "--run-dir", "a",
    )  # fmt: skip
    assert result.code == 0, result.err
    record, config = read("a")
    assert (config["n_envs"], config["n_steps"], record["total_timesteps"]) == (2, 2, 8)


def test_a_file_of_options_may_name_the_preset(run):
    """By its full name; a run's complete config repeats it without the preset."""
    Path("c.yaml").write_text("preset: CartPole-v1/tuned\n", encoding="utf-8")
    assert run(*TRAIN, "--config", "c.yaml", "--run-dir", "a").code == 0
    assert read("a")[0]["env_steps"] == 48
    Path("presets/mine.yaml").unlink()
    again = (*TRAIN, "--config", "a/config.yaml", "--total-timesteps", 48)
    assert run(*again, "--run-dir", "b").code == 0
    assert read("b")[1] == read("a")[1]


def test_unknown_preset_is_an_error_before_training(run):
    """It names the nearest one, and leaves no folder behind."""
    result = run(*TRAIN, "--preset", "tunned", "--run-dir", "a")
    assert result.code == 2
    assert result.err == (
        "error: unknown preset 'tunned' of counting for CartPole-v1; did you mean 'tuned'? "
        "(there are: tuned)\n"
    )
    assert not Path("a").exists()


def test_list_shows_presets(run):
    """Score, steps, evidence and source; as JSON with all that is known."""
    text = " ".join(run("list", "--presets").out.split())
    assert "counting CartPole-v1 tuned 48 9 (-1) published; not rerun here a book" in text
    [found] = json.loads(run("list", "--presets", "--json").out)
    assert found["options"] == {"n_envs": 3, "n_steps": 4}
    assert found["source"] == "a book"
