"""How the algorithms here get their replay agent: the options that all their configs have."""

from __future__ import annotations

from typing import Any

from rlox.algorithm import Algorithm
from rlox.config import UNSET
from rlox.errors import ConfigError
from rlox.off_policy import ReplayAgent

__all__ = ["make_agent", "split_buffer"]


def split_buffer(buffer: Any) -> tuple[Any, Any]:
    """Return the argument ``buffer`` as what the config takes, a name, and an object or none."""
    return (buffer, None) if buffer is UNSET or isinstance(buffer, str) else (UNSET, buffer)


def make_agent(algorithm: Algorithm, buffer: Any = None) -> ReplayAgent:
    """Return the replay agent of an algorithm's env and config; the algorithm's close frees it.

    Args:
        algorithm: its base has been initialised; its config has the fields read below.
        buffer: an object with the methods of :class:`rlox.protocols.ReplayBuffer`; none: the one
            that the config names.

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
