"""Building off-policy algorithms from their configs: envs, buffer, learner, noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from rlox.algorithm import Algorithm
from rlox.config.composition import selection
from rlox.config.model import UNSET, Config, resolve_config
from rlox.config.schedules import Schedules
from rlox.envs.make import fixed_env_count
from rlox.envs.running import RunningEnvs
from rlox.errors import ConfigError, SpaceError
from rlox.learners.transitions import ChosenReplayLearner, ReplayTask, Step, choose_replay_learner
from rlox.networks.validate import refuse_network_options
from rlox.nn import find_device
from rlox.protocols import ExplorationStrategy, VecEnv
from rlox.registry import get_registry
from rlox.replay.buffers import BufferOptions, make_buffer
from rlox.replay.codecs import BoxActions, DiscreteActions, ReplayObservations, make_actions
from rlox.replay.goals import find_goals
from rlox.replay.loop import ReplayLoop, UpdatesDue

from rlox_offpolicy.exploration import GaussianNoise, NoNoise, OrnsteinUhlenbeckNoise
from rlox_offpolicy.own_parts import (
    Parts,
    given_options,
    require_capacity,
    require_no_ignored_options,
    require_priorities,
)

__all__ = [
    "make_exploration",
    "make_learner",
    "make_replay",
    "optimizer_parts",
    "require_box",
    "require_discrete",
    "resolve",
]

ConfigT = TypeVar("ConfigT", bound=Config)

NETWORK_OPTIONS = ("hidden", "critic_hidden", "dueling", "noisy_std")
"""The options of the default networks."""


def resolve(
    cls: type[ConfigT],
    config: Config | Mapping[str, Any] | str | Path | None,
    env: Any,
    networks: Sequence[Any],
    parts: Mapping[str, Any],
    **options: Any,
) -> tuple[ConfigT, Parts]:
    """Return an algorithm's config, and the parts that the caller names or brings as objects.

    Args:
        cls: the algorithm's config class.
        config: see :func:`rlox.config.model.resolve_config`.
        env: what the user passed as env.
        networks: what the user passed as each of the networks; ``None`` is the default one.
        parts: arguments that are a registered name, which is an option, or an object; one that is
            :data:`UNSET` or ``None`` is left to the config.
        options: options that win over ``config``.

    Raises:
        ConfigError: an option is wrong, or would be ignored.
    """
    given = Parts({k: part for k, part in parts.items() if part is not UNSET and part is not None})
    keywords = {name for name, value in options.items() if value is not UNSET}
    require_no_ignored_options(given, keywords)  # the config would ask for other options beside
    resolved = resolve_config(cls, config, **options, **given.names)
    if all(network is not None for network in networks):
        refuse_network_options(NETWORK_OPTIONS, resolved, options)
    given = Parts(given.given, given_options(resolved, keywords))
    require_no_ignored_options(given, given.options)
    require_capacity(resolved, given.own("buffer"))
    return _fit_to_env(resolved, env), given


def _fit_to_env(config: ConfigT, env: Any) -> ConfigT:
    """Return the config with the number of envs that ``env`` is, if it cannot be copied."""
    count = fixed_env_count(env)
    if count is None or "n_envs" in config.model_fields_set:
        return config
    return config.replace(n_envs=count)


def make_replay(algorithm: Algorithm, parts: Parts, schedules: Schedules) -> ReplayLoop:
    """Return the envs and the replay buffer of an algorithm, which its close frees.

    Args:
        algorithm: its base has been initialised; its config is a
            :class:`rlox_offpolicy.replay_config.ReplayConfig`.
        parts: the caller's own buffer, an object with the methods of
            :class:`rlox.protocols.ReplayBuffer` or :class:`rlox.protocols.ReplayBufferProtocol`,
            if there is one; else the one that the config names is made.
        schedules: with the functions that the caller passed.

    Raises:
        ConfigError: ``n_step`` is given with a buffer that was not made for it, or
            ``priority_beta`` with one that has no priorities, or the buffer lacks methods or would
            mix the envs.
        EnvError: the env cannot be built.
        SpaceError: see :class:`rlox.replay.loop.ReplayLoop`.
    """
    cfg, streams, resources = algorithm.config, algorithm.streams, algorithm.resources
    buffer = parts.own("buffer")
    if buffer is not None and cfg.n_step > 1:
        raise ConfigError(
            f"n_step {cfg.n_step} is for buffers made here; give it to your "
            f"{type(buffer).__name__} and leave the option at 1"
        )
    find_device(cfg.device)  # before envs are made
    envs = RunningEnvs.make(
        algorithm.env_source,
        cfg.n_envs,
        streams.seeds("envs", 1)[0],
        backend=selection(cfg, "env_backend"),
        vectorization=cfg.vectorization,
        env_kwargs=cfg.env_kwargs,
    )
    resources.callback(envs.close)
    options = _buffer_options(algorithm, envs.env, named=buffer is None)
    named = selection(cfg, "buffer")
    made: Any = make_buffer(named.name if buffer is None else buffer, options, named.options)
    if buffer is None and hasattr(made, "close"):
        resources.callback(made.close)
    require_priorities(cfg, parts, schedules, made)
    return ReplayLoop(
        envs,
        made,
        options,
        streams,
        algorithm.clock,
        updates=UpdatesDue(cfg.gradient_steps, cfg.train_freq),
        batch_size=cfg.batch_size,
        learning_starts=cfg.learning_starts,
        steps_per_iteration=cfg.steps_per_iteration,
        save_replay_buffer=cfg.save_replay_buffer,
        clip_rewards=cfg.clip_rewards,
        device=cfg.device,
        threads=cfg.torch_threads,
    )


def _buffer_options(algorithm: Algorithm, env: VecEnv, *, named: bool) -> BufferOptions:
    cfg, streams = algorithm.config, algorithm.streams
    actions, observations = (
        make_actions(env.action_space),
        ReplayObservations(env.observation_space),
    )
    goals = None
    if named and get_registry().get("rlox_buffers", cfg.buffer).spec.goals:
        goals = find_goals(
            algorithm.env_source,
            env.observation_space,
            buffer=cfg.buffer,
            env_kwargs=cfg.env_kwargs,
            resources=algorithm.resources,
        )
    return BufferOptions(
        capacity=cfg.buffer_size,
        obs_shape=observations.shape,
        obs_dtype=observations.dtype,
        act_shape=actions.shape,
        act_dtype=actions.dtype,
        n_envs=env.n_envs,
        n_step=cfg.n_step,
        gamma=cfg.gamma,
        seed=streams.seeds("replay", 1)[0],
        goals=goals,
    )


def make_learner(
    algorithm: Any,
    replay: ReplayLoop,
    objective: Any,
    parts: Mapping[str, Any],
    steps: Mapping[Any, Step],
    streams: Mapping[str, torch.Generator] | None = None,
) -> ChosenReplayLearner:
    """Return what takes an algorithm's gradient steps.

    Args:
        algorithm: its config has the field ``backend``, and it has ``added_losses``.
        replay: the algorithm's.
        objective: see :class:`rlox.learners.transitions.ReplayTask`.
        parts: see there.
        steps: see there.
        streams: see there; ``None``: the steps draw no noise of their own.

    Raises:
        BackendError: the backend that the config names cannot take these steps.
    """
    task = ReplayTask(
        objective=objective,
        device=replay.device,
        parts=parts,
        steps=steps,
        streams=streams or {},
        added_losses=algorithm.added_losses,
    )
    return choose_replay_learner(algorithm.config.backend, task)


def optimizer_parts(optimizers: Mapping[str, Any]) -> dict[str, Any]:
    """Return optimisers under the names that objectives and checkpoints have for them."""
    return {f"{name}_optimizer": optimizer for name, optimizer in optimizers.items()}


def make_exploration(algorithm: Algorithm, parts: Parts) -> ExplorationStrategy:
    """Return the noise on an algorithm's continuous actions.

    Args:
        algorithm: its config has the fields read below.
        parts: the caller's own exploration, an object with the methods of
            :class:`rlox.protocols.ExplorationStrategy`, if there is one; else the one that the
            config names is made.

    Raises:
        ConfigError: the object lacks a method.
    """
    exploration = parts.own("exploration")
    if exploration is not None:
        if not isinstance(exploration, ExplorationStrategy):
            raise ConfigError(
                "exploration must be a name or have explore, state_dict and load_state_dict, got "
                f"{type(exploration).__name__}"
            )
        return exploration
    cfg, rng = algorithm.config, algorithm.streams.numpy("exploration")
    kinds = {"gaussian": GaussianNoise, "ornstein-uhlenbeck": OrnsteinUhlenbeckNoise}
    return NoNoise() if cfg.exploration == "none" else kinds[cfg.exploration](cfg.noise_std, rng)


def require_box(replay: ReplayLoop, name: str) -> int:
    """Return the size of an action of the envs.

    Raises:
        SpaceError: the actions are discrete.
    """
    if not isinstance(replay.actions, BoxActions):
        raise SpaceError(
            f"{name} needs continuous actions, a Box, got {replay.env.action_space}; DQN and "
            "discrete_sac take Discrete ones"
        )
    return int(replay.actions.shape[0])


def require_discrete(replay: ReplayLoop, name: str) -> int:
    """Return the number of actions of the envs.

    Raises:
        SpaceError: the actions are continuous.
    """
    if not isinstance(replay.actions, DiscreteActions):
        raise SpaceError(
            f"{name} needs Discrete actions, got {replay.env.action_space}; SAC takes a Box"
        )
    return replay.actions.count
