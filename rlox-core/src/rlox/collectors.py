"""Collect rollouts: step N envs with a policy, keep what the learner needs, estimate advantages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import Tensor

from rlox import kernels
from rlox.batch import RolloutBatch
from rlox.errors import EnvError
from rlox.gym_vec_env import Vectorization
from rlox.protocols import OnPolicyActor
from rlox.session import EnvSession

__all__ = ["RolloutCollector"]

OnStep = Callable[[int], None]


class RolloutCollector:
    """Steps N envs with a policy and returns batches with advantages.

    Episodes run on from one :meth:`collect` to the next. Actions outside a box's bounds are clipped
    for the env and stored as sampled.

    Args:
        env_id: what to step: a gymnasium id, a callable, an env or a vector env.
        n_envs: number of envs N; none: 1, or as many as a vector env has.
        seed: fixes the envs' random streams.
        device: where the batches live.
        gamma: discount in [0, 1].
        gae_lambda: trace decay λ in [0, 1].
        backend: env backend for ids; ``"auto"`` takes the fastest that has the id.
        vectorization: for gymnasium envs, ``"sync"`` or ``"async"`` (one process each).
        env_kwargs: arguments of ``gymnasium.make``.
    """

    def __init__(
        self,
        env_id: Any,
        n_envs: int | None = None,
        seed: int = 0,
        *,
        device: str | torch.device = "cpu",
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        backend: str = "auto",
        vectorization: Vectorization = "sync",
        env_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self._session = EnvSession(
            env_id,
            n_envs,
            seed,
            backend=backend,
            vectorization=vectorization,
            env_kwargs=env_kwargs,
        )
        self.env = self._session.env
        self.statistics = self._session.statistics
        self.device = torch.device(device)
        self.gamma = gamma
        self.gae_lambda = gae_lambda
        space = self.env.observation_space
        assert space.shape is not None
        assert space.dtype is not None
        self._obs_dtype = np.uint8 if space.dtype == np.uint8 else np.float32
        action_space = self.env.action_space
        self._bounds = (
            (action_space.low, action_space.high) if isinstance(action_space, spaces.Box) else None
        )

    @torch.no_grad()
    def collect(
        self, policy: OnPolicyActor, n_steps: int, on_step: OnStep | None = None
    ) -> RolloutBatch:
        """Step every env ``n_steps`` times.

        Args:
            policy: acts on (N, *shape) observations on the collector's device.
            n_steps: steps T per env.
            on_step: called after each vector step with the number of env steps it took (N).

        Returns:
            A batch of newly allocated tensors of T*N rows.

        Raises:
            ValueError: ``n_steps`` is not positive.
            EnvError: an env returned a reward that is not finite.
        """
        if n_steps < 1:
            raise ValueError(f"n_steps must be at least 1, got {n_steps}")
        session = self._session
        n_envs, shape = self.env.n_envs, session.obs.shape[1:]
        obs = np.empty((n_steps, n_envs, *shape), self._obs_dtype)
        rewards = np.empty((n_steps, n_envs), np.float32)
        terminated = np.empty((n_steps, n_envs), np.bool_)
        truncated = np.empty((n_steps, n_envs), np.bool_)
        cut_obs: list[npt.NDArray[Any]] = []
        actions: list[Tensor] = []
        log_probs: list[Tensor] = []
        obs_rows = torch.from_numpy(obs)
        taken = 0
        try:
            for t, row in enumerate(obs_rows.unbind()):
                obs[t] = session.obs
                action, log_prob = policy.get_action_and_logprob(row.to(self.device))
                step = self.env.step_all(self._for_env(action.cpu().numpy()))
                actions.append(action)
                log_probs.append(log_prob)
                session.obs = step["obs"]
                rewards[t] = step["rewards"]
                terminated[t] = step["terminated"]
                truncated[t] = step["truncated"]
                if truncated[t].any():
                    cut_obs.append(step["final_obs"][truncated[t]])
                taken = t + 1
                if on_step is not None:
                    on_step(n_envs)
        finally:
            # episodes go on even where a callback ends the rollout
            self.statistics.add(rewards[:taken], (terminated | truncated)[:taken])
        if not np.isfinite(rewards).all():
            t, i = np.argwhere(~np.isfinite(rewards))[0]
            raise EnvError(f"env {i} returned the reward {rewards[t, i]}; rewards must be finite")
        flat_obs = obs_rows.flatten(0, 1).to(self.device)
        # a policy may return views of its parameters, which the learner is about to change
        values = policy.get_value(flat_obs).clone()
        advantages, returns = kernels.backend().compute_gae_time_major(
            rewards,
            values.cpu().numpy().reshape(n_steps, n_envs),
            terminated,
            truncated,
            self._final_values(policy, cut_obs, truncated),
            policy.get_value(self._tensor(session.obs)).cpu().numpy(),
            self.gamma,
            self.gae_lambda,
        )

        def flat(array: npt.NDArray[Any]) -> Tensor:
            return torch.from_numpy(array).flatten().to(self.device)

        return RolloutBatch(
            obs=flat_obs,
            actions=torch.cat(actions),
            log_probs=torch.cat(log_probs),
            values=values,
            rewards=flat(rewards),
            terminated=flat(terminated),
            truncated=flat(truncated),
            advantages=flat(advantages),
            returns=flat(returns),
            n_steps=n_steps,
            n_envs=n_envs,
        )

    def _tensor(self, obs: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(obs, self._obs_dtype)).to(self.device)

    def _for_env(self, actions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return actions if self._bounds is None else np.clip(actions, *self._bounds)

    def _final_values(
        self,
        policy: OnPolicyActor,
        cut_obs: list[npt.NDArray[Any]],
        truncated: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.float32]:
        """Return (T, N) values of the final observations, 0 where no episode was cut."""
        values = np.zeros(truncated.shape, np.float32)
        if cut_obs:
            values[truncated] = (
                policy.get_value(self._tensor(np.concatenate(cut_obs))).cpu().numpy()
            )
        return values

    def close(self) -> None:
        """Free the resources of the envs that the collector made."""
        self._session.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the episode statistics and, where the env can tell it, the env's state."""
        return self._session.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state; an env without one starts new episodes at the next collect."""
        self._session.load_state_dict(state)
