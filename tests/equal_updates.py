"""Comparison of what two learner backends make of the same batch."""

from dataclasses import replace
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlox.batches.rollout import RolloutBatch
from rlox.losses import evaluate_actions
from rlox.training.hooks import Hooks
from torch import nn

TOLERANCE = 1e-5
"""How far numbers may differ after some steps, relative to the largest of them."""


def relative_error(ours, reference):
    """Return the largest difference, relative to the largest of the references."""
    ours, reference = np.asarray(ours, np.float64), np.asarray(reference, np.float64)
    return float(np.abs(ours - reference).max() / max(np.abs(reference).max(), 1e-30))


def in_sequence(mlp, activation):
    """Return a perceptron's layers in a ``Sequential``, as a user would write them."""
    return nn.Sequential(*[each for layer in mlp.layers for each in (layer, activation())][:-1])


def random_rollout(env, policy, n_steps, n_envs, masked=False):
    """Return a rollout at random whose old policy lies some way from ``policy``.

    Episodes begin in it, if the policy has a memory.
    """
    generator, n = torch.Generator().manual_seed(2), n_steps * n_envs
    normal, made = partial(torch.randn, generator=generator), gymnasium.make(env)
    obs, masks, memory = normal(n, *made.observation_space.shape), None, {}
    if isinstance(made.action_space, spaces.Discrete):
        width = int(made.action_space.n)
        actions = torch.randint(width, (n,), generator=generator)
        if masked:
            masks = torch.rand(n, width, generator=generator) < 0.7
            masks[torch.arange(n), actions] = True
    else:
        actions = normal(n, *made.action_space.shape)
    if hasattr(policy, "state_size"):
        memory["initial_state"] = normal(n_envs, policy.state_size)
        memory["episode_starts"] = torch.rand(n, generator=generator) < 0.1
    zeros, ended = torch.zeros(n), torch.zeros(n, dtype=torch.bool)
    batch = RolloutBatch(
        obs=obs,
        actions=actions,
        log_probs=zeros,
        values=zeros,
        rewards=zeros,
        terminated=ended,
        truncated=ended,
        advantages=normal(n),
        returns=zeros,
        n_steps=n_steps,
        n_envs=n_envs,
        action_masks=masks,
        **memory,
    )
    with torch.no_grad():
        log_probs, _, values = evaluate_actions(policy, batch)
    values = values + 0.3 * normal(n)
    return replace(
        batch, log_probs=log_probs + 0.2 * normal(n), values=values, returns=values + normal(n)
    )


def learn_both(policy_of, kind, env, masked=False, lost=0, **options):
    """Return an algorithm with either backend, native first, after an update from one rollout.

    Args:
        policy_of: makes the policy for an env, of the sizes among the options.
        kind: the algorithm.
        env: its id.
        masked: whether some actions are impossible.
        lost: how many of the envs the rollout lacks.
        options: of the policy and the algorithm.
    """
    sizes = {k: options.pop(k) for k in ("memory_size", "hidden") if k in options}
    learnt = []
    for backend in ("native", "torch"):
        policy = policy_of(env, **sizes)
        n_envs = options["n_envs"] - lost
        batch = random_rollout(env, policy, options["n_steps"], n_envs, masked)
        algorithm = kind(env, backend=backend, policy=policy, seed=5, **options)
        objective = algorithm._objective(algorithm.schedules.at(0, 1))
        terms = algorithm.learner.update(batch, objective, 1e-3, Hooks(algorithm))
        learnt.append((algorithm, terms))
    return learnt[0], learnt[1]


def require_equal_updates(ours, reference):
    """Require the same parameters, moments, gradient, terms, counters and stream of orders.

    Args:
        ours: what has learnt in Rust.
        reference: what has learnt in torch.
    """
    (native, terms), (torch_, expected) = ours, reference
    assert native.clock.gradient_steps == torch_.clock.gradient_steps
    assert relative_error(native.optimizer.parameters, torch_.optimizer.parameters) < TOLERANCE
    for name, value in torch_.optimizer.state().items():
        assert relative_error(native.optimizer.state()[name], value) < TOLERANCE, name
    gradients = native.learner.learner.gradients()
    assert relative_error(gradients, torch_.optimizer.gradients) < TOLERANCE
    assert terms == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE)
    drawn = [a.streams.torch("minibatches").get_state() for a in (native, torch_)]
    assert torch.equal(*drawn)
