"""Perceptrons of a policy and a value in Rust, optimised elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rlox.errors import BackendError
from rlox.learners.tasks import BoundedSurrogate, PerceptronTask

from rlox_native._native import ActorCriticLearner, VecEnv
from rlox_native.digests import require_code
from rlox_native.perceptrons import ACTIVATIONS, make_rust_learner, require_lstm, require_plain

TERMS = ("policy_loss", "value_loss", "entropy", "approx_kl")


class NativePerceptrons:
    """Acts and differentiates in Rust; see :class:`rlox.learners.tasks.Perceptrons`.

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
        if task.memory is not None:
            require_lstm(task.memory, batch_first=True)
            self._parameters[:0] = task.memory.parameters()
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
        memory = task.memory
        if memory is not None:
            head |= {"memory_size": memory.hidden_size, "shared_memory": True}
        obs_dim = task.actor[0].in_features if memory is None else memory.input_size
        self._learner = make_rust_learner(
            ActorCriticLearner, obs_dim, hidden, critic_hidden=of_critic, **head,
            scaled=not task.discrete, activation=ACTIVATIONS[task.activation],
        )  # fmt: skip
        self._holds = False
        for part in task.replaced:
            require_code(part)

    @property
    def steps_envs(self) -> bool:
        """Whether the task's envs are native ones, and there is no memory."""
        return self._task.memory is None and isinstance(self._task.envs, VecEnv)

    def require_unchanged(self) -> None:
        """Check that the model computes what its classes and parameters say."""
        require_plain(self._task.model)

    def collect(
        self,
        noise: npt.NDArray[Any] | None,
        obs: npt.NDArray[Any],
        rows: Mapping[str, npt.NDArray[Any]],
    ) -> None:
        """Step the envs in one call, without the interpreter lock."""
        envs: Any = self._task.envs
        obs[-1] = obs[0]  # where Rust keeps the present observations
        self._learner.collect(
            envs=envs, parameters=self._flat(), stream=None, next_obs=obs[-1], obs=obs[:-1],
            noise=None if noise is None else noise.reshape(-1), **rows,
        )  # fmt: skip

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Copy the parameters once for all that acts in the block."""
        self._learner.hold(self._flat())
        self._holds = True
        try:
            yield
        finally:
            self._holds = False

    def remember(self, obs: npt.NDArray[Any], state: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return states (N, S) after observations (N, D)."""
        return self._learner.remember(self._acting(), obs, state)

    def act(
        self, seen: npt.NDArray[Any], noise: npt.NDArray[Any] | None
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return actions and their log-probabilities (N,)."""
        given = None if noise is None else noise.reshape(-1)
        return self._learner.act(self._acting(), None, seen, noise=given)

    def values(self, seen: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return values (R,)."""
        return self._learner.values(self._acting(), seen)

    def differentiate(
        self, rows: Mapping[str, npt.NDArray[Any]], objective: BoundedSurrogate
    ) -> dict[str, float]:
        """Compute the gradient of the rows' mean loss, without the interpreter lock."""
        if type(objective) is not BoundedSurrogate:
            raise BackendError(f"it knows BoundedSurrogate, not {type(objective).__name__}")
        means = self._learner.differentiate(
            self._flat(), **rows, clip_eps=objective.clip_eps, dual_clip=objective.dual_clip,
            vf_bound=objective.vf_bound, vf_coef=objective.vf_coef, ent_coef=objective.ent_coef,
        )  # fmt: skip
        return dict(zip(TERMS, means, strict=False))

    def add_gradient(self, weight: float) -> None:
        """Add the last gradient to the parameters'."""
        gradient = torch.from_numpy(self._learner.gradients() * np.float32(weight))
        parts = torch.split(gradient, [p.numel() for p in self._parameters])
        for parameter, part in zip(self._parameters, parts, strict=True):
            shaped = part.view_as(parameter)
            parameter.grad = shaped if parameter.grad is None else parameter.grad.add_(shaped)

    def _acting(self) -> npt.NDArray[Any] | None:
        """Return the parameters to act with; ``None`` takes those that are held."""
        return None if self._holds else self._flat()

    def _flat(self) -> npt.NDArray[Any]:
        """Return all parameters (P,) as they are now."""
        with torch.no_grad():
            flat = torch.cat([p.flatten() for p in self._parameters])
        array: npt.NDArray[Any] = flat.numpy()
        return array
