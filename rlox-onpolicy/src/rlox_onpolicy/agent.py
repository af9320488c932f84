"""What the algorithms here share: how they get their actor-critic, and what they report."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rlox.algorithm import Algorithm
from rlox.batches.rollout import RolloutBatch
from rlox.learners.rollouts import ChosenLearner
from rlox.rollouts.actor_critic import ActorCritic, Collector, PolicyMaker
from rlox.training.hooks import Hooks
from torch import nn

__all__ = ["NETWORK_OPTIONS", "learn", "make_agent"]

NETWORK_OPTIONS = ("recurrent", "memory_size", "network", "hidden")
"""The options of the default networks."""


def make_agent(
    algorithm: Algorithm,
    make_optimizer: partial[Any],
    policy: nn.Module | PolicyMaker | None,
    collector: Collector | None = None,
) -> ActorCritic:
    """Return the actor-critic of an algorithm's env and config; the algorithm's close frees it.

    The algorithm gets its optimiser.

    Args:
        algorithm: its base has been initialised; its config has the fields read below.
        make_optimizer: see :class:`rlox.nn.FlatOptimizer`.
        policy: see :class:`rlox.rollouts.actor_critic.ActorCritic`.
        collector: see :class:`rlox.rollouts.actor_critic.ActorCritic`.
    """
    cfg = algorithm.config
    agent = ActorCritic(
        algorithm.env_source,
        algorithm.streams,
        make_optimizer,
        policy=policy,
        collector=collector,
        hidden=cfg.hidden,
        network=cfg.network,
        recurrent=cfg.recurrent,
        memory_size=cfg.memory_size,
        normalize_observations=cfg.normalize_observations,
        normalize_rewards=cfg.normalize_rewards,
        frame_stack=cfg.frame_stack,
        max_grad_norm=cfg.max_grad_norm,
        n_envs=cfg.n_envs,
        gamma=cfg.gamma,
        gae_lambda=cfg.gae_lambda,
        env_backend=cfg.env_backend,
        vectorization=cfg.vectorization,
        device=cfg.device,
        threads=cfg.torch_threads,
    )
    algorithm.resources.callback(agent.close)
    algorithm.optimizers = {"policy": agent.optimizer}
    return agent


def learn(
    agent: ActorCritic,
    learner: ChosenLearner,
    batch: RolloutBatch,
    rates: Mapping[str, float],
    hooks: Hooks,
) -> dict[str, float]:
    """Learn from a rollout and return the metrics of the iteration.

    Args:
        agent: whose policy learns.
        learner: takes the gradient steps.
        batch: what is learned from.
        rates: the scheduled options of now, ``learning_rate`` among them.
        hooks: told of every step.

    Returns:
        The episodes' statistics, ``explained_variance``, ``learning_rate``, and the means of the
        loss's terms.
    """
    terms = learner.update(batch, rates, hooks)
    statistics = agent.collector.statistics
    return {
        "mean_reward": statistics.mean_return,
        "mean_episode_length": statistics.mean_length,
        "episodes": float(statistics.finished),
        "explained_variance": batch.explained_variance(),
        "learning_rate": rates["learning_rate"],
        **terms,
    }
