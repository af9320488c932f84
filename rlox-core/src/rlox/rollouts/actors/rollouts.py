"""Unrolls of several actors for an algorithm."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlox import registry
from rlox.batches.rollout import Unroll
from rlox.config.composition import Selection
from rlox.envs.make import fixed_env_count, make_vec_env
from rlox.envs.preprocessing import make_preprocessor
from rlox.envs.running import EpisodeStatistics
from rlox.files import require_memory_for
from rlox.rollouts.actors.pool import ActorPlan, ActorPool, Order, Weights, backend_of_actor
from rlox.spaces.rows import ObservationRows
from rlox.training.hooks import Hooks

if TYPE_CHECKING:
    from rlox.rollouts.algorithm import RolloutAlgorithm


@dataclass(frozen=True)
class Gathered:
    """The unrolls of one update, and their metrics."""

    unrolls: list[Unroll]
    lag_min: float
    """Updates between the weights that acted and the current ones, over the unrolls."""
    lag_mean: float
    lag_max: float
    queue: float
    """Number of unrolls that were ready and wait for later updates."""
    unrolls_dropped: float
    """Number of unrolls dropped so far for their lag."""
    restarts: float
    """Number of actors' restarts so far."""


class ActorRollouts:
    """Actors that :meth:`start` creates; takes the place of a collector.

    Args:
        env: an id, a callable, or a sequence of vector envs, one per actor.
        env_options: ``env_backend``, ``vectorization`` and ``env_kwargs`` of the envs.
        normalize_observations: see :class:`rlox.envs.preprocessing.Preprocessor`; the learner keeps
            the moments, merges those of the actors and sends them with the weights.
        frame_stack: see the same class.
        clip_rewards: bound of the absolute rewards in the gathered unrolls; statistics use the
            env's.
        n_actors: number of actors A.
        n_envs: number of envs N per actor.
    """

    def __init__(
        self,
        env: Any,
        env_options: Mapping[str, Any],
        *,
        n_actors: int,
        n_envs: int,
        normalize_observations: bool = False,
        frame_stack: int = 1,
        clip_rewards: float | None = None,
    ) -> None:
        first = env[0] if isinstance(env, (list, tuple)) else env
        options = dict(env_options)
        backend = options.pop("env_backend", "auto")
        of_first = backend_of_actor(backend, 0, n_actors)
        if of_first is not backend:  # workers have a number of envs
            options["n_envs"] = n_envs
        probe = make_vec_env(first, backend=of_first, **options)
        self.env: Any = SimpleNamespace(
            observation_space=probe.observation_space,
            action_space=probe.action_space,
            n_envs=n_actors * n_envs,
        )
        """Spaces of one env, and the number of envs."""
        if fixed_env_count(first) is None:
            probe.close()
        self.n_envs = n_envs
        self._clip_rewards = clip_rewards
        self.statistics = EpisodeStatistics(n_actors * n_envs)
        self.preprocessor, self.observation_space = make_preprocessor(
            self.env.observation_space, normalize_observations, frame_stack
        )
        self.version = 0
        """Number of updates that the learner has taken."""
        self._pool: Any = None

    def start(
        self,
        plan: ActorPlan,
        backend: str | Selection,
        *,
        per_update: int,
        queue_size: int = 0,
        order: Order | Literal["auto"] = "auto",
        min_actors: int | None = None,
        max_lag: int | None = None,
    ) -> None:
        """Build the actors; they wait until :meth:`gather`.

        Args:
            plan: options of the actors.
            backend: registered name of the actor backend, optionally with its options.
            per_update: unrolls per update.
            queue_size: see :class:`ActorPool`.
            order: ``"auto"`` takes ``"arrival"`` if ``min_actors`` allows losses, because no order
                is fixed then, and ``"fixed"`` otherwise.
            min_actors: required number of live actors; ``None``: all.
            max_lag: see :class:`ActorPool`.

        Raises:
            MemoryLimitError: the unrolls of an update, or those ahead of it, exceed the
                memory.
            UnknownNameError: no such backend is registered.
        """
        size = (plan.n_steps + 1) * ObservationRows(self.observation_space).size_of(self.n_envs)
        for name, count in (("unrolls_per_update", per_update), ("queue_size", queue_size)):
            require_memory_for(name, count, count * size, "take fewer or shorter ones")
        spares = min_actors is not None and min_actors < plan.n_actors
        chosen: Order = order if order != "auto" else ("arrival" if spares else "fixed")
        selected = backend if isinstance(backend, Selection) else Selection(backend)
        logging.getLogger("rlox").info(
            "%d actors of the backend '%s', unrolls in the order '%s'",
            plan.n_actors, selected.name, chosen,
        )  # fmt: skip
        registration = registry.get_registry().get("rlox_actor_backends", selected.name)
        with ExitStack() as made:  # if one fails, the others are closed
            actors = []
            for index in range(plan.n_actors):
                actor = registration.build(plan, index, options=selected.options)
                made.callback(actor.close)
                actors.append(actor)
            self._pool = ActorPool(
                actors, per_update=per_update, queue_size=queue_size, order=chosen,
                max_lag=max_lag, min_actors=min_actors,
            )  # fmt: skip
            made.pop_all()

    def weights(self, learner: RolloutAlgorithm) -> Weights:
        """Return a copy of the current weights for the actors.

        Args:
            learner: has the policy and its optimiser.
        """
        moments = None
        if self.preprocessor is not None and self.preprocessor.moments:
            moments = self.preprocessor.state_dict()
        buffers = {name: _copied(buffer) for name, buffer in learner.policy.named_buffers()}
        return Weights(self.version, _copied(learner.optimizer.parameters), moments, buffers)

    def gather(self, learner: RolloutAlgorithm, hooks: Hooks) -> Gathered:
        """Let the actors continue with new weights, and return the unrolls of the next update.

        Args:
            learner: see :meth:`weights`.
            hooks: called once per vector step, when its unroll has arrived.
        """
        taken = self._pool.take(self.weights(learner))
        lags = [self.version - unroll.weights_version for unroll in taken.unrolls]
        with nullcontext() if self.preprocessor is None else self.preprocessor.sharing():
            for unroll in taken.unrolls:
                self._take_in(unroll, hooks)
        unrolls = taken.unrolls
        if (bound := self._clip_rewards) is not None:
            unrolls = [replace(u, rewards=np.clip(u.rewards, -bound, bound)) for u in unrolls]
        counts = (min(lags), np.mean(lags), max(lags), taken.waiting, taken.dropped)
        return Gathered(unrolls, *map(float, (*counts, self._pool.restarts)))

    def _take_in(self, unroll: Unroll, hooks: Hooks) -> None:
        if unroll.moments is not None and self.preprocessor is not None:
            self.preprocessor.merge(unroll.moments)
        reported, first = 0, unroll.actor * self.n_envs
        of_actor = slice(first, first + self.n_envs)
        envs: Any = of_actor if unroll.envs is None else first + unroll.envs
        if unroll.resets:
            self.statistics.forget(of_actor)
        if unroll.envs is not None:
            lost = np.setdiff1d(np.arange(self.n_envs), unroll.envs)
            self.statistics.forget(first + lost)
        try:
            for _ in range(unroll.n_steps):
                reported += 1
                hooks.env_step(unroll.n_envs)
        finally:
            rewards, ended = unroll.rewards[:reported], unroll.terminated | unroll.truncated
            if unroll.life_lost is not None:
                ended &= ~unroll.life_lost
            self.statistics.add(rewards, ended[:reported], envs)

    def close(self) -> None:
        """End the actors."""
        if self._pool is not None:
            self._pool.close()

    def state_dict(self) -> dict[str, Any]:
        """Return statistics, moments, actors, and the collected unrolls."""
        state: dict[str, Any] = {
            "version": self.version,
            "statistics": self.statistics.state_dict(),
            "pool": self._pool.state_dict(),
        }
        if self.preprocessor is not None:
            state["observations"] = self.preprocessor.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state; envs without a saved state, or in another number, begin new episodes.

        With another number of envs, collected unrolls that were not learnt from are dropped.
        """
        self.version = int(state["version"])
        fits = self.statistics.fits(state["statistics"])
        self.statistics.load_state_dict(state["statistics"], keep_running=fits)
        self._pool.load_state_dict(state["pool"], keep_unrolls=fits)
        if self.preprocessor is not None:
            self.preprocessor.load_state_dict(state["observations"])


def _copied(tensor: Tensor) -> npt.NDArray[Any]:
    if tensor.dtype == torch.bfloat16:  # NumPy lacks it; single precision holds all its values
        tensor = tensor.float()
    array: npt.NDArray[Any] = tensor.detach().cpu().numpy().copy()
    return array
