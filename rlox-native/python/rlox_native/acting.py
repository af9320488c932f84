"""Acting with a default policy in Rust: in envs of any kind, or in one call in native ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rlox.batches.rollout import Unroll, add_values
from rlox.files import require_memory_for
from rlox.learners.rollouts import RolloutTask
from rlox.networks.actor_critics import (
    ActorCriticPolicy,
    ContinuousPolicy,
    DiscretePolicy,
    RecurrentPolicy,
)
from rlox.rollouts.collector import RolloutCollector
from rlox.spaces.rows import map_leaves
from rlox.training.hooks import Hooks
from torch import Tensor

from rlox_native._native import ActorCriticLearner, VecEnv

WORD = 2**64


def can_act(task: RolloutTask) -> bool:
    """Return whether Rust may draw actions of a default policy."""
    return task.actions is not None and type(task.collector) is RolloutCollector


def make_actor(
    task: RolloutTask, learner: ActorCriticLearner
) -> NativeActor | NativeRecurrentActor:
    """Return the Rust actor of the task's policy.

    Args:
        task: see :func:`can_act`.
        learner: a learner of the policy's shape.
    """
    recurrent = type(task.policy) is RecurrentPolicy
    return (NativeRecurrentActor if recurrent else NativeActor)(task, learner)


class _Drawer:
    """Draws actions in Rust for envs not stepped by Rust; takes the policy's place in a collector.

    Args:
        task: the task of the acting policy; see :func:`can_act`.
        learner: a learner of the policy's shape.
    """

    def __init__(self, task: RolloutTask, learner: ActorCriticLearner) -> None:
        self._collector, self.policy = task.collector, task.policy
        self._optimizer = task.optimizer
        self._learner = learner
        assert task.actions is not None
        self._stream: Any = task.actions.bit_generator
        self._lent: npt.NDArray[np.uint64]

    def collect(self, n_steps: int, hooks: Hooks) -> Unroll:
        """Step every env ``n_steps`` times; see ``rlox.learners.rollouts.Learner``."""
        with lent_state(self._stream) as self._lent:
            unroll: Unroll = self._collector.unroll(self, n_steps, hooks.env_step)
        return unroll

    def draw(
        self, seen: npt.NDArray[np.float32], action_masks: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Sample actions (N, ...) from the networks' inputs, and return log-probabilities (N,)."""
        actions, log_probs = self._act(self._lent, seen, action_masks)
        return torch.from_numpy(actions), torch.from_numpy(log_probs)

    def _act(
        self,
        stream: npt.NDArray[np.uint64] | None,
        seen: npt.NDArray[np.float32],
        action_masks: Tensor | None,
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        return self._learner.act(
            self._optimizer.parameters.numpy(),
            stream,
            seen,
            action_masks=None if action_masks is None else action_masks.numpy(),
        )

    def judge(self, seen: npt.NDArray[np.float32]) -> Tensor:
        """Return values (B,) of the networks' inputs."""
        parameters = self._optimizer.parameters.numpy()
        return torch.from_numpy(self._learner.values(parameters, seen))


class NativeActor(_Drawer):
    """Acts for a policy without a memory.

    It implements the part of :class:`rlox.protocols.OnPolicyActor` needed to step envs, on arrays:
    a few rows of tensors take as long as all else that it does.
    """

    takes_arrays = True

    def __init__(self, task: RolloutTask, learner: ActorCriticLearner) -> None:
        super().__init__(task, learner)
        self._values_wanted = not task.acts_only
        encoder: Any = task.policy.encoder if type(task.policy) is ActorCriticPolicy else None
        self._joined: Any = getattr(encoder, "joins", False) and encoder.names

    def collect(self, n_steps: int, hooks: Hooks) -> Unroll:
        """Step the envs, and estimate values if required."""
        unroll = super().collect(n_steps, hooks)
        return add_values(unroll, self.get_value) if self._values_wanted else unroll

    def get_action_and_logprob(
        self, obs: Any, action_masks: Tensor | None = None
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Sample actions (N, ...) and return them with log-probabilities (N,)."""
        if self._joined:
            leaves = [obs[name] for name in self._joined]
            seen = np.concatenate(leaves, 1).astype(np.float32, copy=False)
        else:
            seen = self.policy.encode(map_leaves(torch.from_numpy, obs)).numpy()
        return self._act(self._lent, seen, action_masks)

    def mode(self, obs: Any, action_masks: Tensor | None = None) -> Tensor:
        """Return the most probable actions (B, ...) of observations."""
        return torch.from_numpy(self._act(None, self.policy.encode(obs).numpy(), action_masks)[0])

    def get_value(self, obs: Any) -> Tensor:
        """Return values (B,) of observations."""
        return self.judge(self.policy.encode(obs).numpy())


class NativeRecurrentActor(_Drawer):
    """Acts for a policy with a memory: see :class:`rlox.protocols.RecurrentActor`."""

    def __init__(self, task: RolloutTask, learner: ActorCriticLearner) -> None:
        super().__init__(task, learner)
        self.state_size = learner.state_size
        self.evaluate_actions = task.policy.evaluate_actions

    def step(
        self, obs: Any, state: Tensor, action_masks: Tensor | None = None
    ) -> tuple[_Drawn, Tensor, Tensor]:
        """Update the state by one observation per env; actions are drawn later, on request."""
        after = self._learner.remember(
            self._optimizer.parameters.numpy(), self.policy.encoder(obs).numpy(), state.numpy()
        )
        return _Drawn(self, after, action_masks), self.judge(after), torch.from_numpy(after)


@dataclass(frozen=True)
class _Drawn:
    """The distributions of N actions after N states."""

    actor: _Drawer
    states: npt.NDArray[np.float32]
    action_masks: Tensor | None

    def sample(self, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw actions (N, ...) from the actor's own stream, with log-probabilities (N,)."""
        return self.actor.draw(self.states, self.action_masks)


@contextmanager
def lent_state(stream: Any) -> Iterator[npt.NDArray[np.uint64]]:
    """Lend the state of a ``PCG64`` to Rust as four words; at the end it advances to theirs."""
    state = stream.state
    numbers = state["state"]
    words = [*divmod(numbers["state"], WORD), *divmod(numbers["inc"], WORD)]
    lent = np.array(words, np.uint64)
    try:
        yield lent
    finally:
        numbers["state"] = int(lent[0]) * WORD + int(lent[1])
        stream.state = state


class NativeRollouts:
    """Steps native envs with actions drawn from the policy in Rust.

    Args:
        task: the task of the acting policy, with a native env.
        learner: a learner of the policy's shape.
    """

    def __init__(self, task: RolloutTask, learner: ActorCriticLearner) -> None:
        self._collector: Any = task.collector
        self._optimizer = task.optimizer
        self._learner = learner
        assert task.actions is not None
        self._stream = task.actions.bit_generator
        numbers = isinstance(task.policy, ContinuousPolicy)
        self._action_shape = tuple(task.policy.log_std.shape) if numbers else ()
        self._action_dtype = np.float32 if numbers else np.int64

    @staticmethod
    def can_step(task: RolloutTask) -> bool:
        """Return whether the policy can act in Rust and the envs are native and unprocessed.

        Rust estimates the values of final observations but does not return the observations.
        """
        collector = task.collector
        return (
            can_act(task)
            and type(task.policy) in (DiscretePolicy, ContinuousPolicy)  # others encode in torch
            and not task.acts_only
            and isinstance(collector.env, VecEnv)
            and collector.preprocessor is None
            and collector.reward_scaler is None
            and collector.clip_rewards is None
        )

    def collect(self, n_steps: int, hooks: Hooks) -> Unroll:
        """Step every env ``n_steps`` times; see ``rlox.learners.rollouts.Learner``."""
        collector, env = self._collector, self._collector.env
        first = collector.envs.obs
        shape = (n_steps, env.n_envs)
        size = (n_steps + 1) * first.size * 4
        require_memory_for("n_steps", n_steps, size, "take fewer steps or envs")
        obs = np.empty((n_steps + 1, *first.shape), np.float32)
        next_obs = obs[n_steps]  # Rust keeps the present observations here
        next_obs[:] = first
        rows: dict[str, npt.NDArray[Any]] = {
            "obs": obs[:n_steps],
            "actions": np.empty((*shape, *self._action_shape), self._action_dtype),
            "log_probs": np.empty(shape, np.float32),
            "rewards": np.empty(shape, np.float32),
            "terminated": np.empty(shape, np.bool_),
            "truncated": np.empty(shape, np.bool_),
            "final_values": np.empty(shape, np.float32),
        }
        taken = 0
        try:
            # a callback that listens to every step gets a separate call for each
            stride = 1 if hooks.step_listened else n_steps
            while taken < n_steps:
                self._step(next_obs, {k: row[taken : taken + stride] for k, row in rows.items()})
                collector.envs.obs = next_obs.copy()
                for _ in range(stride):
                    taken += 1
                    hooks.env_step(env.n_envs)
        finally:
            # episodes continue even if a callback ends the rollout
            ended = rows["terminated"][:taken] | rows["truncated"][:taken]
            collector.statistics.add(rows["rewards"][:taken], ended)
        return self._unroll(obs, rows)

    def _step(self, next_obs: npt.NDArray[np.float32], rows: dict[str, npt.NDArray[Any]]) -> None:
        """Fill ``rows`` and ``next_obs``, and advance the stream."""
        env = self._collector.env
        with lent_state(self._stream) as state:
            self._learner.collect(
                envs=env,
                parameters=self._optimizer.parameters.numpy(),
                stream=state,
                next_obs=next_obs,
                **rows,
            )

    def _unroll(self, obs: npt.NDArray[np.float32], rows: dict[str, npt.NDArray[Any]]) -> Unroll:
        parameters = self._optimizer.parameters.numpy()
        n_steps, n_envs = rows["rewards"].shape
        values = [
            self._learner.values(parameters, obs[:-1].reshape(n_steps * n_envs, -1)),
            self._learner.values(parameters, obs[-1]),
        ]
        return Unroll(
            obs=torch.from_numpy(obs),
            actions=torch.from_numpy(rows["actions"]),
            log_probs=torch.from_numpy(rows["log_probs"]),
            rewards=rows["rewards"],
            terminated=rows["terminated"],
            truncated=rows["truncated"],
            values=torch.from_numpy(np.concatenate(values).reshape(n_steps + 1, n_envs)),
            final_values=rows["final_values"],
        )
