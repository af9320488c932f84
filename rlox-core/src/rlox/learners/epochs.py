"""Minimisation of an objective over a rollout: epochs of minibatches."""

from __future__ import annotations

from typing import Any

from rlox.batches.rollout import RolloutBatch
from rlox.errors import ConfigError
from rlox.learners.tasks import Objective, RolloutTask
from rlox.learners.terms import mean_terms
from rlox.training.hooks import Hooks

__all__ = ["minimize_over_epochs"]

KL_TOLERANCE = 1.5
"""Epochs end if the approximate KL passes so many times its target (openai/spinningup ppo)."""


def minimize_over_epochs(
    task: RolloutTask,
    batch: RolloutBatch,
    objective: Objective,
    learning_rate: float,
    hooks: Hooks,
) -> dict[str, float]:
    """Minimise the objective for K epochs with minibatches of M <= NT rows (algorithm 1).

    Args:
        task: policy, optimiser, and how many epochs and rows.
        batch: the rollout.
        objective: eq. 9.
        learning_rate: Adam's.
        hooks: called after every gradient step.

    Returns:
        Means of the loss's terms over the minibatches.
    """
    assert task.batch_size is not None
    collected: list[Any] = []
    for _ in range(task.n_epochs):
        for minibatch in batch.sample_minibatches(task.batch_size, generator=task.generator):
            loss, terms = objective.loss(task.policy, minibatch)
            collected.append(terms)
            if task.target_kl is not None and _kl(terms) > KL_TOLERANCE * task.target_kl:
                return mean_terms(type(terms), collected)
            loss = task.added_losses.add("policy", loss, task.policy, minibatch)
            task.optimizer.step(loss, learning_rate)
            hooks.train_batch(lambda terms=terms: mean_terms(type(terms), [terms]))  # type: ignore[misc]
    return mean_terms(type(collected[0]), collected)


def _kl(terms: Any) -> float:
    if not hasattr(terms, "approx_kl"):
        raise ConfigError(
            f"target_kl needs an objective that reports approx_kl, got {type(terms).__name__}; "
            "add it to the terms, or leave target_kl out"
        )
    return float(terms.approx_kl)
