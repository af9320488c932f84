"""Mistakes of users, at the command line and in Python, and the answer to each.

Every mistake ends before any work with one line that names what is wrong and what would do.
"""

import shlex

import gymnasium as gym
import numpy as np
import pytest
import rlox
from rlox.algorithms import DQN, PPO
from rlox.callbacks import EvalCallback
from torch import nn

AT_THE_COMMAND_LINE = {
    # names
    "train ppo --env CartPole-v1 --logger tensorbord": "did you mean 'tensorboard'?",
    "train ppo --env CartPole-v1 --backend rust": "(installed: native, torch, torch-compile)",
    "train sac --env Pendulum-v1 --buffer prioritised": "did you mean 'prioritized'?",
    "train ppo --env CartPole-v1 --preset tunned": "did you mean 'tuned'?",
    # envs
    "train ppo --env CartPole-v9": "It provides versioned environments: [ `v0`, `v1` ]",
    "train ppo --env dm_control/walker-walk-v0": "Have you installed the proper package",
    "train ppo --env nowhere:MyEnv": "No module named 'nowhere'",
    "train mappo --env mpe2/simple_spred_v3": "did you mean 'mpe2/simple_spread_v3'",
    "train ppo --env Pong-v5": "did you mean 'ALE/Pong-v5'?",
    "train ppo --env simple_spread_v3": "did you mean 'mpe2/simple_spread_v3'?",
    "train mappo --env pistonball_v6": "as in 'sisl/pistonball_v6', and trained by 'mappo'",
    # other programs' habits
    "ppo --env CartPole-v1": "did you mean 'rlox train ppo'?",
    "train --algo ppo": "name it without a flag, as in rlox train ppo --env CartPole-v1",
    "train ppo CartPole-v1": "'CartPole-v1' stands without its flag, as in --env CartPole-v1",
    "train ppo --env CartPole-v1 --verbose 1": "or --logger console",
    "train dreamer_v3 --env CartPole-v1 --net-arch 64": "--net-arch; here it is --hidden\n",
    "train grpo --model . --reward a:b --num-generations 8": "here it is --group-size",
    # what does not learn there
    "train sac --env CartPole-v1": "needs continuous actions, a Box, got Discrete(2); DQN",
    "train dqn --env Pendulum-v1": "needs Discrete actions, got Box(-2.0, 2.0, (1,), float32); SAC",
    "train qmix --env Pendulum-v1": "learns in envs of several agents, and this env has one",
    "train mappo --env mpe2/simple_spread_v3 --n-agents 7": "the env has 3 agents (agent_0",
    "train grpo --env CartPole-v1": "no such option: --env",
    # options
    "train ppo --env Pendulum-v1 --gammma 0.9": "no such option: --gammma; did you mean '--gamma'?",
    "train ppo --env CartPole-v1 --learning-rate -1": "expected values in [0.0, 1.0], got '-1'",
    "train ppo --env CartPole-v1 --learning-rate fast": "'linear(start, end)'",
    "train ppo --env CartPole-v1 --batch-size 100000": "exceeds the rollout's n_envs * n_steps",
    "train ppo --env CartPole-v1 --recurrent lstm --batch-size 100": "not a multiple of n_steps",
    "train ppo --env CartPole-v1 --memory-size 32": "needs recurrent='lstm' or 'gru'",
    "train ppo --env CartPole-v1 --device tpu": "device 'tpu'",
    "train dreamer_v3 --env CartPole-v1 --size huge": "expected 'debug', '1m'",
    "train ppo --env CartPole-v1 --sweep learning_rat=1e-3": "did you mean 'learning_rate'?",
    "tune ppo --env CartPole-v1 --space gama=0.9,0.99": "did you mean 'gamma'?",
    "tune ppo --env CartPole-v1 --space gamma=log:0:1": "low > 0",
    "train ppo --env CartPole-v1 --emulator-threads 3": "backend 'ale' has no 'CartPole-v1'",
    "train ppo --env CartPole-v1 --run-dir /proc/a": "'/proc/a' cannot be written; name",
    # sizes
    "train ppo --env CartPole-v1 --frame-stack 2147483647": "it would take at least 32.0 GiB",
    "train sac --env Pendulum-v1 --buffer-size 1000000000000": "keep fewer transitions",
    # files
    "train cql --env Pendulum-v1": "missing option '--dataset'",
    "train cql --env Pendulum-v1 --dataset no.npz": "dataset 'no.npz' does not exist",
    "train bc --dataset .": "expected .npz, .h5, .hdf5, .parquet, .arrow, .feather, or 'minari:",
    "plot nothing": "'nothing' is not a folder; name a run folder",
    # workers
    "worker --env CartPole-v1 --bind 0.0.0.0:7000": "needs TLS (tls_cert and tls_key) and a token",
    "train impala --env CartPole-v1 --n-actors 2 --worker-addresses localhost:1":
        "worker_addresses needs env_backend='grpc'",
    "train impala --env CartPole-v1 --env-backend grpc --worker-addresses localhost:1":
        "names 1 workers for n_actors = 2",
}  # fmt: skip
"""Words after ``rlox``, and a part of the answer."""


