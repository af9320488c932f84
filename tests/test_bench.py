"""``rlox bench`` with a real peer: both do the same work."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rlox import api, cli, registry
from rlox.cli.bench.contenders import CONTENDERS, sb3_model

pytest.importorskip("stable_baselines3")


def test_bench_runs_rlox_and_stable_baselines3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file has the speeds of both and their ratio; Stable-Baselines3's to itself is 1."""
    monkeypatch.chdir(tmp_path)
    command = ["rlox", "bench", "ppo", "--env", "CartPole-v1", "--peers", "sb3", "--rounds",
               "1", "--env-steps", "256", "--out", "bench.json"]  # fmt: skip
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert not exit_.value.code, capsys.readouterr().err
    assert "Stable-Baselines3" in capsys.readouterr().out
    found = json.loads(Path("bench.json").read_text(encoding="utf-8"))
    rows = {row["contender"]: row for row in found["rows"]}
    assert set(rows) == {"rlox", "rlox-gymnasium", "sb3"}
    assert all(row["env_steps_per_second"]["median"] > 0 for row in rows.values())
    assert rows["sb3"]["ratio"] == {"median": 1.0, "min": 1.0, "max": 1.0}
    assert "stable-baselines3" in found["machine"]["versions"]


def options_of(algorithm: str, **options: Any) -> dict[str, Any]:
    """Return a config as ``rlox bench`` passes it on."""
    config: dict[str, Any] = registry.config_class(algorithm)(**options).to_dict()
    return config


def test_stable_baselines3_gets_the_same_options() -> None:
    """Sizes, coefficients and networks are those of the config; a schedule starts where it does."""
    config = options_of("ppo", n_envs=3, n_steps=32, batch_size=48, n_epochs=2, hidden=24,
                        gamma=0.9, ent_coef=0.03, clip_eps=0.1, target_kl=0.5,
                        learning_rate="linear(2e-3, 0)")  # fmt: skip
    model = sb3_model("stable_baselines3", "ppo", "CartPole-v1", config)
    assert (model.n_envs, model.n_steps, model.batch_size, model.n_epochs) == (3, 32, 48, 2)
    assert (model.gamma, model.ent_coef, model.target_kl) == (0.9, 0.03, 0.5)
    assert model.clip_range(1.0) == 0.1
    assert model.learning_rate == 2e-3
    ours = api.make("ppo", "CartPole-v1", config=config)
    assert sum(p.numel() for p in model.policy.parameters()) == sum(
        p.numel() for p in ours.policy.parameters()
    )


@pytest.mark.parametrize("algorithm", ["a2c", "ppo"])
def test_both_do_the_env_steps_they_say(algorithm: str) -> None:
    """Whole iterations, the same number of them."""
    config = options_of(algorithm, n_envs=2, n_steps=128)
    steps = [
        CONTENDERS[name].build(algorithm, "CartPole-v1", config)(200)
        for name in ("rlox", "rlox-gymnasium", "sb3")
    ]
    assert steps == [256, 256, 256]


@pytest.mark.parametrize(
    ("algorithm", "option", "value"),
    [
        ("ppo", "dual_clip", 3.0),
        ("ppo", "recurrent", "lstm"),
        ("ppo", "normalize_observations", True),
        ("ppo", "normalize_rewards", True),
        ("ppo", "frame_stack", 4),
        ("ppo", "network", "cnn"),
        ("ppo", "adam_eps", 1e-8),
        ("ppo", "vectorization", "async"),
        ("a2c", "rmsprop_alpha", 0.9),
        ("a2c", "rmsprop_eps", 1e-8),
    ],
)
def test_option_without_a_counterpart_is_refused(algorithm: str, option: str, value: Any) -> None:
    """A comparison of different algorithms would be none."""
    config = options_of(algorithm, **{option: value})
    with pytest.raises(
        ValueError, match=rf"^{option}={value!r} has no counterpart in stable_baselines3; leave it"
    ):
        sb3_model("stable_baselines3", algorithm, "CartPole-v1", config)


@pytest.mark.parametrize("algorithm", ["a2c", "ppo"])
def test_option_that_chooses_who_works_needs_no_counterpart(algorithm: str) -> None:
    """The peer does the same, whatever backend rlox takes."""
    config = options_of(algorithm, backend="torch", env_backend="gymnasium", gamma=0.5)
    assert sb3_model("stable_baselines3", algorithm, "CartPole-v1", config).gamma == 0.5
