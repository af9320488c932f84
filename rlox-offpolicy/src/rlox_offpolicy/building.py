"""How the algorithms here are put together from their configs, which have many options alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import torch
from rlox.algorithm import Algorithm
from rlox.config.model import UNSET, Config, resolve_config
from rlox.envs.make import fixed_env_count
from rlox.errors import ConfigError, SpaceError
from rlox.learners.transitions import ChosenReplayLearner, ReplayTask, Step, choose_replay_learner
from rlox.networks.validate import refuse_network_options
from rlox.protocols import ExplorationStrategy
from rlox.replay.action_codec import BoxActions, DiscreteActions
from rlox.replay.loop import ReplayAgent

from rlox_offpolicy.exploration import GaussianNoise, NoNoise, OrnsteinUhlenbeckNoise

__all__ = [
    "make_agent",
    "make_exploration",
    "make_learner",
    "require_box",
    "require_discrete",
    "resolve",
]

ConfigT = TypeVar("ConfigT", bound=Config)

NETWORK_OPTIONS = ("hidden", "dueling", "noisy_std")
"""The options of the default networks."""


def resolve(
    cls: type[ConfigT],
    config: Config | Mapping[str, Any] | str | Path | None,
    env: Any,
    networks: Sequence[Any],
    parts: Mapping[str, Any],
    **options: Any,
) -> tuple[ConfigT, dict[str, Any]]:
    """Return an algorithm's config, and the parts that the caller brings as objects.

    Args:
        cls: the algorithm's config class.
        config: see :func:`rlox.config.model.resolve_config`.
        env: what the user passed as env.
        networks: what the user passed as each of the networks; none: the default one.
        parts: arguments that are a registered name, which is an option, or an object.
        options: options that win over ``config``.

    Raises:
        ConfigError: an option is wrong, or would be ignored.
    """
    names = {name: part for name, part in parts.items() if isinstance(part, str)}
    objects = {
        name: None if name in names or part is UNSET else part for name, part in parts.items()
    }
    resolved = resolve_config(cls, config, **options, **names)
    if all(network is not None for network in networks):
        refuse_network_options(NETWORK_OPTIONS, resolved, options)
    return _fit_to_env(resolved, env), objects


def _fit_to_env(config: ConfigT, env: Any) -> ConfigT:
    """Return the config with the number of envs that ``env`` is, where it cannot be copied."""
    count = fixed_env_count(env)
    if count is None or "n_envs" in config.model_fields_set:
        return config
    return config.replace(n_envs=count)


def make_agent(algorithm: Algorithm, buffer: Any = None) -> ReplayAgent:
    """Return the replay agent of an algorithm's env and config; the algorithm's close frees it.

    Args:
        algorithm: its base has been initialised; its config has the fields read below.
        buffer: an object as :class:`rlox.replay.loop.ReplayAgent` takes it; none: the one that the
            config names.

    Raises:
        ConfigError: ``n_step`` is given with a buffer that was not made for it.
    """
    cfg = algorithm.config
    if buffer is not None and cfg.n_step > 1:
        raise ConfigError(
            f"n_step {cfg.n_step} is for buffers made here; give it to your "
            f"{type(buffer).__name__} and leave the option at 1"
        )
    agent = ReplayAgent(
        algorithm.env_source,
        algorithm.streams,
        algorithm.clock,
        buffer=cfg.buffer if buffer is None else buffer,
        buffer_size=cfg.buffer_size,
        priority_alpha=cfg.priority_alpha,
        n_step=cfg.n_step,
        gamma=cfg.gamma,
        n_sampled_goal=cfg.n_sampled_goal,
        goal_selection_strategy=cfg.goal_selection_strategy,
        hot_capacity=cfg.hot_capacity,
        buffer_folder=cfg.buffer_folder,
        batch_size=cfg.batch_size,
        learning_starts=cfg.learning_starts,
        train_freq=cfg.train_freq,
        gradient_steps=cfg.gradient_steps,
        steps_per_iteration=cfg.steps_per_iteration,
        save_replay_buffer=cfg.save_replay_buffer,
        n_envs=cfg.n_envs,
        env_backend=cfg.env_backend,
        vectorization=cfg.vectorization,
        device=cfg.device,
        threads=cfg.torch_threads,
    )
    algorithm.resources.callback(agent.close)
    return agent


def make_learner(
    algorithm: Algorithm,
    agent: ReplayAgent,
    objective: Any,
    parts: Mapping[str, Any],
    steps: Mapping[Enum, Step],
    streams: Mapping[str, torch.Generator] | None = None,
) -> ChosenReplayLearner:
    """Return what takes an algorithm's gradient steps.

    Args:
        algorithm: its config has the field ``backend``.
        agent: the algorithm's.
        objective: see :class:`rlox.learners.transitions.ReplayTask`.
        parts: see there.
        steps: see there.
        streams: see there; ``None``: the steps draw no noise of their own.

    Raises:
        BackendError: the backend that the config names cannot take these steps.
    """
    task = ReplayTask(
        objective=objective,
        device=agent.device,
        parts=parts,
        steps=steps,
        streams=streams or {},
    )
    return choose_replay_learner(algorithm.config.backend, task)


def make_exploration(algorithm: Algorithm, exploration: Any = None) -> ExplorationStrategy:
    """Return the noise on an algorithm's continuous actions.

    Args:
        algorithm: its config has the fields read below.
        exploration: an object with the methods of :class:`rlox.protocols.ExplorationStrategy`;
            none: the one that the config names.

    Raises:
        ConfigError: the object has not the methods it needs.
    """
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


def require_box(agent: ReplayAgent, name: str) -> int:
    """Return the size of an action of the agent's env.

    Raises:
        SpaceError: the actions are discrete.
    """
    if not isinstance(agent.actions, BoxActions):
        raise SpaceError(
            f"{name} needs continuous actions, a Box, got {agent.env.action_space}; DQN and "
            "discrete_sac take Discrete ones"
        )
    return int(agent.actions.shape[0])


def require_discrete(agent: ReplayAgent, name: str) -> int:
    """Return the number of actions of the agent's env.

    Raises:
        SpaceError: the actions are continuous.
    """
    if not isinstance(agent.actions, DiscreteActions):
        raise SpaceError(
            f"{name} needs Discrete actions, got {agent.env.action_space}; SAC takes a Box"
        )
    return agent.actions.count
