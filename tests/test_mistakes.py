"""Mistakes of users, at the command line and in Python, and the answer to each.

Every mistake ends before any work with one line that names what is wrong and what would do.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import rlox
from rlox.algorithms import DQN, PPO
from rlox.callbacks import EvalCallback
from torch import nn

AT_THE_COMMAND_LINE = {
    # names
    "trian ppo --env CartPole-v1": "no such command 'trian'; did you mean 'train'?",
    "train pppo --env CartPole-v1": "unknown algorithm 'pppo'; did you mean 'ppo'",
    "train ppo --env CartPole-v1 --logger tensorbord": "did you mean 'tensorboard'?",
    "train ppo --env CartPole-v1 --backend rust": "(installed: native, torch, torch-compile)",
    "train sac --env Pendulum-v1 --buffer prioritised": "did you mean 'prioritized'?",
    "train ppo --env CartPole-v1 --preset tunned": "did you mean 'tuned'?",
    # envs
    "train ppo": "missing option '--env'",
    "train ppo --env CartPole-v9": "It provides versioned environments: [ `v0`, `v1` ]",
    "train ppo --env dm_control/walker-walk-v0": "Have you installed the proper package",
    "train ppo --env nowhere:MyEnv": "No module named 'nowhere'",
    "train mappo --env mpe2/simple_spred_v3": "did you mean 'mpe2/simple_spread_v3'",
    # what does not learn there
    "train sac --env CartPole-v1": "needs continuous actions, a Box, got Discrete(2); DQN",
    "train dqn --env Pendulum-v1": "needs Discrete actions, got Box(-2.0, 2.0, (1,), float32); SAC",
    "train qmix --env Pendulum-v1": "learns in envs of several agents, and this env has one",
    "train mappo --env mpe2/simple_spread_v3 --n-agents 7": "the env has 3 agents (agent_0",
    "train grpo --env CartPole-v1": "no such option: --env",
    # options
    "train ppo --env Pendulum-v1 --gama 0.9": "no such option: --gama (Possible options: --gamma)",
    "train ppo --env CartPole-v1 --gamma 1.5": "gamma: expected less than or equal to 1, got '1.5'",
    "train ppo --env CartPole-v1 --learning-rate -1": "expected values in [0.0, 1.0], got '-1'",
    "train ppo --env CartPole-v1 --learning-rate fast": "'linear(start, end)'",
    "train ppo --env CartPole-v1 --batch-size 100000": "exceeds the rollout's n_envs * n_steps",
    "train ppo --env CartPole-v1 --recurrent lstm --batch-size 100": "no multiple of n_steps 128",
    "train ppo --env CartPole-v1 --memory-size 32": "needs recurrent='lstm' or 'gru'",
    "train ppo --env CartPole-v1 --compute-dtype bfloat16": "the network has none; leave it out",
    "train ppo --env CartPole-v1 --total-timesteps 0": "invalid value for '--total-timesteps'",
    "train ppo --env CartPole-v1 --device tpu": "device 'tpu'",
    "train dreamer_v3 --env CartPole-v1 --size huge": "expected 'debug', '1m'",
    "train ppo --env CartPole-v1 --sweep learning_rat=1e-3": "did you mean 'learning_rate'?",
    "train ppo --env CartPole-v1 --checkpoint-freq never": "must be a time such as 30s or 5min",
    "tune ppo --env CartPole-v1 --space gama=0.9,0.99": "did you mean 'gamma'?",
    "tune ppo --env CartPole-v1 --space gamma=log:0:1": "low > 0",
    # sizes
    "train ppo --env CartPole-v1 --frame-stack 2147483647": "it would take at least 32.0 GiB",
    "train sac --env Pendulum-v1 --buffer-size 1000000000000": "keep fewer transitions",
    # files
    "train ppo --env CartPole-v1 --config bad.yaml": "'bad.yaml' is not valid: while parsing",
    "train ppo --env CartPole-v1 --config typo.yaml": "did you mean 'n_envs'?",
    "train cql --env Pendulum-v1": "missing option '--dataset'",
    "train cql --env Pendulum-v1 --dataset no.npz": "dataset 'no.npz' does not exist",
    "train bc --dataset .": "expected .npz, .h5, .hdf5, .parquet, .arrow, .feather, or 'minari:",
    "eval nothing": "checkpoint 'nothing' does not exist",
    "eval .": "folder '.' holds no checkpoints/*.safetensors",
    "resume nothing": "'nothing' is no run folder: it has no run.json",
    "plot nothing": "'nothing' is no folder; name a run folder",
    # workers
    "worker --env CartPole-v1 --bind 0.0.0.0:7000": "needs TLS (tls_cert and tls_key) and a token",
    "train impala --env CartPole-v1 --n-actors 2 --worker-addresses localhost:1":
        "worker_addresses needs env_backend='grpc'",
    "train impala --env CartPole-v1 --env-backend grpc --worker-addresses localhost:1":
        "names 1 workers for n_actors = 2",
}  # fmt: skip
"""Words after ``rlox``, and a part of the answer."""


@pytest.mark.parametrize("words", AT_THE_COMMAND_LINE)
def test_a_mistake_at_the_command_line_is_one_line(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    run: Callable[..., tuple[int, str, str]],
) -> None:  # fmt: skip
    """Exit code 2, nothing on stdout, no traceback, and no file is made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    Path("bad.yaml").write_text("n_envs: [1\n", "utf-8")
    Path("typo.yaml").write_text("n_env: 3\n", "utf-8")
    files = {path.name for path in tmp_path.iterdir()}
    code, out, err = run(*shlex.split(words))
    assert code == 2
    assert AT_THE_COMMAND_LINE[words] in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert out == ""
    assert {path.name for path in tmp_path.iterdir()} == files


