"""Wrong calls of PPO, one a row: each raises before any work and names the fault."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from gymnasium import spaces
from rlox.algorithms import PPO
from rlox.errors import CheckpointError, ConfigError, EnvError, SpaceError
from rlox_onpolicy.configs import A2CConfig


class Empty(gymnasium.Env[Any, Any]):
    """An env whose observations hold no numbers."""

    observation_space = spaces.Box(-1, 1, (0,))
    action_space = spaces.Discrete(2)


CALLS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: PPO("CartPole-v1", n_envs=1, n_steps=17, batch_size=16), ConfigError,
     "batch_size 16 makes a minibatch of one of the rollout's 17 rows, whose advantage cannot be"),
    (lambda: PPO("CartPole-v1", config=A2CConfig()), ConfigError,
     "config must be a PPOConfig, a mapping or the path of a YAML or JSON file, got A2CConfig"),
    (lambda: PPO("CartPole-v1", schedules={"learning_rte": float}), ConfigError,
     "no schedule is named 'learning_rte'; did you mean 'learning_rate'?"),
    (lambda: PPO("CartPole-v1", schedules={"learning_rate": 1e-3}), ConfigError,
     "schedules['learning_rate'] must be a callable of the steps done, got 0.001"),
    (lambda: PPO(Empty), SpaceError, "observations must hold numbers, got Box("),
    (lambda: PPO("CartPole-v1", policy=torch.nn.Linear(4, 2)), TypeError,
     "rlox.protocols.OnPolicyActor, got Linear, which lacks get_action_and_logprob, get_value, "),
    (lambda: PPO("CartPole-v1").evaluate("Acrobot-v1", n_episodes=1), EnvError,
     "obs must have shape (4,) or (B, 4), got (1, 6); evaluate it in an env like that of its"),
    (lambda: PPO.from_checkpoint("good.safetensors", env_id="Acrobot-v1"), CheckpointError,
     "does not fit (it was saved on the env 'CartPole-v1', not 'Acrobot-v1'): the network differs"),
]  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _workplace(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Work in a folder with a checkpoint."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("work"))
        options = {"n_envs": 2, "n_steps": 16, "batch_size": 16, "hidden": 4}
        PPO("CartPole-v1", **options).save("good.safetensors")
        yield


@pytest.mark.parametrize(("call", "error", "text"), CALLS, ids=[text[:60] for *_, text in CALLS])
def test_wrong_call_is_refused_before_any_work(
    call: Callable[[], Any], error: type[Exception], text: str
) -> None:
    """The error and its text are as given, and nothing is written."""
    with pytest.raises(error, match=re.escape(text)) as caught:
        call()
    assert type(caught.value) is error
    assert [path.name for path in Path.cwd().iterdir()] == ["good.safetensors"]
