"""Policies of default models as data, which act without torch."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from rlox.deployment import PolicyData
from rlox.errors import ExportError
from rlox.nn.layer_data import LayerData, array, chain, layer_data, linear, mode
from rlox.spaces.rows import is_nested, leaf_spaces
from torch import nn

from rlox_rl8 import _specs as specs
from rlox_rl8 import models
from rlox_rl8.distributions import Distribution
from rlox_rl8.spaces import space_of
from rlox_rl8.vec_envs import VecTensorEnv

Space = gymnasium.Space[Any]


def describe_policy(name: str, agent: Any) -> PolicyData:
    """Return an agent's policy as data; see :class:`rlox.deployment.Exportable`.

    A recurrent one remembers an episode from its first observation on. ``name`` is that of the
    registered algorithm.

    Raises:
        ExportError: the model or the distribution is not a default one, or is a beta
            distribution.
    """
    policy, env = agent.policy, agent.env
    model = policy.model
    usual = policy.distribution_cls is Distribution.default_dist_cls(policy.action_spec)
    if type(model) not in models.DEFAULTS or not usual or model.head.kind is specs.Bounded:
        raise ExportError(
            f"{type(model).__name__} with {policy.distribution_cls.__name__} cannot be described "
            "in a policy file; the default models with their default distributions can, except "
            "the beta distribution of bounded actions"
        )
    if isinstance(env, VecTensorEnv):
        observed, acted = env.envs.observation_space, env.envs.action_space
    else:
        observed, acted = space_of(env.observation_spec), space_of(env.action_spec)
    perceptron = type(model) in models.PERCEPTRONS
    body = layer_data(model.latents) if perceptron else _memory(model.lstm)
    network = chain(_encoder(observed, model.encoder.encoder), body, *_head(model.head, acted))
    return PolicyData(name, observed, acted, network)


def _encoder(space: Space, encoder: Any) -> LayerData:
    """Describe the encoder of observations; ``Discrete`` observations become one-hot vectors."""
    if is_nested(space):
        leaves = leaf_spaces(space)
        parts = dict(zip(encoder.names, encoder.encoders, strict=True))
        found = [[name, _encoder(leaf, parts[name])] for name, leaf in leaves.items()]
        return {"layer": "join", "leaves": found}
    if isinstance(space, spaces.Discrete):
        first = np.array([-int(space.start)])
        return {"layer": "one_hot", "first": first, "size": int(space.n)}
    if encoder is None:
        return {"layer": "flatten", "divide_by": 1.0}
    return layer_data(encoder)


def _memory(lstm: nn.LSTM) -> LayerData:
    layers: list[LayerData] = []
    for i in range(lstm.num_layers):
        layers.append({"layer": "memory", "kind": "lstm"})
        for name, short in (("input", "ih"), ("hidden", "hh")):
            bias = getattr(lstm, f"bias_{short}_l{i}", torch.zeros(4 * lstm.hidden_size))
            layers[i][f"{name}_weight"] = array(getattr(lstm, f"weight_{short}_l{i}"))
            layers[i][f"{name}_bias"] = array(bias)
    return chain(*layers)


def _head(head: Any, space: Space) -> list[LayerData]:
    acts, halves = mode(space), [{"layer": "first_half"}] * (head.kind is specs.Unbounded)
    if head.kind is specs.Categorical and isinstance(space, spaces.MultiBinary):
        acts["parts"] = [{"kind": "choices", "sizes": [2] * head.actions}]  # two logits each
    return [linear(head.linear), *halves, acts]