class FaultyEnv(gym.Env[Any, Any]):
    """An env that errs in its reset, or in its 21st step."""

    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, fault: str) -> None:
        self.fault, self.steps = fault, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        obs = np.zeros(3, np.float32)
        return obs if self.fault == "old reset" else (obs, {})

    def step(self, action: Any) -> Any:
        obs = np.zeros(3, np.float32)
        self.steps += 1
        answers = {
            "none": None,
            "old step": (obs, 1.0, False, {}),
            "shape": (np.zeros(4, np.float32), 1.0, False, False, {}),
            "not a number": (np.full(3, np.nan, np.float32), 1.0, False, False, {}),
            "reward": (obs, np.ones(2), False, False, {}),
            "reward not a number": (obs, float("nan"), False, False, {}),
            "text": (obs, 1.0, "yes", False, {}),
        }
        return answers.get(self.fault) if self.steps > 20 else (obs, 1.0, False, False, {})


def train_on_fault(fault: str) -> None:
    """Train PPO on two faulty envs."""
    options = {"n_envs": 2, "n_steps": 32, "batch_size": 32, "n_epochs": 1}
    with rlox.make("ppo", env=lambda: FaultyEnv(fault), **options) as ppo:
        ppo.train(64)


def ppo(**options: Any) -> Any:
    """Return PPO on CartPole."""
    return rlox.make("ppo", env="CartPole-v1", **options)


def load_anothers_checkpoint() -> None:
    """Load as DQN what PPO saved."""
    ppo().save("ppo.safetensors")
    DQN.from_checkpoint("ppo.safetensors")


