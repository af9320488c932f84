"""The presets of all distributions: they fit their algorithms, and their scores the files."""

import json
from pathlib import Path

import numpy as np
import pytest
from rlox.config.presets import list_presets
from rlox.registry.table import config_class

ROOT = Path(__file__).parents[1]
PRESETS = list_presets()
MEASURED = [preset for preset in PRESETS if preset.scores is not None]


def name(preset):
    """Return what a test of a preset is called."""
    return f"{preset.algorithm}-{preset.full_name}"


@pytest.fixture(autouse=True)
def _no_presets_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("RLOX_PRESETS", str(tmp_path / "none"))


@pytest.mark.parametrize("preset", PRESETS, ids=name)
def test_preset_is_a_config_of_its_algorithm(preset):
    """Its options are valid and win over the defaults; the config names the preset."""
    config = config_class(preset.algorithm)(preset=preset.full_name)
    assert config.preset == preset.full_name
    assert preset.options.keys() <= config.given().keys()
    cls = config_class(preset.algorithm)
    assert config == cls(preset=preset.full_name, **preset.options)
    assert cls(**config.to_dict()) == config


@pytest.mark.parametrize("preset", MEASURED, ids=name)
def test_measured_score_is_that_of_the_files(preset):
    """Mean and worst over seeds, steps, episodes and options are those that were measured."""
    assert preset.scores is not None
    assert preset.score is not None
    assert preset.tolerance is not None
    files = [json.loads(path.read_text("utf-8")) for path in sorted(ROOT.glob(preset.scores))]
    if "runs" in files[0]:
        [found] = files
        returns = [run["mean_return"] for run in found["runs"]]
        seconds = [
            run.get("train_seconds") or run["segments"]["processor_seconds"][-1]
            for run in found["runs"]
        ]
        assert (found["algorithm"], found["env_steps"]) == (preset.algorithm, preset.steps)
        assert found["episodes"] == preset.episodes
        config = config_class(preset.algorithm)(preset=preset.full_name).to_dict()
        same = config.keys() & found["config"].keys() - {"seed", "preset", "n_agents", "epsilon"}
        assert {k: config[k] for k in same} == {k: found["config"][k] for k in same}
    else:
        returns = [each["evaluation"]["mean"] for each in files]
        seconds = [each["processor_seconds"] for each in files]
        assert {(each["algorithm"], each["env"]) for each in files} == {
            (preset.algorithm, preset.env)
        }
    assert len(returns) == 5
    assert preset.score == pytest.approx(np.mean(returns), abs=0.01)
    assert min(returns) >= preset.score - preset.tolerance
    assert preset.minutes == pytest.approx(np.mean(seconds) / 60, abs=0.06)
