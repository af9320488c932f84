"""Conformance checks of actor backends (:class:`rlox.rollouts.Actor`)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from rlox.registry.table import get_registry

from rlox_testing.cases import CARTPOLE
from rlox_testing.probes import check, require, require_same, run_checks

N_ENVS, N_STEPS = 3, 8


@contextmanager
def _actor(name: str, env: Any, index: int = 1) -> Iterator[tuple[Any, Any]]:
    """Yield one of two actors and the plan that it is built from."""
    from rlox.envs.make import make_vec_env
    from rlox.networks.actor_critics import make_policy
    from rlox.rollouts import ActorPlan
    from rlox.seeding import SeedStreams

    probe = make_vec_env(env)
    spaces = probe.observation_space, probe.action_space
    generator = SeedStreams(0).torch("policy")
    policy = make_policy(*spaces, hidden=8, generator=generator)
    probe.close()
    plan = ActorPlan(env, policy, n_actors=2, n_envs=N_ENVS, n_steps=N_STEPS, seed=7)
    actor = get_registry().get("rlox_actor_backends", name).build(plan, index)
    try:
        yield actor, plan
    finally:
        actor.close()
        actor.close()  # closing again does nothing


def _weights(plan: Any, version: int = 0) -> Any:
    """Return the plan's weights, a little changed with every version."""
    import torch
    from rlox.rollouts import Weights

    flat = torch.nn.utils.parameters_to_vector(plan.policy.parameters()).detach().numpy()
    return Weights(version, flat + np.float32(0.01 * version))


def _arrays(unroll: Any) -> dict[str, Any]:
    from rlox.batches import unroll_to_arrays

    return unroll_to_arrays(unroll)


@check
def check_actor_unrolls(name: str, env: Any = CARTPOLE) -> None:
    """Check that unrolls equal those of an actor in this thread, bit for bit, and do not change.

    An actor elsewhere must draw from the plan's streams and act with the weights that it gets.
    """
    from rlox.rollouts import LocalActor

    with _actor(name, env) as (actor, plan):
        reference = LocalActor(plan, 1)
        unrolls = []
        for version in range(4):
            weights = _weights(plan, version)
            unrolls.append((actor.collect(weights), reference.collect(weights)))
        reference.close()
        for sequence, (unroll, expected) in enumerate(unrolls):
            numbers = (unroll.actor, unroll.sequence, unroll.weights_version)
            require(
                numbers == (1, sequence, sequence),
                f"actor, sequence and weights_version must be {(1, sequence, sequence)}, got "
                f"{numbers}",
            )
            require_same(
                _arrays(expected),
                _arrays(unroll),
                f"unroll {sequence} differs from that of a LocalActor of the same plan",
            )
            _require_log_probs(plan, unroll)
        require(actor.restarts == 0, f"nothing was lost, but restarts is {actor.restarts}")


def _require_log_probs(plan: Any, unroll: Any) -> None:
    """Require log-probabilities computed with the unroll's version of the weights."""
    import torch
    from rlox.batches import step_rows
    from rlox.losses import evaluate_actions

    policy = copy.deepcopy(plan.policy)
    weights = torch.from_numpy(_weights(plan, unroll.weights_version).parameters)
    torch.nn.utils.vector_to_parameters(weights, policy.parameters())
    with torch.no_grad():
        expected = evaluate_actions(policy, step_rows(unroll))[0]
    require(
        torch.allclose(unroll.log_probs.flatten(), expected, rtol=1e-4, atol=1e-5),
        f"log_probs are not those of the weights of version {unroll.weights_version}",
    )


@check
def check_actor_state(name: str, env: Any = CARTPOLE) -> str | None:
    """Check that an actor goes on from an earlier state."""
    with _actor(name, env) as (actor, plan):
        actor.collect(_weights(plan))
        state = actor.state_dict()
        kept = copy.deepcopy(state)
        following = actor.collect(_weights(plan, 1))
        require_same(kept, state, "state_dict() must return copies")
        if state["collector"]["env"] is None:
            return "the env does not expose its state"
        actor.load_state_dict(state)
        again = actor.collect(_weights(plan, 1))
        require_same(_arrays(following), _arrays(again), "a restored actor goes on otherwise")
    return None


ACTOR_BACKEND_CHECKS: tuple[Callable[..., str | None], ...] = (
    check_actor_unrolls,
    check_actor_state,
)
"""All checks of an actor backend, in the order in which :func:`check_actor_backend` runs them."""


def check_actor_backend(name: str, env: Any = CARTPOLE) -> dict[str, str]:
    """Run every check of an actor backend.

    Args:
        name: registered name of the backend.
        env: an id that the backend's actors can build.

    Returns:
        The checks that did not apply, with the reason.

    Raises:
        AssertionError: a check failed; the text begins with its name.
    """
    return run_checks(ACTOR_BACKEND_CHECKS, name, env)
