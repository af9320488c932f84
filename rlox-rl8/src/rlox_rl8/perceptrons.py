"""The loss of default perceptrons, differentiated by a backend without torch."""

from __future__ import annotations

import logging
from typing import Any

import torch
from rlox.errors import BackendError
from rlox.learners.tasks import BoundedSurrogate, PerceptronTask, find_learner
from tensordict import TensorDict
from torch import nn

from rlox_rl8 import _specs as specs
from rlox_rl8.distributions import Categorical, Normal
from rlox_rl8.losses import loss_and_terms
from rlox_rl8.models import PERCEPTRONS
from rlox_rl8.policies import Policy


class FastLane:
    """Gradients of an algorithm's loss by a backend, as long as no part of it is replaced."""

    def __init__(self, algorithm: Any, backend: str) -> None:
        self._algorithm, self._task = algorithm, task_of(algorithm)
        self._perceptrons = find_learner(backend, self._task, role="what learns perceptrons")[0]

    @classmethod
    def of(cls, algorithm: Any, backend: str) -> FastLane | None:
        """Return the lane of an algorithm; ``None`` if torch does its work.

        Raises:
            BackendError: the named backend cannot do it; with ``"auto"`` torch does.
        """
        if backend == "torch":
            return None
        try:
            return cls(algorithm, backend)
        except BackendError as error:
            if backend != "auto":
                raise
            logging.getLogger("rlox").info("torch learns the perceptrons (%s)", error)
            return None

    def learns(self) -> bool:
        """Return whether :meth:`add_gradient` equals torch."""
        algorithm, policy = self._algorithm, self._algorithm.policy
        if (
            algorithm.loss_and_terms is not loss_and_terms
            or policy.model is not self._task.model
            or policy.distribution_cls not in (Categorical, Normal)
            or "sample" in vars(policy)
            or "backward" in vars(algorithm.flat)
        ):
            return False
        try:
            self._perceptrons.require_unchanged()
        except BackendError:
            return False
        return True

    def add_gradient(self, minibatch: TensorDict, weight: float) -> dict[str, Any]:
        """Add ``weight`` times the gradient of R samples' mean loss, and return the mean terms."""
        hparams = self._algorithm.hparams
        objective = BoundedSurrogate(
            clip_eps=hparams.clip_param,
            vf_bound=hparams.vf_clip_param,
            vf_coef=hparams.vf_coeff,
            ent_coef=self._algorithm.entropy_scheduler.coeff,
            dual_clip=hparams.dual_clip_param,
        )
        actions = minibatch["actions"]
        rows = {
            "obs": minibatch["views", "obs"],
            "actions": actions[..., 0] if self._task.discrete else actions,
            "log_probs": minibatch["logp"][..., 0],
            "advantages": minibatch["advantages"][..., 0],
            "returns": minibatch["returns"][..., 0],
        }
        arrays = {name: row.contiguous().numpy() for name, row in rows.items()}
        means = self._perceptrons.add_gradient(arrays, objective, weight)
        terms = {
            "losses/entropy": means["entropy"] * bool(objective.ent_coef),  # torch skips it at 0
            "losses/policy": -means["policy_loss"],
            "losses/vf": means["value_loss"],
            "monitors/kl_div": means["approx_kl"],
        }
        terms["losses/total"] = (
            objective.vf_coef * terms["losses/vf"]
            - terms["losses/policy"]
            - objective.ent_coef * terms["losses/entropy"]
        )
        return {key: torch.tensor(value) for key, value in terms.items()}


def task_of(algorithm: Any) -> PerceptronTask:
    """Return the task of an algorithm with a default model.

    Raises:
        BackendError: the policy is not a default one of one vector, or is compiled, in half
            precision or on another device, or learning may stop within a pass.
    """
    policy, hparams, model = algorithm.policy, algorithm.hparams, algorithm.policy.model
    if type(policy) is not Policy or type(model) not in PERCEPTRONS:
        raise BackendError("only default models are known")
    discrete = policy.distribution_cls is Categorical
    if not discrete and policy.distribution_cls is not Normal:
        raise BackendError("only default distributions are known")
    if model.encoder.encoder is not None or model.head.kind is specs.Bounded:
        raise BackendError("only observations of one vector of floats are known")
    if discrete and (model.head.actions != 1 or model.head.kind is not specs.Categorical):
        raise BackendError("it chooses one action of several, not several at once")
    if (hparams.device_type, hparams.enable_amp, hparams.compile) != ("cpu", False, False):
        raise BackendError("device, enable_amp and compile are torch's")
    if hparams.target_kl_div is not None:
        raise BackendError("a stop at target_kl_div is torch's")
    actor, critic = list(model.latents), list(model.vf[0])
    kinds = {type(each) for each in (*actor, *critic)} - {nn.Linear}
    if len(kinds) != 1:
        raise BackendError("only default models are known")
    layers = [tuple(x for x in part if type(x) is nn.Linear) for part in (actor, critic)]
    replaced = (model, policy.sample, policy.distribution_cls, algorithm._forward, loss_and_terms)
    return PerceptronTask(
        model, (*layers[0], model.head.linear), (*layers[1], model.vf[1]), kinds.pop(), discrete,
        replaced,
    )  # fmt: skip
