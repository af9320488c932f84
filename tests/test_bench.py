"""``rlox bench`` with a real peer: both do the same work."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from rlox import api, cli, registry
from rlox.cli.bench.contenders import CONTENDERS
from rlox.cli.bench.limits import Products
from rlox.cli.bench.stable_baselines3 import sb3_model
from rlox.cli.commands import bench

pytest.importorskip("stable_baselines3")

REPLAY = {"learning_starts": 64, "hidden": 24, "batch_size": 16, "buffer_size": 500}
ENVS = {"dqn": "CartPole-v1", "ddpg": "Pendulum-v1", "td3": "Pendulum-v1", "sac": "Pendulum-v1"}


def test_bench_runs_rlox_and_stable_baselines3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file has the speeds of both, their ratio and what the env steps alone reach."""
    monkeypatch.chdir(tmp_path)
    command = ["rlox", "bench", "ppo", "--env", "CartPole-v1", "--peers", "sb3", "--rounds",
               "1", "--env-steps", "256", "--out", "bench.json"]  # fmt: skip
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert not exit_.value.code, capsys.readouterr().err
    shown = capsys.readouterr().out
    assert "Stable-Baselines3" in shown
    found = json.loads(Path("bench.json").read_text(encoding="utf-8"))
    rows = {row["contender"]: row for row in found["rows"]}
    assert set(rows) == {"rlox", "rlox-gymnasium", "sb3", "env", "products"}
    assert all(row["env_steps_per_second"]["median"] > 0 for row in rows.values())
    assert all(0 < row["cores"]["median"] <= found["machine"]["cores"] for row in rows.values())
    fastest = max(rows, key=lambda name: rows[name]["env_steps_per_second"]["median"])
    assert fastest == "env"
    assert found["machine"]["cpu"] in shown.replace("\n", " ")
    assert rows["sb3"]["ratio"] == {"median": 1.0, "min": 1.0, "max": 1.0}
    assert "stable-baselines3" in found["machine"]["versions"]


def test_bench_measures_once_all_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs with random actions alone are none of the rounds, however short the runs are."""
    asked: list[str] = []

    def ask(process: Any, line: str, name: str) -> dict[str, float]:
        asked.append(name)
        return {"env_steps": 100, "seconds": float(len(asked)), "processor": 1.0}

    monkeypatch.setattr(bench, "_ask", ask)
    monkeypatch.setattr(bench, "_started", lambda name, task: nullcontext())
    task = {"config": {"learning_starts": 250}, "env_steps": 100}
    answers = bench._measure(["rlox", "sb3"], task, rounds=2)
    assert [run["seconds"] for run in answers["rlox"]] == [7.0, 9.0]
    assert [run["seconds"] for run in answers["sb3"]] == [8.0, 10.0]
    assert len(bench._measure(["rlox"], {"config": {}, "env_steps": 8}, rounds=2)["rlox"]) == 2
    assert len(asked) == 10 + 3


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


@pytest.mark.parametrize("algorithm", sorted(ENVS))
def test_stable_baselines3_learns_from_replay_as_often(algorithm: str) -> None:
    """Both have the same batches, networks of the same size, and as many gradient steps."""
    config = options_of(algorithm, **REPLAY, n_envs=2, train_freq=4, gradient_steps=3,
                        steps_per_iteration=16)  # fmt: skip
    model = sb3_model("stable_baselines3", algorithm, ENVS[algorithm], config)
    assert (model.batch_size, model.buffer_size) == (16, 500)
    with api.make(algorithm, ENVS[algorithm], config=config) as ours:
        ours.train(80)
        model.learn(80)
        before = ours.clock.gradient_steps - model._n_updates  # the step at which they begin
        ours.train(80)
        model.learn(80, reset_num_timesteps=False)
        assert ours.clock.gradient_steps - model._n_updates == before
        assert model._n_updates == 72
        named = model.policy.named_parameters()
        theirs = sum(p.numel() for name, p in named if "target" not in name)
        entropy = 1 if algorithm == "sac" else 0  # which is no part of their policy
        learnt = sum(each.parameters.numel() for each in ours.optimizers.values())
        assert theirs + entropy == learnt


def test_options_of_replay_reach_stable_baselines3() -> None:
    """Delays, noises and coefficients, and the interval of the target network in env steps."""
    config = options_of("td3", policy_delay=3, target_noise=0.4, noise_clip=0.6, noise_std=0.3)
    td3 = sb3_model("stable_baselines3", "td3", "Pendulum-v1", config)
    assert (td3.policy_delay, td3.target_policy_noise, td3.target_noise_clip) == (3, 0.4, 0.6)
    assert td3.action_noise._sigma == pytest.approx([0.3])
    sac = sb3_model("stable_baselines3", "sac", "Pendulum-v1", options_of("sac", alpha=0.5))
    assert sac.ent_coef == "auto_0.5"
    dqn = sb3_model("stable_baselines3", "dqn", "CartPole-v1", options_of("dqn"))
    assert dqn.target_update_interval == 256


def test_train_freq_that_is_no_whole_vector_step_is_refused() -> None:
    """The peers count vector steps."""
    with pytest.raises(ValueError, match=r"^train_freq=3 is no whole number of steps of 2 envs"):
        sb3_model(
            "stable_baselines3", "sac", "Pendulum-v1", options_of("sac", n_envs=2, train_freq=3)
        )


def test_products_of_a_regression_are_recorded_and_done_again() -> None:
    """Two layers: two products forward, two for the weights and one between the layers back."""
    network = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3))
    products = Products()
    with products:
        network(torch.randn(11, 5)).square().sum().backward()
    assert products.count == 5
    with torch.profiler.profile() as profile:
        products.run(2.0)
    names = {"aten::mm", "aten::addmm"}
    assert sum(row.count for row in profile.key_averages() if row.key in names) == 10


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
        ("dqn", "double_dqn", True),
        ("dqn", "epsilon", 0.1),
        ("sac", "buffer", "prioritized"),
        ("td3", "n_step", 3),
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
