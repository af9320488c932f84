"""Gradients of a policy's and a value's perceptrons in Rust, which are optimised elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from rlox.errors import BackendError
from rlox.learners.tasks import BoundedSurrogate, PerceptronTask

from rlox_native._native import ActorCriticLearner
from rlox_native.digests import require_code
from rlox_native.perceptrons import ACTIVATIONS, make_rust_learner, require_plain

TERMS = ("policy_loss", "value_loss", "entropy", "approx_kl")


class NativePerceptrons:
    """Differentiates in Rust; see :class:`rlox.learners.tasks.Perceptrons`.

    Args:
        task: whose layers are computed.

    Raises:
        BackendError: they are not plain ones of single precision on the CPU, or code that Rust
            computes has been edited.
    """

    def __init__(self, task: PerceptronTask) -> None:
        self._task = task
        self.require_unchanged()
        layers = (*task.actor, *task.critic)
        self._parameters: list[Any] = [p for x in layers for p in (x.weight, x.bias)]
        if any(p is None for p in self._parameters):
            raise BackendError("it knows only layers with biases")
        if set(map(id, self._parameters)) != set(map(id, task.model.parameters())):
            raise BackendError("the model has parameters beside those of its perceptrons")
        kinds = {(p.dtype, p.device.type) for p in self._parameters}
        if kinds != {(torch.float32, "cpu")}:
            raise BackendError("it computes in float32 on the CPU")
        if task.activation not in ACTIVATIONS:
            raise BackendError(f"it knows ReLU and tanh, not {task.activation.__name__}")
        *hidden, outputs = (x.out_features for x in task.actor)
        *of_critic, _ = (x.out_features for x in task.critic)
        head = {"n_actions": outputs} if task.discrete else {"act_dim": outputs // 2}
        self._learner = make_rust_learner(
            ActorCriticLearner, task.actor[0].in_features, hidden, critic_hidden=of_critic,
            scaled=not task.discrete, activation=ACTIVATIONS[task.activation], **head,
        )  # fmt: skip
        for part in task.replaced:
            require_code(part)

    def require_unchanged(self) -> None:
        """Check that the model computes what its classes and parameters say."""
        require_plain(self._task.model)

    def add_gradient(
        self, rows: Mapping[str, Any], objective: BoundedSurrogate, weight: float
    ) -> dict[str, float]:
        """Differentiate without the interpreter lock, and add to the parameters' gradients."""
        if type(objective) is not BoundedSurrogate:
            raise BackendError(f"it knows BoundedSurrogate, not {type(objective).__name__}")
        with torch.no_grad():
            parameters = torch.cat([p.flatten() for p in self._parameters]).numpy()
        means = self._learner.differentiate(parameters, **rows, **vars(objective))
        gradient = torch.from_numpy(self._learner.gradients() * np.float32(weight))
        parts = torch.split(gradient, [p.numel() for p in self._parameters])
        for parameter, part in zip(self._parameters, parts, strict=True):
            shaped = part.view_as(parameter)
            parameter.grad = shaped if parameter.grad is None else parameter.grad.add_(shaped)
        return dict(zip(TERMS, means, strict=False))