@pytest.mark.parametrize("words", AT_THE_COMMAND_LINE)
def test_a_mistake_at_the_command_line_is_one_line(words, tmp_path, monkeypatch, run):
    """Exit code 2, at most the first line on stdout, no traceback, and no file is made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    code, out, err = run(*shlex.split(words))
    assert code == 2
    assert AT_THE_COMMAND_LINE[words] in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert out.count("\n") <= 1
    assert not list(tmp_path.iterdir())


class FaultyEnv(gym.Env):
    """An env that returns NaN in its 21st step, as an observation or as a reward."""

    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, fault):
        self.fault, self.steps = fault, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full(3, 7 * (self.fault == "start"), np.float32), {}

    def step(self, action):
        self.steps += 1
        wrong = float("nan") if self.steps > 20 else 0.0
        obs = np.full(3, wrong if self.fault == "observation" else 0.0, np.float32)
        return obs, wrong if self.fault == "reward" else 1.0, False, False, {}


class OldEnv(FaultyEnv):
    """An env of gym, whose reset takes no seed."""

    def __init__(self):
        super().__init__("reset")

    def reset(self):
        return np.zeros(3, np.float32)


def train_on_fault(fault):
    """Train PPO on two faulty envs."""
    options = {"n_envs": 2, "n_steps": 32, "batch_size": 32, "n_epochs": 1}
    with rlox.make("ppo", env=lambda: FaultyEnv(fault), **options) as ppo:
        ppo.train(64)


def ppo(**options):
    """Return PPO on CartPole."""
    return rlox.make("ppo", env="CartPole-v1", **options)


def load_anothers_checkpoint():
    """Load as DQN what PPO saved."""
    ppo().save("ppo.safetensors")
    DQN.from_checkpoint("ppo.safetensors")


IN_PYTHON = {
    "no env for the class": (PPO, "PPO needs env_id=..., got none"),
    "make's word for the env": (
        lambda: PPO(env="CartPole-v1"),
        "PPO needs env_id=..., got env='CartPole-v1'; rename env to env_id",
    ),
    "a number as env": (lambda: rlox.make("ppo", env=3), "must be a gymnasium id, a callable"),
    "a function as callback": (lambda: ppo(callbacks=[print]), "got builtin_function_or_method"),
    "an env with an old reset": (
        lambda: rlox.make("ppo", env=OldEnv), "OldEnv.reset must take seed= and options=, but it ",
    ),
    "an observation outside its space": (
        lambda: rlox.make("ppo", env=lambda: FaultyEnv("start")).train(1),
        "env 0 began with 7.0, which Box(-1.0, 1.0, (3,), float32) does not hold; change it or",
    ),
    "an observation of NaN": (
        lambda: ppo().predict(np.full(4, np.nan)), "obs must be finite, got NaN or an infinity",
    ),
    "a loss of no part": (
        lambda: rlox.make("sac", env="Pendulum-v1", added_losses=len), "by part, policy or critic",
    ),
    "an observation too short": (lambda: ppo().predict(np.zeros(3)), "(4,) or (B, 4), got (3,)"),
    "make's word for a checkpoint's env": (
        lambda: PPO.from_checkpoint("no.safetensors", env="CartPole-v1"), "takes env_id=..., got",
    ),
    "an env in a config": (
        lambda: ppo(config={"env": "CartPole-v1"}), "'env' for PPOConfig; the env is not an option",
    ),
    "a policy's name": (lambda: PPO("MlpPolicy", "CartPole-v1"), "leave it out, as in PPO('CartP"),
    "learn": (lambda: ppo().learn(1000), "PPO has no 'learn'; it is train(total_timesteps)"),
    "load": (lambda: PPO.load("a.zip"), "PPO has no 'load'; it is from_checkpoint(path)"),
    "another's option": (lambda: ppo(clip_range=0.1), "'clip_range' for PPOConfig; here it is "),
    "a callback's path": (
        lambda: EvalCallback(best_model_save_path="a"), "it is EvalCallback(best_model_path=...)",
    ),
    "a function as schedule": (
        lambda: ppo(learning_rate=lambda left: 1e-3 * left),
        "pass functions of the steps done as schedules={'learning_rate': function}",
    ),
    "none in a file": (lambda: ppo(config={"target_kl": "none"}), "'none'; None is null in a file"),
    "a network that cannot learn": (
        lambda: rlox.make("dqn", env="CartPole-v1", network=nn.Linear(4, 2).requires_grad_(False)),
        "needs trainable parameters, and has none",
    ),
    "another's checkpoint": (load_anothers_checkpoint, "holds the algorithm 'ppo', not 'dqn'"),
    "a number as policy": (lambda: ppo(policy=3), "policy must be a torch.nn.Module"),
    "a policy file that is not there": (
        lambda: rlox.load_policy("no.rlox"), "'no.rlox' cannot be read: No such file or directory",
    ),
    "an observation that is no number": (
        lambda: train_on_fault("observation"), "env 0 returned an observation that is not finite",
    ),
    "a reward that is no number": (
        lambda: train_on_fault("reward"), "env 0 returned the reward nan; rewards must be finite",
    ),
}  # fmt: skip
"""Name of the mistake: what is called, and a part of the message."""


@pytest.mark.parametrize("mistake", IN_PYTHON)
def test_a_mistake_in_python_is_an_error_with_the_remedy(mistake, tmp_path, monkeypatch):
    """One of rlox's errors, or Python's own for its kind, of one short sentence."""
    monkeypatch.chdir(tmp_path)
    call, message = IN_PYTHON[mistake]
    with pytest.raises((rlox.errors.RloxError, ValueError, TypeError, AttributeError)) as raised:
        call()
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