IN_PYTHON: dict[str, tuple[Callable[[], Any], str]] = {
    "no env": (lambda: rlox.make("ppo"), "the algorithm 'ppo' needs env=..., got none"),
    "no env for the class": (PPO, "PPO needs env_id=..., got none"),
    "make's word for the env": (
        lambda: PPO(env="CartPole-v1"),
        "PPO needs env_id=..., got env='CartPole-v1'; rename env to env_id",
    ),
    "a number as env": (lambda: rlox.make("ppo", env=3), "must be a gymnasium id, a callable"),
    "a misspelt option": (lambda: ppo(gama=0.9), "did you mean 'gamma'?"),
    "text for a number": (lambda: ppo(n_envs="many"), "n_envs: expected a valid integer"),
    "NaN": (lambda: ppo(gamma=float("nan")), "gamma: expected a finite number, got nan"),
    "no steps": (lambda: ppo().train(0), "total_timesteps must be at least 1, got 0"),
    "text for steps": (lambda: ppo().train("many"), "total_timesteps must be an integer"),
    "a function as callback": (lambda: ppo(callbacks=[print]), "got builtin_function_or_method"),
    "a class as callback": (lambda: ppo(callbacks=[EvalCallback]), "got the class EvalCallback"),
    "a number as logger": (lambda: ppo(logger=3), "must be a rlox.logging.LoggerCallback object"),
    "an observation too short": (lambda: ppo().predict(np.zeros(3)), "(4,) or (B, 4), got (3,)"),
    "a checkpoint that is not there": (
        lambda: PPO.from_checkpoint("no.safetensors"), "checkpoint 'no.safetensors' does not exist",
    ),
    "a folder as checkpoint": (lambda: PPO.from_checkpoint("."), "'.' is a folder; name a file"),
    "make's word for a checkpoint's env": (
        lambda: PPO.from_checkpoint("no.safetensors", env="CartPole-v1"), "takes env_id=..., got",
    ),
    "an env in a config": (
        lambda: ppo(config={"env": "CartPole-v1"}), "'env' for PPOConfig; the env is no option",
    ),
    "none in a file": (lambda: ppo(config={"target_kl": "none"}), "'none'; None is null in a file"),
    "a network that cannot learn": (
        lambda: rlox.make("dqn", env="CartPole-v1", network=nn.Linear(4, 2).requires_grad_(False)),
        "needs trainable parameters, and has none",
    ),
    "another's checkpoint": (load_anothers_checkpoint, "holds the algorithm 'ppo', not 'dqn'"),
    "a number as policy": (lambda: ppo(policy=3), "policy must be a torch.nn.Module"),
    "never evaluating": (lambda: EvalCallback(eval_freq=0), "eval_freq must be at least 1, got 0"),
    "an empty buffer": (lambda: rlox.ReplayBuffer(0, 3, 1), "capacity must be at least 1, got 0"),
    "arrays of two lengths": (
        lambda: rlox.compute_gae(np.zeros(3), np.zeros(4), np.zeros(3), 0.0, 0.99, 0.95),
        "values must have length 3 like rewards, got 4",
    ),
    "a policy file that is not there": (
        lambda: rlox.load_policy("no.rlox"), "'no.rlox' cannot be read: No such file or directory",
    ),
    "a misspelt name": (lambda: rlox.mkae, "module 'rlox' has no 'mkae'; did you mean 'make'?"),
    **{
        f"env: {fault}": (lambda fault=fault: train_on_fault(fault), message)
        for fault, message in {
            "old reset": "FaultyEnv.reset must return (obs, info), got ndarray in a reset of env 0",
            "none": "got NoneType in step 21 of env 0",
            "old step": "got tuple of 4 in step 21 of env 0",
            "shape": "an observation of shape (4,), expected (3,) in step 21 of env 0",
            "not a number": "env 0 returned an observation that is not finite",
            "reward": "must be one number, got ndarray of shape (2,)",
            "reward not a number": "env 0 returned the reward nan; rewards must be finite",
            "text": "the terminated of FaultyEnv.step must be one truth value, got 'yes'",
        }.items()
    },
}  # fmt: skip
"""Name of the mistake: what is called, and a part of the message."""


@pytest.mark.parametrize("mistake", IN_PYTHON)
def test_a_mistake_in_python_is_an_error_with_the_remedy(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of rlox's errors, or Python's own for its kind, of one short sentence."""
    monkeypatch.chdir(tmp_path)
    call, message = IN_PYTHON[mistake]
    with pytest.raises((rlox.errors.RloxError, ValueError, TypeError, AttributeError)) as raised:
        call()
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
