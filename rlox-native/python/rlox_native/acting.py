"""Acting with a default policy in Rust, in envs of any kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from rlox.batches.rollout import add_values
from rlox.rollouts.collector import RolloutCollector
from torch import Tensor

from rlox_native._native import ActorCriticLearner

if TYPE_CHECKING:
    from rlox.batches.rollout import Unroll
    from rlox.learners.tasks import RolloutTask
    from rlox.training.hooks import Hooks

__all__ = ["NativeActor", "can_act", "lent_state"]

WORD = 2**64


def can_act(task: RolloutTask) -> bool:
    """Return whether actions of a default policy may be drawn in Rust: in single precision only."""
    return (
        task.actions is not None
        and type(task.collector) is RolloutCollector
        and task.optimizer.parameters.dtype == torch.float32
    )


class NativeActor:
    """Draws actions in Rust for envs that Rust does not step.

    To the collector it is the policy: it has what :class:`rlox.protocols.OnPolicyActor` asks for
    while envs are stepped.

    Args:
        task: whose policy acts; see :func:`can_act`.
        learner: of the policy's shape.
    """

    def __init__(self, task: RolloutTask, learner: ActorCriticLearner) -> None:
        self._collector, self._policy = task.collector, task.policy
        self._optimizer = task.optimizer
        self._learner = learner
        assert task.actions is not None
        self._stream: Any = task.actions.bit_generator
        self._values_wanted = not task.acts_only
        self._state: npt.NDArray[np.uint64]

    def collect(self, n_steps: int, hooks: Hooks) -> Unroll:
        """Step every env ``n_steps`` times; see ``rlox.learners.rollouts.Learner``."""
        with lent_state(self._stream) as self._state:
            unroll = self._collector.unroll(self, n_steps, hooks.env_step)
        return add_values(unroll, self.get_value) if self._values_wanted else unroll

    def get_action_and_logprob(
        self, obs: Any, action_masks: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Sample actions (N, ...) and return them with log-probabilities (N,)."""
        actions, log_probs = self._learner.act(
            self._optimizer.parameters.numpy(),
            self._state,
            self._policy.encode(obs).numpy(),
            action_masks=None if action_masks is None else action_masks.numpy(),
        )
        return torch.from_numpy(actions), torch.from_numpy(log_probs)

    def get_value(self, obs: Any) -> Tensor:
        """Return values (B,) of observations."""
        parameters = self._optimizer.parameters.numpy()
        features = self._policy.encode(obs).numpy()
        return torch.from_numpy(self._learner.values(parameters, features))


@contextmanager
def lent_state(stream: Any) -> Iterator[npt.NDArray[np.uint64]]:
    """Lend the state of a ``PCG64`` to Rust as four words; at the end it is as far as they are."""
    state = stream.state
    numbers = state["state"]
    words = [*divmod(numbers["state"], WORD), *divmod(numbers["inc"], WORD)]
    lent = np.array(words, np.uint64)
    try:
        yield lent
    finally:
        numbers["state"] = int(lent[0]) * WORD + int(lent[1])
        stream.state = state
