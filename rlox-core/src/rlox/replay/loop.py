"""What off-policy algorithms share: envs, a replay buffer, the rhythm of acting and learning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from rlox.batches.transitions import TransitionBatch
from rlox.config.schedules import Schedules
from rlox.envs.gymnasium import Vectorization
from rlox.envs.running import EnvSession
from rlox.errors import CheckpointError, ConfigError
from rlox.networks.predict import act
from rlox.nn import find_device, torch_threads
from rlox.protocols import PrioritizedBuffer, StatefulBuffer
from rlox.replay.action_codec import BoxActions, DiscreteActions, make_actions
from rlox.replay.buffers import BufferOptions, cut_episodes, make_buffer
from rlox.replay.checked_sampling import sampler
from rlox.replay.collector import ReplayCollector
from rlox.replay.goals import find_goals
from rlox.replay.observation_codec import ReplayObservations
from rlox.seeding import SeedStreams
from rlox.spaces.nested import map_leaves
from rlox.training.hooks import Hooks, StopTraining
from rlox.training.progress import Clock

__all__ = ["Choose", "ReplayAgent"]

Choose = Callable[[Any], npt.NDArray[Any]]
"""From (N, *shape) observations, of a nested space a dict of them by leaf name, to (N,) or
(N, act_dim) actions as the buffer stores them."""


class ReplayAgent:
    """N envs that fill a replay buffer, and batches from it when gradient steps are due.

    Whatever N is, ``gradient_steps`` batches are due whenever the env steps pass a multiple of
    ``train_freq``: gradient_steps / train_freq is the update-to-data ratio, the gradient steps per
    env step. Until ``learning_starts`` env steps actions are uniform and nothing is learnt.

    Args:
        env: a gymnasium id, a callable that makes an env, an env or a vector env.
        streams: the run's random streams.
        clock: the run's clock.
        buffer: a registered name, or an object with the methods of
            :class:`rlox.protocols.ReplayBuffer` or :class:`rlox.protocols.ReplayBufferProtocol`.
        buffer_size: number of transitions that fit into a buffer made here.
        priority_alpha: exponent α of a prioritized buffer.
        n_step: steps that a transition of a buffer made here spans.
        gamma: discount in [0, 1].
        n_sampled_goal: of a buffer ``"her"``, see :mod:`rlox.replay.goals`.
        goal_selection_strategy: likewise.
        hot_capacity: of a buffer ``"mmap"``, see :class:`rlox.replay.buffers.BufferOptions`.
        buffer_folder: likewise.
        batch_size: transitions B in a batch.
        learning_starts: transitions to store before the first batch, in env steps.
        train_freq: env steps between learning.
        gradient_steps: batches each time.
        steps_per_iteration: env steps of one iteration, rounded up to whole vector steps; one ends
            whenever the env steps pass a multiple of them.
        save_replay_buffer: whether checkpoints hold the buffer.
        n_envs: number of envs N.
        env_backend: env backend for ids; ``"auto"`` takes the fastest that has the id.
        vectorization: for gymnasium envs, ``"sync"`` or ``"async"``.
        device: torch device of the batches.
        threads: torch threads while acting; none: leave torch's setting.

    Raises:
        ConfigError: the buffer has not the methods it needs or would mix the envs, or there is no
            such device.
        EnvError: the env cannot be built.
        SpaceError: the env's actions are neither discrete nor a bounded box, or its observations
            have no arrays of one shape.
    """

    def __init__(
        self,
        env: Any,
        streams: SeedStreams,
        clock: Clock,
        *,
        buffer: Any = "uniform",
        buffer_size: int = 1_000_000,
        priority_alpha: float = 0.6,
        n_step: int = 1,
        gamma: float = 0.99,
        n_sampled_goal: int = 4,
        goal_selection_strategy: str = "future",
        hot_capacity: int = 100_000,
        buffer_folder: str | None = None,
        batch_size: int = 256,
        learning_starts: int = 1_000,
        train_freq: int = 1,
        gradient_steps: int = 1,
        steps_per_iteration: int = 1_000,
        save_replay_buffer: bool = False,
        n_envs: int | None = None,
        env_backend: str = "auto",
        vectorization: Vectorization = "sync",
        device: str = "cpu",
        threads: int | None = 1,
    ) -> None:
        self.device = find_device(device)
        self.threads = threads
        self.gamma = gamma
        self.batch_size = batch_size
        self.learning_starts = learning_starts
        self.train_freq = train_freq
        self.gradient_steps = gradient_steps
        self._streams = streams
        self._clock = clock
        self._stored = 0
        self._due = 0
        self._indices: Any = None
        with ExitStack() as made:  # what was made is closed where the rest fails
            session = EnvSession(
                env,
                n_envs,
                streams.seeds("envs", 1)[0],
                backend=env_backend,
                vectorization=vectorization,
            )
            made.callback(session.close)
            self.env = session.env
            self.actions: DiscreteActions | BoxActions = make_actions(self.env.action_space)
            self.observations = ReplayObservations(self.env.observation_space)
            goals = None
            if buffer == "her":
                goals = find_goals(
                    env,
                    self.env.observation_space,
                    n_sampled_goal=n_sampled_goal,
                    goal_selection_strategy=goal_selection_strategy,
                    resources=made,
                )
            options = BufferOptions(
                capacity=buffer_size,
                obs_shape=self.observations.shape,
                obs_dtype=self.observations.dtype,
                act_shape=self.actions.shape,
                act_dtype=self.actions.dtype,
                n_envs=self.env.n_envs,
                n_step=n_step,
                gamma=gamma,
                priority_alpha=priority_alpha,
                seed=streams.seeds("replay", 1)[0],
                goals=goals,
                hot_capacity=hot_capacity,
                folder=buffer_folder,
            )
            self.buffer: Any = make_buffer(buffer, options)
            if isinstance(buffer, str) and hasattr(self.buffer, "close"):
                made.callback(self.buffer.close)
            self._saves_buffer = save_replay_buffer
            if save_replay_buffer and not isinstance(self.buffer, StatefulBuffer):
                raise ConfigError(
                    f"save_replay_buffer needs a buffer with state and set_state, "
                    f"{type(self.buffer).__name__} has not both; turn it off"
                )
            self.collector = ReplayCollector(session, self.buffer, self.observations)
            self._resources = made.pop_all()
        self.prioritized = isinstance(self.buffer, PrioritizedBuffer)
        self._vector_steps = -(-steps_per_iteration // self.env.n_envs)
        self._sample = sampler(self.buffer, options, streams)

    def batches(
        self, choose: Choose, hooks: Hooks, schedules: Schedules
    ) -> Iterator[tuple[TransitionBatch, float]]:
        """Step the envs to the iteration's end, and yield a batch for every gradient step due.

        Where a callback ends the training, the iteration ends with what is due by then; the next
        one goes on from there to where it would have ended.

        Args:
            choose: the actions to take once learning has started.
            hooks: told of every vector step.
            schedules: of ``learning_rate`` and ``priority_beta``.

        Yields:
            A batch, and the learning rate at its env step.
        """
        done = self._clock.env_steps // self.env.n_envs % self._vector_steps
        try:
            yield from self._learn(hooks, schedules)
            for _ in range(done, self._vector_steps):
                self._step(choose)
                with suppress(StopTraining):  # what is due is learnt first
                    hooks.env_step(self.env.n_envs)
                yield from self._learn(hooks, schedules)
                if hooks.stopped:
                    break
        finally:
            # episodes go on even where an error ends the iteration
            self.collector.count_episodes()

    @torch.no_grad()
    def _step(self, choose: Choose) -> None:
        obs, n_envs, steps = self.collector.obs, self.env.n_envs, self._clock.env_steps
        if steps < self.learning_starts:
            actions = self.actions.random(self._streams.numpy("warm-up"), n_envs)
        else:
            actions = self.actions.bounded(choose(map_leaves(self._tensor, obs)))
        self.collector.step(obs, actions, self.actions.to_env(actions))
        self._stored += n_envs
        if self._stored >= self.learning_starts and len(self.buffer):
            rounds = (steps + n_envs) // self.train_freq - steps // self.train_freq
            self._due += rounds * self.gradient_steps

    def _learn(self, hooks: Hooks, schedules: Schedules) -> Iterator[tuple[TransitionBatch, float]]:
        if not self._due:
            return
        hooks.enter("learn")
        now = (self._clock.env_steps, self._clock.target_env_steps)
        learning_rate = schedules.value("learning_rate", *now)
        if self.prioritized:
            self.buffer.set_beta(schedules.value("priority_beta", *now))
        while self._due:
            self._due -= 1
            yield self._draw(), learning_rate
        hooks.enter("collect")

    def _draw(self) -> TransitionBatch:
        drawn = self._sample(self.batch_size)
        self._indices = drawn.get("indices")
        return TransitionBatch.of(drawn, self.observations.unpack, self.gamma, self._tensor)

    def _tensor(self, array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def set_priorities(self, errors: Tensor | None) -> None:
        """Give the transitions of the last batch new priorities, where the buffer has any.

        Args:
            errors: (B,) TD errors, or (K, B) of K critics, whose absolute values are averaged.

        Source:
            Schaul et al. 2016, section 3.3: abs(δ) + ε, with ε = 1e-6.
        """
        if self.prioritized and self._indices is not None and errors is not None:
            sizes = errors.detach().abs().reshape(-1, errors.shape[-1]).mean(0) + 1e-6
            self.buffer.update_priorities(self._indices, sizes.cpu().numpy())

    def predict(self, choose: Choose, obs: npt.ArrayLike) -> Any:
        """Return an action for one observation, or actions for a batch; see ``acting.act``.

        Args:
            choose: from observations to actions as the buffer stores them.
            obs: one observation or a batch (B, *shape).
        """
        spaces = self.env.observation_space, self.env.action_space
        with torch_threads(self.threads):
            return act(
                lambda rows: torch.from_numpy(self.actions.to_rows(choose(rows))),
                *spaces,
                obs,
                device=self.device,
            )

    def close(self) -> None:
        """Free the resources of the envs and of the buffer that were made here."""
        self._resources.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the collector and, where it is to be saved, the buffer."""
        state: dict[str, Any] = {"collector": self.collector.state_dict(), "buffer": None}
        if self._saves_buffer:
            state["buffer"] = self.buffer.state()
            state["stored"], state["due"] = self._stored, self._due
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the collector and the buffer.

        Without a saved buffer, learning goes on once ``learning_starts`` new transitions are
        stored; the policy collects them. With one, the episodes that were under way are cut where
        the envs begin new ones.

        Raises:
            CheckpointError: the buffer was saved and this one cannot take it over.
        """
        exact = self.collector.load_state_dict(state["collector"])
        if state["buffer"] is None:
            return
        if not isinstance(self.buffer, StatefulBuffer):
            raise CheckpointError(
                "the checkpoint holds a replay buffer, which needs a buffer with set_state, got "
                f"{type(self.buffer).__name__}"
            )
        stored = dict(state["buffer"])
        self.buffer.set_state(stored if exact else cut_episodes(stored, self.env.n_envs))
        self._stored = int(state["stored"])
        self._due = int(state.get("due", 0))  # checkpoints had none before
