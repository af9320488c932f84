"""Wrong calls of PPO and A2C, one a row: each is refused before any work, with what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlox.algorithms import A2C, PPO
from rlox.errors import CheckpointError, ConfigError, EnvError, SpaceError
from rlox_onpolicy.configs import A2CConfig

pytestmark = pytest.mark.filterwarnings("ignore:rlox-native is not installed:RuntimeWarning")

SCHEDULE = (
    "a number, 'linear(start, end)', 'linear(start, end, until)' or a mapping whose kind is linear "
    "or piecewise"
)
ACTOR = "policy must be a torch.nn.Module with the methods of rlox.protocols.OnPolicyActor, got "


class Empty(gymnasium.Env[Any, Any]):
    """An env whose observations hold no numbers."""

    observation_space = spaces.Box(-1, 1, (0,))
    action_space = spaces.Discrete(2)


OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"batch_size": 10**6}, "batch_size 1000000 exceeds the rollout's n_envs * n_steps = 8 * 128 = "
     "1024 rows; lower it or lengthen the rollout"),
    ({"n_envs": 1, "n_steps": 17, "batch_size": 16},
     "batch_size 16 makes a minibatch of one of the "
     "rollout's 17 rows, whose advantage cannot be standardised; choose a divisor above 1 or turn "
     "normalize_advantages off"),
    ({"device": "gpu"}, "device 'gpu' cannot be used: ..."),
    ({"learning_rate": "linear(5, 0)"},
     "learning_rate: expected values in [0.0, 1.0], got 'linear(5, 0)'"),
    ({"learning_rate": "fast"}, f"learning_rate: expected {SCHEDULE}, got 'fast'"),
    ({"config": A2CConfig()}, "config must be a PPOConfig, a mapping or the path of a YAML or JSON "
     "file, got A2CConfig"),
    ({"schedules": {"learning_rte": float}},
     "no schedule is named 'learning_rte'; did you mean 'learning_rate'?"),
    ({"schedules": {"learning_rate": 1e-3}},
     "schedules['learning_rate'] must be a callable of the steps done, got 0.001; numbers and "
     "linear or piecewise schedules are the option learning_rate="),
]  # fmt: skip

CALLS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: PPO(Empty), SpaceError, "observations must hold numbers, got Box(...(0,)..."),
    (lambda: PPO("CartPole-v1", policy=torch.nn.Linear(4, 2)), TypeError,
     f"{ACTOR}Linear, which lacks get_action_and_logprob, get_value, get_logprob_and_entropy, "
     "deterministic"),
    (lambda: A2C("CartPole-v1").predict(np.zeros(3)), ValueError,
     "obs must have shape (4,) or (B, 4), got (3,)"),
    (lambda: PPO("CartPole-v1").evaluate("Acrobot-v1", n_episodes=1), EnvError,
     "the policy does not act in an env of observations Box(...(6,)...): obs must have shape (4,) "
     "or (B, 4), got (1, 6); evaluate it in an env like that of its training"),
    (lambda: PPO.from_checkpoint("good.safetensors", env_id="Acrobot-v1"), CheckpointError,
     "checkpoint 'good.safetensors' does not fit (it was saved on the env 'CartPole-v1', not "
     "'Acrobot-v1'): the network differs from the saved one: ...has shape (4, 4), expected (4, 6)"
     "..."),
    (lambda: PPO.from_checkpoint("good.safetensors", calbacks=[]), ConfigError,
     "unknown option 'calbacks' for PPOConfig"),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a checkpoint."""
    folder = tmp_path_factory.mktemp("work")
    PPO("CartPole-v1", n_envs=2, n_steps=16, batch_size=16, hidden=4).save(
        folder / "good.safetensors"
    )
    return folder


def matches(message: str, pattern: str) -> bool:
    """Compare exactly, except where the pattern has three dots for what a library says."""
    parts = [re.escape(part) for part in pattern.split("...")]
    return re.fullmatch(".*".join(parts), message, re.DOTALL) is not None


@pytest.mark.parametrize(("options", "message"), OPTIONS, ids=[repr(o)[1:50] for o, _ in OPTIONS])
def test_wrong_option_is_refused(options: dict[str, Any], message: str) -> None:
    """With exactly this text, which names the option, what it may be and what it was."""
    with pytest.raises(ConfigError) as caught:
        PPO("CartPole-v1", **options)
    assert matches(str(caught.value), message), str(caught.value)


@pytest.mark.parametrize("call", CALLS, ids=[m[:60] for _, _, m in CALLS])
def test_wrong_call_is_refused_before_any_work(
    call: tuple[Callable[[], Any], type[Exception], str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With exactly this error and text, and nothing is written."""
    wrong, error, message = call
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    with pytest.raises(error) as caught:
        wrong()
    assert type(caught.value) is error
    assert matches(str(caught.value), message), str(caught.value)
    assert sorted(folder.iterdir()) == before
