"""Building DreamerV3 from its config: envs, buffer, networks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from gymnasium.spaces import Box
from rlox.algorithm import Algorithm
from rlox.config.composition import selection
from rlox.config.model import Config, resolve_config
from rlox.deployment import PolicyData
from rlox.envs.make import fixed_env_count
from rlox.envs.running import RunningEnvs
from rlox.errors import ConfigError
from rlox.preprocessing import Preprocessor
from rlox.protocols import VecEnv
from rlox.replay.buffers import SequenceOptions, make_sequence_buffer
from rlox.replay.loop import UpdatesDue
from rlox.spaces.rows import ObservationRows, leaf_spaces

from rlox_dreamer.acting import Actor
from rlox_dreamer.configs import DreamerV3Config
from rlox_dreamer.experience import Experience
from rlox_dreamer.heads import ActionCodec
from rlox_dreamer.networks import Networks
from rlox_dreamer.sequences import Batches, row_fields

__all__ = [
    "DreamerObjective",
    "describe_policy",
    "make_actor",
    "make_experience",
    "make_networks",
    "resolve",
]


@dataclass(frozen=True)
class DreamerObjective:
    """Every number that an update depends on; see the options of the same names."""

    imagination_horizon: int
    gamma: float
    return_lambda: float
    entropy: float
    kl_balance: float
    dyn_scale: float | None
    rep_scale: float | None
    free_nats: float
    slow_rate: float
    slow_target: bool
    replay_value_scale: float
    replay_context: bool
    compute_dtype: str

    @staticmethod
    def of(config: DreamerV3Config) -> DreamerObjective:
        """Return the numbers of a config."""
        return DreamerObjective(
            **{f.name: getattr(config, f.name) for f in fields(DreamerObjective)}
        )


def resolve(
    config: Config | Mapping[str, Any] | str | Path | None, env: Any, **options: Any
) -> DreamerV3Config:
    """Return the config, with the number of envs that ``env`` is if it cannot be copied.

    Raises:
        ConfigError: an option is unknown or out of range.
    """
    resolved = resolve_config(DreamerV3Config, config, **options)
    envs = fixed_env_count(env)
    if envs is None or "n_envs" in resolved.model_fields_set:
        return resolved
    return resolved.replace(n_envs=envs)


def make_experience(algorithm: Algorithm) -> Experience:
    """Return the envs and the replay buffer of an algorithm, which its close frees.

    Raises:
        EnvError: the env cannot be built.
        SpaceError: the env masks actions, or has none of a known kind.
    """
    cfg, streams = algorithm.config, algorithm.streams
    envs = RunningEnvs.make(
        algorithm.env_source,
        cfg.n_envs,
        streams.seeds("envs", 1)[0],
        backend=selection(cfg, "env_backend"),
        vectorization=cfg.vectorization,
        env_kwargs=cfg.env_kwargs,
    )
    algorithm.resources.callback(envs.close)
    actions = ActionCodec(envs.env.action_space)
    _require_derived(cfg, envs.env, actions)
    asked = SequenceOptions(
        capacity=cfg.buffer_size,
        fields=row_fields(
            envs.env.observation_space, actions.size, cfg.deter_dim, cfg.stoch_dim,
            cfg.stoch_classes,
        ),
        declared=("deter", "stoch"),
        n_envs=envs.env.n_envs,
        online_length=cfg.seq_len if cfg.online_queue else None,
        seed=streams.seeds("replay", 1)[0],
    )  # fmt: skip
    named = selection(cfg, "buffer")
    buffer = make_sequence_buffer(named.name, asked, named.options)
    per_step = Fraction(cfg.train_ratio).limit_denominator(10**6) / (cfg.batch_size * cfg.seq_len)
    return Experience(
        envs,
        Batches(buffer, _preprocessor(cfg, envs.env), torch.device(cfg.device)),
        algorithm.clock,
        updates=UpdatesDue.of_ratio(per_step),
        batch_size=cfg.batch_size,
        length=cfg.seq_len,
        learning_starts=cfg.learning_starts,
        steps_per_iteration=cfg.steps_per_iteration,
        saves_buffer=cfg.save_replay_buffer,
    )


def _preprocessor(cfg: DreamerV3Config, env: VecEnv) -> Preprocessor | None:
    """Return what normalises boxes of floats; ``None`` if there are none, or they stay as is."""
    leaves = leaf_spaces(env.observation_space).values()
    floats = any(isinstance(leaf, Box) and leaf.dtype.kind == "f" for leaf in leaves)
    if not (cfg.normalize_observations and floats):
        return None
    return Preprocessor(env.observation_space, normalize=True, frame_stack=1)


def _require_derived(cfg: DreamerV3Config, env: VecEnv, actions: ActionCodec) -> None:
    empty = ObservationRows(env.observation_space).empty(1)
    leaves = empty.values() if isinstance(empty, dict) else [empty]
    derived = {"obs_dim": sum(math.prod(leaf.shape) for leaf in leaves), "n_actions": actions.size}
    for name, value in derived.items():
        if getattr(cfg, name) not in (None, value):
            raise ConfigError(
                f"{name} follows from the env and is {value}, got {getattr(cfg, name)}; "
                "leave it out"
            )


def make_networks(algorithm: Any) -> Networks:
    """Return the networks of an algorithm, on its device."""
    generator = algorithm.streams.torch("networks")
    return Networks(algorithm.experience.env, algorithm.config, generator).to(algorithm.device)


def make_actor(algorithm: Any) -> Actor:
    """Return what acts in the envs of an algorithm that has its experience and its networks."""
    env, see = algorithm.experience.env, algorithm.experience.batches.see
    return Actor(algorithm.networks, env, see, algorithm.streams.torch("acting"))


def describe_policy(algorithm: Any) -> PolicyData:
    """Return the policy of an algorithm as data."""
    env = algorithm.experience.env
    return PolicyData(
        algorithm=algorithm.name,
        observation_space=env.observation_space,
        action_space=env.action_space,
        network=algorithm.networks.layer_data(),
        preprocessor=algorithm.experience.batches.preprocessor,
    )
