"""Unrolls of native envs with a default policy, in one Rust call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from rlox.batches.rollout import Unroll
from rlox.files import require_memory_for
from rlox.networks.actor_critics import ContinuousPolicy, DiscretePolicy

from rlox_native._native import ActorCriticLearner, VecEnv
from rlox_native.acting import can_act, lent_state

if TYPE_CHECKING:
    from rlox.learners.tasks import RolloutTask
    from rlox.training.hooks import Hooks

__all__ = ["NativeRollouts"]


class NativeRollouts:
    """Steps native envs with actions drawn from the policy in Rust.

    Args:
        task: whose policy acts; its env is a native one.
        learner: of the policy's shape.
        act_dim: size of an action; ``None`` for discrete actions.
    """

    def __init__(self, task: RolloutTask, learner: ActorCriticLearner, act_dim: int | None) -> None:
        self._collector: Any = task.collector
        self._optimizer = task.optimizer
        self._learner = learner
        assert task.actions is not None
        self._stream = task.actions.bit_generator
        self._action_shape = () if act_dim is None else (act_dim,)
        self._action_dtype = np.int64 if act_dim is None else np.float32

    @staticmethod
    def can_step(task: RolloutTask) -> bool:
        """Return whether the policy can act in Rust and envs are native and unprocessed.

        Rust estimates the values of final observations, but does not hand the observations on.
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
        next_obs = obs[n_steps]  # where Rust keeps the present observations
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
            # a callback that listens to every step gets a call of its own for each
            stride = 1 if hooks.step_listened else n_steps
            while taken < n_steps:
                self._step(next_obs, {k: row[taken : taken + stride] for k, row in rows.items()})
                collector.envs.obs = next_obs.copy()
                for _ in range(stride):
                    taken += 1
                    hooks.env_step(env.n_envs)
        finally:
            # episodes go on even where a callback ends the rollout
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
