"""Policies of Stable-Baselines3 act the same here, and their files run nothing."""

import base64
import io
import json
import os
import pickle
import zipfile

import numpy as np
import pytest
import rlox
import sb3_contrib
import stable_baselines3 as sb3
import torch
from exportables import TORQUES, Env
from gymnasium import spaces
from rlox.cli.app import build_app
from rlox.errors import CheckpointError, ExportError, SpaceError
from rlox_tools.deployment.stable_baselines3 import from_stable_baselines3, read_moments
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from typer.testing import CliRunner

VECTOR = spaces.Box(-5, 5, (6,), np.float32)
IMAGE = spaces.Box(0, 255, (36, 36, 3), np.uint8)


def saved(tmp_path, model):
    """Return the file of a model whose parameters are far from where they begin."""
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.save(tmp_path / "model.zip")
    return tmp_path / "model.zip"


def equal(model, policy, space):
    """Compare deterministic actions for 300 observations, in a batch and one by one."""
    space.seed(3)
    obs = np.stack([space.sample() for _ in range(300)])
    theirs, _ = model.predict(obs, deterministic=True)
    ours = policy.predict(obs)
    assert ours.dtype == theirs.dtype or ours.dtype == np.int8  # theirs are floats if binary
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(policy.predict(obs[0]), theirs[0], rtol=1e-5, atol=1e-5)
    assert len(np.unique(np.round(ours, 6), axis=0)) > 1, "the policy does the same everywhere"


SMALL = {"buffer_size": 10}
KINDS = {
    "ppo": (sb3.PPO, TORQUES, {}),
    "ppo_choices": (sb3.PPO, spaces.Discrete(5), {}),
    "ppo_switches": (sb3.PPO, spaces.MultiBinary(4), {}),
    "ppo_kinds": (sb3.PPO, spaces.MultiDiscrete([3, 4]), {}),
    "ppo_elu": (
        sb3.PPO, TORQUES,
        {"policy_kwargs": {"net_arch": [32, 16, 8], "activation_fn": torch.nn.ELU}},
    ),
    "a2c": (sb3.A2C, TORQUES, {}),
    "sac": (sb3.SAC, TORQUES, SMALL),
    "td3": (sb3.TD3, TORQUES, {**SMALL, "policy_kwargs": {"net_arch": [64, 32]}}),
    "dqn": (sb3.DQN, spaces.Discrete(5), SMALL),
    "tqc": (sb3_contrib.TQC, TORQUES, SMALL),
    "qrdqn": (sb3_contrib.QRDQN, spaces.Discrete(4), SMALL),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_it_acts_as_stable_baselines3_does(kind, tmp_path):
    """Every algorithm, kind of action, size and activation."""
    cls, actions, options = KINDS[kind]
    env = Env(VECTOR, actions)
    model = cls("MlpPolicy", env, seed=0, **options)
    policy = from_stable_baselines3(saved(tmp_path, model), env)
    equal(model, policy, VECTOR)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(7),
        spaces.MultiDiscrete([3, 5]),
        spaces.Box(-1, 1, (2, 3), np.float32),
        spaces.Box(0, 255, (5,), np.uint8),
    ],
    ids=str,
)
def test_every_space_of_observations(space, tmp_path):
    """Numbers and choices become features as there."""
    env = Env(space, TORQUES)
    model = sb3.PPO("MlpPolicy", env, seed=0)
    equal(model, from_stable_baselines3(saved(tmp_path, model), env), space)


@pytest.mark.parametrize(
    ("cls", "name", "actions", "first"),
    [
        (sb3.PPO, "CnnPolicy", TORQUES, False),
        (sb3.PPO, "MlpPolicy", TORQUES, True),
        (sb3.SAC, "CnnPolicy", TORQUES, False),
        (sb3.DQN, "CnnPolicy", spaces.Discrete(3), False),
    ],
)
def test_images(cls, name, actions, first, tmp_path):
    """The Nature CNN, off-policy by names of its own, and the same images as a vector."""
    space = spaces.Box(0, 255, (3, 36, 36), np.uint8) if first else IMAGE
    env = Env(space, actions)
    model = cls(name, env, seed=0, **({} if cls is sb3.PPO else SMALL))
    policy = from_stable_baselines3(saved(tmp_path, model), env)
    space.seed(0)
    obs = np.stack([space.sample() for _ in range(40)])
    theirs, _ = model.predict(obs if first else obs.transpose(0, 3, 1, 2), deterministic=True)
    np.testing.assert_allclose(policy.predict(obs), theirs, rtol=1e-4, atol=1e-4)


def test_masks(tmp_path):
    """MaskablePPO heeds them, PPO takes none."""
    env = Env(VECTOR, spaces.Discrete(5))
    model = sb3_contrib.MaskablePPO("MlpPolicy", env, seed=0)
    policy = from_stable_baselines3(saved(tmp_path, model), env)
    obs = np.stack([VECTOR.sample() for _ in range(100)])
    masks = np.random.default_rng(0).random((100, 5)) < 0.5
    masks[:, 2] = True
    theirs, _ = model.predict(obs, deterministic=True, action_masks=masks)
    np.testing.assert_array_equal(policy.predict(obs, action_masks=masks), theirs)
    assert (policy.predict(obs) != theirs).any()


