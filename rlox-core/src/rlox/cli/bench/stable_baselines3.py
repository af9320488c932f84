"""Trainings of Stable-Baselines3 and SBX with the options of an rlox config."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["ALGORITHMS", "sb3_model"]

Config = Mapping[str, Any]

RLOXS_OWN = {"preset", "backend", "env_backend", "steps_per_iteration", "save_replay_buffer"}
"""Options that say who does the work and how it is kept, and nothing of what is done."""

SHARED = {"seed", "device", "torch_threads", "n_envs", "learning_rate", "gamma", "hidden"}
"""Options of every algorithm that :func:`sb3_model` carries over."""


def sb3_model(library: str, algorithm: str, env: str, config: Config) -> Any:
    """Return a model with the networks, envs, batches and options of an rlox config.

    Args:
        library: ``stable_baselines3``, or ``sbx``, which has its interface.
        algorithm: a name of :data:`ALGORITHMS`.
        env: gymnasium's id.
        config: all options of the algorithm in rlox.

    Raises:
        ValueError: an option that is not carried over has another value than its default, which
            is the value that the library has too; or ``train_freq`` is no whole number of vector
            steps, in which these libraries count it.
    """
    import torch
    from stable_baselines3.common.env_util import make_vec_env

    from rlox import registry

    carried, options_of = ALGORITHMS[algorithm]
    defaults = registry.config_class(algorithm)().to_dict()
    for name, value in config.items():
        if name not in SHARED | carried | RLOXS_OWN and value != defaults[name]:
            raise ValueError(
                f"{name}={value!r} has no counterpart in {library}; leave it out, or pass "
                "--peers without it"
            )
    if config["torch_threads"]:
        torch.set_num_threads(config["torch_threads"])
    envs = make_vec_env(env, config["n_envs"], seed=config["seed"])
    model = getattr(importlib.import_module(library), algorithm.upper())
    return model(
        "MlpPolicy",
        envs,
        seed=config["seed"],
        device=config["device"],
        gamma=config["gamma"],
        learning_rate=_constant(config["learning_rate"]),
        policy_kwargs={"net_arch": [config["hidden"], config["hidden"]]},
        **options_of(config, envs.action_space.shape),
    )


def _a2c(config: Config, _: Any) -> dict[str, Any]:
    names = ("n_steps", "gae_lambda", "vf_coef", "max_grad_norm")
    return {
        **{name: config[name] for name in names},
        "ent_coef": _constant(config["ent_coef"]),
        "normalize_advantage": config["normalize_advantages"],
    }


def _ppo(config: Config, shape: Any) -> dict[str, Any]:
    return {
        **_a2c(config, shape),
        **{name: config[name] for name in ("batch_size", "n_epochs", "target_kl")},
        "clip_range": _constant(config["clip_eps"]),
        "clip_range_vf": config["vf_clip_eps"],
    }


def _replay(config: Config, _: Any) -> dict[str, Any]:
    names = ("buffer_size", "learning_starts", "batch_size", "gradient_steps", "tau")
    if config["train_freq"] % config["n_envs"]:
        raise ValueError(
            f"train_freq={config['train_freq']} is no whole number of steps of {config['n_envs']} "
            "envs, in which the peers count it; pass a multiple of n_envs"
        )
    return {
        **{name: config[name] for name in names},
        "train_freq": config["train_freq"] // config["n_envs"],
    }


def _dqn(config: Config, shape: Any) -> dict[str, Any]:
    # which they count in env steps
    every = config["target_update_interval"] * config["train_freq"] // config["gradient_steps"]
    return {
        **_replay(config, shape),
        "max_grad_norm": config["max_grad_norm"],
        "target_update_interval": every,
    }


def _sac(config: Config, shape: Any) -> dict[str, Any]:
    alpha = config["alpha"]
    return {
        **_replay(config, shape),
        "ent_coef": f"auto_{alpha}" if config["auto_entropy"] else alpha,
    }


def _ddpg(config: Config, shape: Any) -> dict[str, Any]:
    return {**_replay(config, shape), "action_noise": _noise(config, shape)}


def _td3(config: Config, shape: Any) -> dict[str, Any]:
    return {
        **_ddpg(config, shape),
        "policy_delay": config["policy_delay"],
        "target_policy_noise": config["target_noise"],
        "target_noise_clip": config["noise_clip"],
    }


def _noise(config: Config, shape: Any) -> Any:
    """Return the noise that explores, or ``None``."""
    import numpy as np
    from stable_baselines3.common import noise

    kinds: dict[str, Any] = {
        "gaussian": noise.NormalActionNoise,
        "ornstein-uhlenbeck": noise.OrnsteinUhlenbeckActionNoise,
    }
    if config["exploration"] == "none":
        return None
    return kinds[config["exploration"]](np.zeros(shape), np.full(shape, config["noise_std"]))


def _constant(value: Any) -> float:
    """Return a schedule's first value, which costs what any other costs."""
    if isinstance(value, Mapping):
        return float(value["start"] if "start" in value else value["points"][0][1])
    return float(value)


_ROLLOUTS = {"n_steps", "gae_lambda", "vf_coef", "ent_coef", "max_grad_norm",
             "normalize_advantages"}  # fmt: skip
_REPLAY = {"buffer_size", "learning_starts", "batch_size", "train_freq", "gradient_steps", "tau"}

ALGORITHMS: dict[str, tuple[set[str], Callable[[Config, Any], dict[str, Any]]]] = {
    "a2c": (_ROLLOUTS, _a2c),
    "ddpg": (_REPLAY | {"exploration", "noise_std"}, _ddpg),
    "dqn": (_REPLAY | {"max_grad_norm", "target_update_interval"}, _dqn),
    "ppo": (_ROLLOUTS | {"batch_size", "n_epochs", "target_kl", "clip_eps", "vf_clip_eps"}, _ppo),
    "sac": (_REPLAY | {"alpha", "auto_entropy"}, _sac),
    "td3": (
        _REPLAY | {"exploration", "noise_std", "policy_delay", "target_noise", "noise_clip"},
        _td3,
    ),
}
"""The options that are carried over besides the shared ones, and what makes theirs of a config."""
