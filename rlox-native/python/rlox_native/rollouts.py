"""Rollouts of native envs with a default policy, in one Rust call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from rlox.batches.rollout import RolloutBatch

from rlox_native._native import ActorCriticLearner, VecEnv, compute_gae_time_major
from rlox_native.acting import can_act, lent_state

if TYPE_CHECKING:
    from rlox.learners.rollouts import LearningTask
    from rlox.training.hooks import Hooks

__all__ = ["NativeRollouts"]


class NativeRollouts:
    """Steps native envs with actions drawn from the policy in Rust.

    Args:
        task: whose policy acts; its env is a native one.
        learner: of the policy's shape.
        act_dim: size of an action; none: one of a number of actions.
    """

    def __init__(
        self, task: LearningTask, learner: ActorCriticLearner, act_dim: int | None
    ) -> None:
        self._agent = task.agent
        self._learner = learner
        assert task.actions is not None
        self._stream = task.actions.bit_generator
        self._action_shape = () if act_dim is None else (act_dim,)
        self._action_dtype = np.int64 if act_dim is None else np.float32

    @staticmethod
    def can_step(task: LearningTask) -> bool:
        """Return whether the policy can act in Rust and envs are native and unprocessed."""
        collector: Any = task.agent.collector
        return (
            can_act(task)
            and isinstance(collector.env, VecEnv)
            and collector.preprocessor is None
            and collector.reward_scaler is None
        )

    def collect(self, n_steps: int, hooks: Hooks) -> RolloutBatch:
        """Step every env ``n_steps`` times; see ``rlox.learners.rollouts.Learner``."""
        collector: Any = self._agent.collector
        env: Any = collector.env
        next_obs = np.array(collector.session.obs, np.float32)
        shape = (n_steps, env.n_envs)
        rows: dict[str, npt.NDArray[Any]] = {
            "obs": np.empty((*shape, next_obs.shape[1]), np.float32),
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
                collector.session.obs = next_obs.copy()
                for _ in range(stride):
                    taken += 1
                    hooks.env_step(env.n_envs)
        finally:
            # episodes go on even where a callback ends the rollout
            ended = rows["terminated"][:taken] | rows["truncated"][:taken]
            collector.statistics.add(rows["rewards"][:taken], ended)
        batch = self._batch(next_obs, rows)
        hooks.rollout_end(batch)
        return batch

    def _step(self, next_obs: npt.NDArray[np.float32], rows: dict[str, npt.NDArray[Any]]) -> None:
        """Fill ``rows`` and ``next_obs``, and advance the stream."""
        env: Any = self._agent.collector.env
        with lent_state(self._stream) as state:
            self._learner.collect(
                envs=env,
                parameters=self._agent.optimizer.parameters.numpy(),
                stream=state,
                next_obs=next_obs,
                **rows,
            )

    def _batch(
        self, next_obs: npt.NDArray[np.float32], rows: dict[str, npt.NDArray[Any]]
    ) -> RolloutBatch:
        collector: Any = self._agent.collector
        parameters = self._agent.optimizer.parameters.numpy()
        n_steps, n_envs = rows["rewards"].shape
        obs = rows["obs"].reshape(n_steps * n_envs, -1)
        values = self._learner.values(parameters, obs)
        advantages, returns = compute_gae_time_major(
            rows["rewards"],
            values.reshape(n_steps, n_envs),
            rows["terminated"],
            rows["truncated"],
            rows["final_values"],
            self._learner.values(parameters, next_obs),
            collector.gamma,
            collector.gae_lambda,
        )
        actions = rows["actions"].reshape(n_steps * n_envs, *self._action_shape)
        flat = {
            name: torch.from_numpy(rows[name].reshape(-1))
            for name in ("log_probs", "rewards", "terminated", "truncated")
        }
        return RolloutBatch(
            obs=torch.from_numpy(obs),
            actions=torch.from_numpy(actions),
            values=torch.from_numpy(values),
            advantages=torch.from_numpy(advantages.reshape(-1)),
            returns=torch.from_numpy(returns.reshape(-1)),
            n_steps=n_steps,
            n_envs=n_envs,
            **flat,
        )
