"""Replay loops: stepping envs into a buffer, updates due, batches drawn, priorities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import torch
from torch import Tensor

from rlox.batches.transitions import TransitionBatch
from rlox.config.schedules import Schedules
from rlox.deployment import PolicyData
from rlox.envs.running import RunningEnvs
from rlox.errors import CheckpointError, ConfigError
from rlox.networks.predict import act
from rlox.nn import find_device, flush_denormals, layer_data, torch_threads
from rlox.nn.layer_data import chain, mode
from rlox.protocols import PrioritizedBuffer, StatefulBuffer
from rlox.replay.buffers import BufferOptions, cut_episodes, sampler
from rlox.replay.codecs import BoxActions, DiscreteActions, ReplayObservations, make_actions
from rlox.replay.collector import ReplayCollector
from rlox.seeding import SeedStreams
from rlox.spaces.rows import map_leaves
from rlox.training.hooks import Hooks, Progress, StopTraining
from rlox.training.segments import SavedBuffer

if TYPE_CHECKING:
    from rlox.learners.transitions import ChosenReplayLearner

__all__ = [
    "Choose",
    "ReplayLoop",
    "UpdatesDue",
]


class UpdatesDue:
    """Counts the updates that are due: some whenever the env steps pass a multiple.

    Their ratio is the updates per env step, whatever the number of envs. As multiples of the count
    of all env steps matter, no remainder is lost between iterations or in a checkpoint.

    Args:
        updates: how many are due each time.
        every: env steps from one time to the next.
    """

    def __init__(self, updates: int, every: int) -> None:
        self.updates = updates
        self.every = every
        self.pending = 0
        """Updates that are due and not yet taken; checkpoints hold them."""

    @staticmethod
    def of_ratio(ratio: Fraction) -> UpdatesDue:
        """Return a count with so many updates per env step, as evenly as whole updates can be."""
        return UpdatesDue(ratio.numerator, ratio.denominator)

    def count(self, env_steps: int, new: int) -> None:
        """Count env steps.

        Args:
            env_steps: done before.
            new: done since.
        """
        times = (env_steps + new) // self.every - env_steps // self.every
        self.pending += times * self.updates

    def take(self) -> Iterator[int]:
        """Yield for every update that is due; it counts as taken from then on."""
        while self.pending:
            self.pending -= 1
            yield self.pending


Choose = Callable[[Any], npt.NDArray[Any]]
"""From (N, *shape) observations, of a nested space a dict of them by leaf name, to (N,) or
(N, act_dim) actions as the buffer stores them."""


class ReplayLoop:
    """N running envs, a replay buffer and their rhythm, as the parts of an off-policy loop.

    An algorithm calls :meth:`step`, takes what :meth:`updates_due` says, and learns from what
    :meth:`draw` returns. Until ``learning_starts`` env steps actions are uniform and no updates
    become due.

    Args:
        envs: the running envs.
        buffer: see :func:`rlox.replay.buffers.make_buffer`, which returned it.
        options: what the buffer was asked for.
        streams: the run's random streams.
        clock: the run's clock.
        updates: the replay ratio, in gradient steps.
        batch_size: transitions B in a batch.
        learning_starts: transitions to store before the first batch, in env steps.
        steps_per_iteration: env steps of one iteration, rounded up to whole vector steps; one ends
            whenever the env steps pass a multiple of them.
        save_replay_buffer: whether checkpoints hold the buffer.
        clip_rewards: see :class:`rlox.replay.collector.ReplayCollector`.
        device: torch device of the batches.
        threads: torch threads while acting; ``None`` leaves torch's setting.

    Raises:
        ConfigError: the buffer is to be saved and cannot be, or there is no such device.
        SpaceError: the env's actions are neither discrete nor a bounded box, or its observations
            have no arrays of one shape.
    """

    def __init__(
        self,
        envs: RunningEnvs,
        buffer: Any,
        options: BufferOptions,
        streams: SeedStreams,
        clock: Progress,
        *,
        updates: UpdatesDue,
        batch_size: int = 256,
        learning_starts: int = 1_000,
        steps_per_iteration: int = 1_000,
        save_replay_buffer: bool = False,
        clip_rewards: float | None = None,
        device: str = "cpu",
        threads: int | None = 1,
    ) -> None:
        self.device = find_device(device)
        self._on_cpu = self.device.type == "cpu"
        self.threads = threads
        self.batch_size = batch_size
        self.learning_starts = learning_starts
        self.updates = updates
        self.buffer: Any = buffer
        self.env = envs.env
        self.actions: DiscreteActions | BoxActions = make_actions(self.env.action_space)
        self.observations = ReplayObservations(self.env.observation_space)
        self.collector = ReplayCollector(envs, buffer, self.observations, clip_rewards)
        self.prioritized = isinstance(buffer, PrioritizedBuffer)
        if save_replay_buffer and not isinstance(buffer, StatefulBuffer):
            raise ConfigError(
                f"save_replay_buffer needs a buffer with state and set_state, "
                f"{type(buffer).__name__} lacks one of them; turn it off"
            )
        self._saved = SavedBuffer(buffer) if save_replay_buffer else None
        capacity = getattr(buffer, "capacity", None)  # an object's is anything
        self._made_with = {
            "buffer": type(buffer).__name__,
            "buffer_size": capacity if isinstance(capacity, int) else options.capacity,
            "n_envs": self.env.n_envs,
        }
        """What decides whether a saved buffer fits, by option."""
        self._gamma = options.gamma
        self._streams = streams
        self._clock = clock
        self._stored = 0
        self._steps_per_iteration = steps_per_iteration
        self._sample = sampler(buffer, options, streams)

    @property
    def vector_steps_left(self) -> int:
        """Vector steps to the iteration's end; fewer than all if the last one was interrupted."""
        return self._clock.vector_steps_left(self.env.n_envs, self._steps_per_iteration)

    @contextmanager
    def iteration(self) -> Iterator[None]:
        """Run the steps and updates of one iteration: with this loop's torch threads, no denormals.

        Episodes are counted at the end of the block, even if it raises: they go on.
        """
        with torch_threads(self.threads), flush_denormals():
            try:
                yield
            finally:
                self.collector.count_episodes()

    def step(
        self, choose: Choose, hooks: Hooks, learner: ChosenReplayLearner | None = None
    ) -> None:
        """Step every env once and store the transitions.

        A callback that ends the training sets ``hooks.stopped`` and raises nothing here, so that
        what is due is learnt first.

        Args:
            choose: the actions to take once learning has started, without gradients.
            hooks: called after the vector step.
            learner: what acts within ``choose``, which may take arrays; ``None``: tensors.
        """
        obs, n_envs, steps = self.collector.obs, self.env.n_envs, self._clock.env_steps
        if steps < self.learning_starts:
            actions = self.actions.random(self._streams.numpy("warm-up"), n_envs)
        else:
            tensor = self._tensor_for(learner)
            seen = obs if tensor is None else map_leaves(tensor, obs)
            actions = self.actions.bounded(choose(seen))
        self._stored += self.collector.step(obs, actions, self.actions.to_env(actions))
        if self._stored >= self.learning_starts and len(self.buffer):
            self.updates.count(steps, n_envs)
        try:  # noqa: SIM105  # suppress takes as long as all of the hooks
            hooks.env_step(n_envs)
        except StopTraining:
            pass

    def updates_due(self, hooks: Hooks, schedules: Schedules) -> Iterator[float]:
        """Yield the learning rate for every update that is due.

        Args:
            hooks: called when learning begins and ends.
            schedules: of ``learning_rate`` and ``priority_beta``.
        """
        if not self.updates.pending:
            return
        hooks.enter("learn")
        now = (self._clock.env_steps, self._clock.target_env_steps)
        learning_rate = schedules.value("learning_rate", *now)
        if self.prioritized:
            self.buffer.set_beta(schedules.value("priority_beta", *now))
        for _ in self.updates.take():
            yield learning_rate
        hooks.enter("collect")

    def draw(self, learner: ChosenReplayLearner | None = None) -> TransitionBatch:
        """Return a batch from the buffer.

        Args:
            learner: what the batch is for, which may take arrays; ``None``: tensors.
        """
        tensor, drawn = self._tensor_for(learner), self._sample(self.batch_size)
        return TransitionBatch.of(drawn, self.observations.unpack, self._gamma, tensor)

    def _tensor_for(
        self, learner: ChosenReplayLearner | None
    ) -> Callable[[npt.NDArray[Any]], Tensor] | None:
        """Return what makes arrays tensors; ``None`` for a learner that takes arrays."""
        return None if learner is not None and learner.takes_arrays else self._tensor

    def _tensor(self, array: npt.NDArray[Any]) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor if self._on_cpu else tensor.to(self.device)

    def update_priorities(
        self, indices: npt.NDArray[Any] | None, errors: Tensor | npt.NDArray[Any] | None
    ) -> None:
        """Give transitions new priorities, if the buffer has any.

        Args:
            indices: (B,) of the batch.
            errors: (B,) TD errors, or (K, B) of K critics, whose absolute values are averaged.

        Source:
            Schaul et al. 2016, section 3.3: abs(δ) + ε, with ε = 1e-6.
        """
        if self.prioritized and indices is not None and errors is not None:
            sizes = torch.as_tensor(errors).detach().abs().reshape(-1, errors.shape[-1]).mean(0)
            self.buffer.update_priorities(indices, (sizes + 1e-6).cpu().numpy())

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

    def policy_data(self, algorithm: str, *parts: Any) -> PolicyData:
        """Return a policy as data; see :class:`rlox.deployment.Exportable`.

        Args:
            algorithm: registered name of what trained it.
            parts: modules or layers, one after the other, from observations to outputs per
                discrete action, or to actions in [-1, 1].
        """
        env = self.env
        network = [each if isinstance(each, dict) else layer_data(each) for each in parts]
        if isinstance(self.actions, BoxActions):
            network.append(self.actions.layer_data())
        else:
            network.append(mode(env.action_space))
        return PolicyData(algorithm, env.observation_space, env.action_space, chain(*network))

    def state_dict(self) -> dict[str, Any]:
        """Return the collector and, if it is to be saved, the buffer."""
        state: dict[str, Any] = {"collector": self.collector.state_dict(), "buffer": None}
        if self._saved is not None:
            state["buffer"] = self._saved.state()
            state["stored"], state["due"] = self._stored, self.updates.pending
            state["made_with"] = self._made_with
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the collector and the buffer.

        Without a saved buffer, or if this one is not to be saved, learning goes on once
        ``learning_starts`` new transitions are stored; the policy collects them. With one, the
        episodes that were under way are cut where the envs begin new ones.

        Raises:
            CheckpointError: the buffer was saved and this one cannot take it over.
        """
        exact = self.collector.load_state_dict(state["collector"])
        if state["buffer"] is None or self._saved is None:
            return
        stored = dict(state["buffer"])
        try:
            self.buffer.set_state(stored if exact else cut_episodes(stored, self.env.n_envs))
        except (LookupError, TypeError, ValueError) as error:
            raise self._misfit(state, error) from error
        self._stored = int(state["stored"])
        self.updates.pending = int(state.get("due", 0))  # checkpoints had none before

    def _misfit(self, state: Mapping[str, Any], error: Exception) -> CheckpointError:
        """Return the error of a saved buffer that was made with other options, if it was."""
        saved = state.get("made_with", {})  # checkpoints had none before
        given = self._made_with.items()
        others = [f"{k}={saved[k]}, got {v}" for k, v in given if k in saved and saved[k] != v]
        reason = f"was saved with {'; '.join(others)}" if others else f"cannot be restored: {error}"
        return CheckpointError(
            f"its replay buffer {reason}; give what it was saved with, or "
            "save_replay_buffer=False to fill a new buffer"
        )
