"""PPO's update, whoever collected the batch: epochs of minibatch steps on eq. 9.

The deviations from the paper are listed in :mod:`rlox_onpolicy.ppo`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import torch
from rlox.batches.rollout import RolloutBatch, RolloutMinibatch
from rlox.learners.rollouts import ChosenLearner, LearningTask, choose_learner
from rlox.losses import PPOTerms, ppo_loss
from rlox.networks.predict import evaluate_actions
from rlox.rollouts.actor_critic import ActorCritic
from torch import Tensor

from rlox_onpolicy.configs import PPOConfig

__all__ = ["choose_ppo_learner", "minibatch_loss"]


def choose_ppo_learner(
    agent: ActorCritic,
    config: PPOConfig,
    generator: torch.Generator,
    actions: np.random.Generator | None = None,
) -> ChosenLearner:
    """Return what takes PPO's steps.

    Args:
        agent: whose policy learns.
        config: the options; ``backend`` says which learner backend.
        generator: source of the minibatches' order.
        actions: see :class:`rlox.learners.rollouts.LearningTask`.
    """
    task = LearningTask(
        "ppo",
        config,
        agent,
        partial(minibatch_loss, agent, config),
        n_epochs=config.n_epochs,
        batch_size=config.batch_size,
        target_kl=config.target_kl,
        generator=generator,
        actions=actions,
    )
    return choose_learner(config.backend, task)


def minibatch_loss(
    agent: ActorCritic,
    config: PPOConfig,
    minibatch: RolloutBatch | RolloutMinibatch,
    rates: Mapping[str, float],
) -> tuple[Tensor, PPOTerms]:
    """Return the loss of a minibatch, and its terms; see :func:`rlox.losses.ppo_loss`."""
    advantages = minibatch.advantages
    if config.normalize_advantages:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    log_probs, entropy, values = evaluate_actions(agent.policy, minibatch)
    return ppo_loss(
        log_probs,
        entropy,
        values,
        minibatch.log_probs,
        minibatch.values,
        advantages,
        minibatch.returns,
        clip_eps=rates["clip_eps"],
        vf_coef=config.vf_coef,
        ent_coef=rates["ent_coef"],
        vf_clip_eps=config.vf_clip_eps,
        dual_clip=config.dual_clip,
    )
