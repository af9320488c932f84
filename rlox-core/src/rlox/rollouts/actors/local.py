"""Actors in this process."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from rlox.batches.rollout import Unroll
from rlox.learners.choose import find_learner
from rlox.learners.tasks import RolloutTask
from rlox.losses import PolicyGradient
from rlox.nn import FlatOptimizer, torch_threads
from rlox.rollouts.actors.plan import ActorPlan, Weights
from rlox.rollouts.collector import RolloutCollector

__all__ = ["LocalActor", "make_thread_actor"]


class LocalActor:
    """Acts in the process and the thread that call it.

    Args:
        plan: what all actors are built from.
        index: which of them it is.
        attempt: how often it had to begin again; each attempt has streams of its own.
        on_step: called after every vector step.
    """

    restarts = 0

    def __init__(
        self,
        plan: ActorPlan,
        index: int,
        *,
        attempt: int = 0,
        on_step: Callable[[], None] | None = None,
    ) -> None:
        self._index, self._n_steps = index, plan.n_steps
        self._torch_threads = plan.torch_threads
        self._streams = plan.streams(index, attempt)
        self._hooks: Any = _Unheard(on_step)
        self._collector = RolloutCollector(
            plan.env_of(index),
            plan.n_envs,
            self._streams.seeds("envs", 1)[0],
            backend=plan.env_backend_of(index),
            vectorization=plan.vectorization,
            env_kwargs=plan.env_kwargs,
            normalize_observations=plan.normalize_observations,
            frame_stack=plan.frame_stack,
        )
        self._policy = policy = copy.deepcopy(plan.policy)
        if hasattr(policy, "generator"):
            policy.generator = self._streams.torch("policy")
        # never steps: it lays the parameters out as the learner's are
        self._weights = FlatOptimizer(policy, partial(torch.optim.RMSprop))
        task = RolloutTask(
            PolicyGradient(0.5),
            policy,
            self._weights,
            self._collector,
            _refuse_to_update,
            actions=self._streams.numpy("native actions"),
            acts_only=True,
        )
        self._acting, self.backend, _ = find_learner(plan.backend, task, role=f"actor {index}")
        self._sequence = 0

    @torch.no_grad()
    def collect(self, weights: Weights) -> Unroll:
        """Return the next unroll; see :class:`rlox.rollouts.actors.plan.Actor`."""
        self._weights.parameters.copy_(torch.from_numpy(weights.parameters))
        for name, buffer in weights.buffers.items():
            self._policy.get_buffer(name).copy_(torch.from_numpy(buffer))
        preprocessor = self._collector.preprocessor
        if weights.moments is not None and preprocessor is not None:
            preprocessor.load_state_dict(weights.moments)
            preprocessor.record()
        resets = not self._collector.envs.started
        with torch_threads(self._torch_threads):  # of this thread
            unroll: Unroll = self._acting.collect(self._n_steps, self._hooks)
        self._sequence += 1
        return replace(
            unroll,
            values=None,
            final_values=None,
            weights_version=weights.version,
            actor=self._index,
            sequence=self._sequence - 1,
            resets=resets,
            moments=preprocessor.recorded() if preprocessor is not None else None,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return envs, streams, and how many unrolls there were."""
        return {
            "collector": self._collector.state_dict(),
            "streams": self._streams.state_dict(),
            "sequence": self._sequence,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        self._collector.load_state_dict(state["collector"])
        self._streams.load_state_dict(state["streams"])
        self._sequence = int(state["sequence"])

    def interrupt(self) -> None:
        """Let the unroll under way come to its end."""

    def close(self) -> None:
        """Close the envs that were made here."""
        self._collector.close()


def make_thread_actor(plan: ActorPlan, index: int) -> LocalActor:
    """Build an actor of the backend ``thread``: the pool calls it in a thread of its own."""
    return LocalActor(plan, index)


class _Unheard:
    """Hooks that no callback listens to: steps are reported when their unroll arrives."""

    step_listened = train_batch_listened = False

    def __init__(self, on_step: Callable[[], None] | None) -> None:
        self._on_step = on_step

    def env_step(self, count: int) -> None:
        """Pass a vector step on."""
        if self._on_step is not None:
            self._on_step()


def _refuse_to_update(*_: Any) -> dict[str, float]:
    raise NotImplementedError("an actor does not learn")