def test_memory(tmp_path):
    """RecurrentPPO's LSTM, over an episode."""
    env = Env(VECTOR, TORQUES)
    model = sb3_contrib.RecurrentPPO("MlpLstmPolicy", env, seed=0, policy_kwargs={
        "lstm_hidden_size": 16
    })  # fmt: skip
    policy = from_stable_baselines3(saved(tmp_path, model), env)
    state = theirs_state = None
    for step in range(20):
        obs = VECTOR.sample()
        theirs, theirs_state = model.predict(
            obs, theirs_state, episode_start=np.array([step == 0]), deterministic=True
        )
        ours, state = policy.predict(obs, state=state)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_normalised_observations(tmp_path):
    """The moments of VecNormalize are given as arrays, or in a file."""
    env = VecNormalize(DummyVecEnv([lambda: Env(VECTOR, TORQUES)]))
    model = sb3.PPO("MlpPolicy", env, n_steps=64, batch_size=64, seed=0)
    model.learn(128)
    path = saved(tmp_path, model)
    moments = tmp_path / "moments.npz"
    np.savez(moments, mean=env.obs_rms.mean, var=env.obs_rms.var)
    policy = from_stable_baselines3(
        path, Env(VECTOR, TORQUES), observation_moments=read_moments(moments)
    )
    obs = np.stack([VECTOR.sample() for _ in range(100)])
    theirs, _ = model.predict(env.normalize_obs(obs), deterministic=True)
    np.testing.assert_allclose(policy.predict(obs), theirs, rtol=1e-4, atol=1e-4)


def test_export_writes_a_policy_file(tmp_path):
    """From the command line, which asks for the env, as the file's own spaces are pickled."""
    model = sb3.PPO("MlpPolicy", "CartPole-v1", seed=0)
    path, file = saved(tmp_path, model), tmp_path / "policy.onnx"
    done = CliRunner().invoke(build_app(), ["export", str(path), str(file)])
    assert done.exit_code != 0
    assert "--env" in str(done.exception or done.output)
    done = CliRunner().invoke(build_app(), ["export", str(path), str(file), "--env", "CartPole-v1"])
    assert done.exit_code == 0, done.output
    equal(model, rlox.load_policy(file), VECTOR_OF_CART_POLE)


VECTOR_OF_CART_POLE = spaces.Box(-2, 2, (4,), np.float32)


class Attack:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return os.mkdir, (str(self._path),)


def test_a_hostile_file_runs_nothing(tmp_path):
    """Neither the pickled objects of the JSON nor the parameters are unpickled."""
    model = sb3.PPO("MlpPolicy", "CartPole-v1", seed=0)
    path, touched = saved(tmp_path, model), tmp_path / "touched"
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    attack = pickle.dumps(Attack(touched))
    data = json.loads(content["data"])
    for value in data.values():
        if isinstance(value, dict) and ":serialized:" in value:
            value[":serialized:"] = base64.b64encode(attack).decode()
    content["data"] = json.dumps(data).encode()
    content["pytorch_variables.pth"] = attack
    write(path, content)
    equal(model, from_stable_baselines3(path, "CartPole-v1"), VECTOR_OF_CART_POLE)
    file = io.BytesIO()
    torch.save({"action_net.weight": Attack(touched)}, file)
    for hostile in (attack, file.getvalue()):
        write(path, {**content, "policy.pth": hostile})
        with pytest.raises(CheckpointError, match="damaged or not a file of Stable-Baselines3"):
            from_stable_baselines3(path, "CartPole-v1")
    assert not touched.exists()


def write(path, content):
    """Write an archive."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, each in content.items():
            archive.writestr(name, each)


def test_what_cannot_be_read_is_named(tmp_path):
    """Other spaces, gSDE, dictionaries, activations and layers of one's own."""
    path = saved(tmp_path, sb3.PPO("MlpPolicy", "CartPole-v1"))
    with pytest.raises(SpaceError, match="has 4 numbers for observations"):
        from_stable_baselines3(path, "Acrobot-v1")
    with pytest.raises(SpaceError, match="has 2 numbers for actions"):
        from_stable_baselines3(path, Env(VECTOR_OF_CART_POLE, spaces.Discrete(3)))
    with pytest.raises(SpaceError, match="observation_moments must be of shape"):
        from_stable_baselines3(path, "CartPole-v1", observation_moments=(np.zeros(3), np.ones(3)))
    nested = Env(spaces.Dict({"a": VECTOR}), TORQUES)
    path = saved(tmp_path, sb3.PPO("MultiInputPolicy", nested))
    with pytest.raises(ExportError, match="observations that are a Dict"):
        from_stable_baselines3(path, nested)
    path = saved(tmp_path, sb3.PPO("MlpPolicy", "Pendulum-v1", use_sde=True))
    with pytest.raises(ExportError, match="use_sde=True"):
        from_stable_baselines3(path, "Pendulum-v1")
    own = {"activation_fn": torch.nn.Softsign}
    path = saved(tmp_path, sb3.PPO("MlpPolicy", "Pendulum-v1", policy_kwargs=own))
    with pytest.raises(ExportError, match="the activation Softsign"):
        from_stable_baselines3(path, "Pendulum-v1")
    path = saved(tmp_path, sb3_contrib.CrossQ("MlpPolicy", "Pendulum-v1", buffer_size=10))
    with pytest.raises(ExportError, match="holds no policy of a known kind"):
        from_stable_baselines3(path, "Pendulum-v1")
    with pytest.raises(CheckpointError, match="cannot be read"):
        from_stable_baselines3(tmp_path / "none.zip", "CartPole-v1")
    with pytest.raises(CheckpointError, match="the arrays mean and var"):
        read_moments(path)
