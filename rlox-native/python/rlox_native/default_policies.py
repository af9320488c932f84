"""Rust learners of the default policies of vectors, of encoded observations and of teams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gymnasium import spaces
from rlox.errors import BackendError
from rlox.learners.rollouts import RolloutTask
from rlox.learners.tasks import SeparatePerceptrons
from rlox.networks.actor_critics import (
    ActorCriticPolicy,
    ContinuousPolicy,
    DiscretePolicy,
    RecurrentPolicy,
)
from rlox.nn import Memory
from rlox.nn.encoders import CombinedEncoder, OneHotEncoder, VectorEncoder
from rlox.spaces.rows import ActionRows
from torch import Tensor, nn

from rlox_native._native import ActorCriticLearner
from rlox_native.perceptrons import (
    activation_of,
    make_rust_learner,
    require_lstm,
    require_plain,
    sizes_of,
)

FIXED = (CombinedEncoder, OneHotEncoder, VectorEncoder, nn.ModuleList)
"""Encoders without parameters, which torch computes once for a rollout, and their list."""


def make_policy_learner(
    task: RolloutTask,
) -> tuple[ActorCriticLearner, Callable[[Any], Tensor]]:
    """Return the Rust learner for the task's policy, and what it sees of observations.

    The latter makes of B observations rows (B, n): the features of an encoder that does not learn,
    or the inputs of an actor and of a critic, side by side.

    Raises:
        BackendError: the policy is none of the default ones that Rust knows.
    """
    if type(task.policy) is RecurrentPolicy:
        return _make_recurrent(task), task.policy.encoder
    apart = _separate(task.policy)
    if apart is None:
        return _make_shared(task), task.policy.encode
    inputs = apart.inputs
    return _make_separate(task, apart), lambda obs: torch.cat(inputs(obs), 1)


def _make_shared(task: RolloutTask) -> ActorCriticLearner:
    """Return the Rust learner for a policy whose networks see the same."""
    policy = task.policy
    _require_default(policy)
    require_plain(policy)
    own = ["encoder", "head"] if type(policy) is ActorCriticPolicy else []
    if [name for name, _ in policy.named_children()] != [*own, "actor", "critic"]:
        raise BackendError("it learns policies of an actor, then a critic, and nothing else")
    (obs_dim, _), layers, outputs = _layers(policy.actor, policy.critic)
    return _sized(task, obs_dim, **layers, **_actions(policy, outputs))


def _make_recurrent(task: RolloutTask) -> ActorCriticLearner:
    """Return the Rust learner for a policy and a value function with an LSTM each."""
    policy = task.policy
    _require_default(policy)
    require_plain(policy)
    parts = ["encoder", "head", "actor_memory", "critic_memory", "actor", "critic"]
    if [name for name, _ in policy.named_children()] != parts:
        raise BackendError("it learns policies of two memories and two networks, and nothing else")
    sizes = [_memory_sizes(policy.actor_memory), _memory_sizes(policy.critic_memory)]
    if sizes[0] != sizes[1]:
        raise BackendError("it learns two memories of the same sizes")
    (units, _), layers, outputs = _layers(policy.actor, policy.critic)
    actions = _actions(policy, outputs)
    return _sized(task, sizes[0][0], **layers, **actions, memory_size=units)


def _layers(actor: Any, critic: Any) -> tuple[list[int], dict[str, Any], int]:
    """Return both networks' numbers of inputs, their layers, and the actor's number of outputs."""
    seen, *hidden, outputs = sizes_of(actor)
    activation: Any = activation_of(actor)
    seen_by_critic, *of_critic, _ = sizes_of(critic, activation)
    layers = {"hidden": hidden, "critic_hidden": of_critic, "activation": activation}
    return [seen, seen_by_critic], layers, outputs


def _memory_sizes(memory: Any) -> tuple[int, int]:
    """Return the inputs and the units of a memory.

    Raises:
        BackendError: it is no plain LSTM.
    """
    layer = memory.layer if type(memory) is Memory else memory
    require_lstm(layer)
    return layer.input_size, layer.hidden_size


def _separate(policy: Any) -> SeparatePerceptrons | None:
    """Return the networks of a policy with inputs of their own; ``None`` of any other.

    Raises:
        BackendError: the policy does more than its perceptrons, or inherits them.
    """
    if not hasattr(policy, "perceptrons"):
        return None
    name = type(policy).__name__
    if "perceptrons" not in vars(type(policy)):
        raise BackendError(f"it learns the default policies, and {name} derives from one")
    found: SeparatePerceptrons | None = policy.perceptrons()
    if found is None:
        raise BackendError(
            "it learns policies of vectors whose values are not normalised by the network, and "
            f"this {name} is none"
        )
    return found


def _make_separate(task: RolloutTask, networks: SeparatePerceptrons) -> ActorCriticLearner:
    """Return the Rust learner for a policy whose networks have inputs of their own."""
    require_plain(task.policy)
    (seen, critic_seen), layers, outputs = _layers(networks.actor, networks.critic)
    actions = _actions(networks, outputs)
    return _sized(task, seen, **layers, **actions, critic_dim=critic_seen)


def _sized(task: RolloutTask, *sizes: Any, **options: Any) -> ActorCriticLearner:
    """Return a Rust learner of all parameters of the task's policy, and no others."""
    learner = make_rust_learner(ActorCriticLearner, *sizes, **options)
    if learner.n_parameters != len(task.optimizer.parameters):
        raise BackendError("it learns a policy's parameters; some are added, shared or missing")
    return learner


def _require_default(policy: Any) -> None:
    """Check that a policy is a default one, on features that are not learnt.

    Raises:
        BackendError: it is another.
    """
    if type(policy) in (DiscretePolicy, ContinuousPolicy):
        return
    if type(policy) not in (ActorCriticPolicy, RecurrentPolicy):
        raise BackendError(f"it learns the default MLP policies, not {type(policy).__name__}")
    for encoder in policy.encoder.modules():
        if type(encoder) not in FIXED:
            raise BackendError(
                "it learns no layers that policy and values share, such as those of a "
                f"{type(encoder).__name__}"
            )


def _actions(policy: Any, outputs: int) -> dict[str, Any]:
    """Return the learner's arguments for the actions of a policy with ``outputs`` outputs.

    Raises:
        BackendError: they are neither choices nor numbers.
    """
    if type(policy) is DiscretePolicy:
        return {"n_actions": outputs}
    if type(policy) is ContinuousPolicy:
        return {"act_dim": outputs}
    space = getattr(policy, "head", policy).action_space
    if isinstance(space, spaces.Discrete):
        return {"n_actions": outputs}
    if isinstance(space, spaces.MultiDiscrete):
        (leaf,) = ActionRows(space).leaves
        return {"choices": leaf.sizes}
    if isinstance(space, spaces.Box):
        return {"act_dim": outputs}
    raise BackendError(f"it learns choices or numbers, not actions of {space}")
