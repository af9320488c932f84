"""Tasks for backends without torch: layers, distribution and envs as data."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from rlox.errors import BackendError
from rlox.learners.tasks import PerceptronTask
from torch import Tensor

from rlox_rl8.distributions import Categorical, Normal
from rlox_rl8.models import layers_of
from rlox_rl8.policies import Policy, RecurrentPolicy
from rlox_rl8.vec_envs import VecTensorEnv

__all__ = ["DRAWS", "task_of"]

DRAWS: dict[Any, Any] = {Categorical: Tensor.exponential_, Normal: Tensor.normal_}
"""Of each distribution: what its ``sample`` draws for its numbers."""


def task_of(algorithm: Any) -> PerceptronTask:
    """Return the task of an algorithm with a default model.

    Raises:
        BackendError: its policy is another, or it is to be compiled or runs elsewhere.
    """
    policy, hparams = algorithm.policy, algorithm.hparams
    if type(policy) not in (Policy, RecurrentPolicy) or policy.distribution_cls not in DRAWS:
        raise BackendError("only policies of default distributions are known")
    layers = layers_of(policy.model)
    if layers is None:
        raise BackendError("only default models of one vector are known")
    if hparams.device_type != "cpu" or hparams.enable_amp or hparams.compile:
        raise BackendError("device, enable_amp and compile are torch's")
    discrete = policy.distribution_cls is Categorical
    actor, critic, activation, memory = layers
    logits = actor[-1].out_features
    if discrete and (algorithm.env.action_spec.shape[0] != 1 or logits != policy.action_spec.n):
        raise BackendError("it chooses one action of several, not several at once")
    envs = _native_envs(algorithm.env) if memory is None else None
    replaced = (
        policy.model, policy.sample, policy.distribution_cls, algorithm._forward,
        algorithm.loss_and_terms,
    )  # fmt: skip
    return PerceptronTask(policy.model, actor, critic, activation, discrete, envs, memory, replaced)


def _native_envs(env: Any) -> Any:
    """Return the vector env within, if its arrays and tensors are the same numbers."""
    if type(env) is not VecTensorEnv:
        return None
    seen, acted = env.envs.observation_space, env.envs.action_space
    vector = isinstance(seen, spaces.Box) and seen.dtype == "float32" and len(seen.shape) == 1
    choices = isinstance(acted, spaces.Discrete) and acted.start == 0
    numbers = isinstance(acted, spaces.Box) and len(acted.shape) == 1
    return env.envs if vector and (choices or numbers) else None
