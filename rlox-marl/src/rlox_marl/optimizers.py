"""Optimisers of team policies, joint or separate for actor and critic."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from rlox.errors import ConfigError
from rlox.nn import FlatOptimizer
from torch import Tensor, nn

from rlox_marl.policies import RecurrentTeamPolicy, TeamPolicy

__all__ = ["ActorCriticOptimizer", "make_optimizer"]


class ActorCriticOptimizer:
    """Two optimisers that step together; see :class:`rlox.protocols.Optimizer`.

    Args:
        actor: all but the critic.
        critic: shares no parameter with the actor.
        make_optimizer: see :class:`rlox.nn.FlatOptimizer`.
        max_grad_norm: bound of the norm of the gradient of each.
    """

    def __init__(
        self,
        actor: nn.Module,
        critic: nn.Module,
        make_optimizer: partial[Any],
        *,
        max_grad_norm: float,
    ) -> None:
        self._parts = {
            "actor": FlatOptimizer(actor, make_optimizer, max_grad_norm=max_grad_norm),
            "critic": FlatOptimizer(critic, make_optimizer, max_grad_norm=max_grad_norm),
        }
        self.critic_learning_rate: float | None = None
        """The critic's step size of now; ``None``: the actor's."""
        self._applied = True

    def step(self, loss: Tensor, learning_rate: float) -> None:
        """Take one step down the gradient of ``loss`` alone."""
        self._applied = True
        self.backward(loss)
        self.apply(learning_rate)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of ``loss`` to both parts' gradients; after a step they are 0 before."""
        if self._applied:
            for part in self._parts.values():
                part.gradients.zero_()
            self._applied = False
        loss.backward()  # type: ignore[no-untyped-call]

    def apply(self, learning_rate: float | None = None) -> None:
        """Clip each part's gradient and take a step down it."""
        critic_rate = self.critic_learning_rate
        self._parts["actor"].apply(learning_rate)
        self._parts["critic"].apply(learning_rate if critic_rate is None else critic_rate)
        self._applied = True

    def require_views(self) -> None:
        """Raise a RuntimeError if steps would not reach the parameters."""
        for part in self._parts.values():
            part.require_views()

    def is_finite(self) -> bool:
        """Return whether all parameters are finite."""
        return all(part.is_finite() for part in self._parts.values())

    def state_dict(self) -> dict[str, Any]:
        """Return what both optimisers keep."""
        return {name: part.state_dict() for name, part in self._parts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        for name, part in self._parts.items():
            part.load_state_dict(state[name])


def make_optimizer(policy: nn.Module, config: Any) -> FlatOptimizer | ActorCriticOptimizer:
    """Return Adam for a policy, or for its actor and its critic.

    Args:
        policy: a team's, on its device.
        config: has ``adam_eps``, ``max_grad_norm`` and ``critic_learning_rate``.

    Raises:
        ConfigError: the critic has a learning rate of its own, and the policy is the user's.
    """
    adam = partial(torch.optim.Adam, eps=config.adam_eps, fused=True)
    if config.critic_learning_rate is None:
        return FlatOptimizer(policy, adam, max_grad_norm=config.max_grad_norm)
    if not isinstance(policy, TeamPolicy | RecurrentTeamPolicy):
        raise ConfigError(
            "critic_learning_rate needs the default policies, whose actors and critics share "
            f"no parameters, got {type(policy).__name__}; leave one of them out"
        )
    bound = config.max_grad_norm
    return ActorCriticOptimizer(policy.actor, policy.critic, adam, max_grad_norm=bound)
