"""Replay loops: stepping envs into a buffer, counting due updates, drawing batches, priorities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlox.batches.transitions import TransitionBatch
from rlox.config.schedules import Schedules
from rlox.deployment import PolicyData
from rlox.envs.running import RunningEnvs
from rlox.errors import CheckpointError, ConfigError, SpaceError
from rlox.networks.predict import act
from rlox.nn import find_device, flush_denormals, layer_data, torch_threads
from rlox.nn.layer_data import chain, mode
from rlox.protocols import (
    PrioritizedBuffer,
    ReplayBuffer,
    ReplayBufferProtocol,
    StatefulBuffer,
    VecEnvStep,
)
from rlox.replay.buffers import BufferOptions, Sample, cut_episodes, first_batch, pusher
from rlox.replay.codecs import BoxActions, DiscreteActions, ReplayObservations, make_actions
from rlox.seeding import SeedStreams
from rlox.spaces.rows import map_leaves, require_finite
from rlox.training.hooks import Hooks, Progress, StopTraining
from rlox.training.segments import SavedBuffer

if TYPE_CHECKING:
    from rlox.learners.transitions import ChosenReplayLearner, StepResult

ALL_ALIKE = np.ones((), np.float32)
"""Weights of transitions without priorities; copying this is ten times as fast as ``np.ones``."""


class UpdatesDue:
    """Counts the due updates: a fixed number whenever the env steps pass a multiple of ``every``.

    The two numbers give the updates per env step, for any number of envs. Multiples are taken of
    the total env steps, so no remainder is lost between iterations or in a checkpoint.

    Args:
        updates: number that becomes due each time.
        every: number of env steps between two times.
    """

    def __init__(self, updates: int, every: int) -> None:
        self.updates = updates
        self.every = every
        self.pending = 0
        """Updates due and not yet taken; checkpoints hold them."""

    def count(self, env_steps: int, new: int) -> None:
        """Count env steps.

        Args:
            env_steps: total before.
            new: number since then.
        """
        times = (env_steps + new) // self.every - env_steps // self.every
        self.pending += times * self.updates

    def take(self) -> Iterator[int]:
        """Yield for every due update; each counts as taken when it is yielded."""
        while self.pending:
            self.pending -= 1
            yield self.pending


class ReplaySteps:
    """Steps N running envs and counts their episodes, many steps at a time.

    Args:
        envs: the running envs.
    """

    def __init__(self, envs: RunningEnvs) -> None:
        self.envs, self.env = envs, envs.env
        self.statistics = envs.statistics
        self.episode_start = np.ones(envs.n_envs, np.bool_)
        """(N,) whether the current observation is the first of its episode."""
        self.nothing = np.zeros(envs.n_envs, np.bool_)
        """(N,) all False."""
        self._forget()

    def _forget(self) -> None:
        self._rewards: list[npt.NDArray[np.float64]] = []
        self._ended: list[npt.NDArray[np.bool_]] = []
        self._lost: list[npt.NDArray[np.bool_]] = []

    def step_envs(self, env_actions: Any) -> VecEnvStep:
        """Step every env once; the envs' observations are then the next ones.

        If that fails, all envs begin new episodes.

        Args:
            env_actions: (N, ...) in the env's own form.

        Raises:
            EnvError: an env returned an observation or a reward that is not finite, or a reward
                that is too large for float32.
            SpaceError: the env masks actions, which most envs show only at the first reset.
        """
        if self.envs.action_masks() is not None:
            raise SpaceError(
                "the env masks actions, which replay buffers do not keep; take PPO, or an env "
                "where impossible actions do nothing"
            )
        try:
            step = self.envs.step(env_actions)
            require_finite(step["final_obs"])
            ended = step["terminated"] | step["truncated"]
            if np.count_nonzero(ended):
                require_finite(step["obs"])
            self.episode_start = ended
            self._rewards.append(step["rewards"].copy())  # the env may reuse the array
            life_lost = step.get("life_lost")
            self._ended.append(ended if life_lost is None else ended & ~life_lost)
            self._lost.append(step["lost"].copy() if "lost" in step else self.nothing)
            self.envs.obs = step["obs"]
        except BaseException:
            self.begin_again()
            raise
        return step

    def begin_again(self) -> None:
        """Let all envs begin new episodes when their observations are next read."""
        self.count_episodes()
        self.envs.obs = None
        self.episode_start = np.ones(self.envs.n_envs, np.bool_)

    def count_episodes(self) -> None:
        """Add the steps since the last call to the statistics; many at once cost little more."""
        if self._rewards:
            lost = np.stack(self._lost)
            self.statistics.add(np.stack(self._rewards), np.stack(self._ended), lost=lost)
            self._forget()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the envs and their episodes."""
        self.count_episodes()
        return {**self.envs.state_dict(), "episode_start": self.episode_start.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Restore the state; an env without one starts new episodes at the next step.

        Returns:
            Whether the envs continue exactly where they were.
        """
        exact = self.envs.load_state_dict(state)
        self.episode_start = np.ones(self.envs.n_envs, np.bool_)
        if exact:
            self.episode_start[:] = state["episode_start"]
        self._forget()
        return exact


class Replay:
    """N running envs, a replay buffer and the schedule of updates, for any kind of buffer.

    Args:
        collector: steps the envs and counts their episodes.
        buffer: the buffer to draw from.
        capacity: requested capacity of the buffer.
        updates: the replay ratio, in gradient steps.
        clock: the run's clock.
        config: the algorithm's config, with ``batch_size``, ``learning_starts``,
            ``steps_per_iteration``, ``save_replay_buffer`` and ``device``.

    Raises:
        ConfigError: the buffer is to be saved and cannot be, or the device does not exist.
    """

    def __init__(
        self,
        collector: Any,
        buffer: Any,
        capacity: int,
        updates: UpdatesDue,
        clock: Progress,
        config: Any,
    ) -> None:
        self.device = find_device(config.device)
        self._tensor: Callable[[npt.NDArray[Any]], Tensor] = torch.from_numpy
        if self.device.type != "cpu":
            self._tensor = lambda array: torch.from_numpy(array).to(self.device)
        self.config, self.updates = config, updates
        self.collector, self.env, self.buffer = collector, collector.env, buffer
        self.n_envs = self.env.n_envs
        self.prioritized = isinstance(buffer, PrioritizedBuffer)
        if config.save_replay_buffer and not isinstance(buffer, StatefulBuffer):
            raise ConfigError(
                f"save_replay_buffer needs a buffer with state and set_state, "
                f"{type(buffer).__name__} lacks one of them; turn it off"
            )
        self._saved = SavedBuffer(buffer) if config.save_replay_buffer else None
        own = getattr(buffer, "capacity", None)  # an object's attribute may have any type
        self._made_with = {
            "buffer": type(buffer).__name__,
            "buffer_size": own if isinstance(own, int) else capacity,
            "n_envs": self.n_envs,
        }
        """Options that a saved buffer must match, by name."""
        self._clock = clock
        self._stored = 0

    @property
    def vector_steps_left(self) -> int:
        """Vector steps left in the iteration; fewer than all if the last one was interrupted."""
        return self._clock.vector_steps_left(self.n_envs, self.config.steps_per_iteration)

    @contextmanager
    def iteration(self) -> Iterator[None]:
        """Run the steps and updates of one iteration, without denormals.

        Episodes are counted at the end of the block, even if it raises, because they continue.
        """
        with flush_denormals():
            try:
                yield
            finally:
                self.collector.count_episodes()

    def can_draw(self) -> bool:
        """Return whether the buffer has enough for a batch."""
        return len(self.buffer) > 0

    def count_step(self, stored: int, hooks: Hooks) -> None:
        """Count the rows that a vector step stored, and the updates that become due.

        A callback that ends the training sets ``hooks.stopped`` and raises nothing here, so that
        due updates are taken first.
        """
        self._stored += stored
        if self._stored >= self.config.learning_starts and self.can_draw():
            self.updates.count(self._clock.env_steps, self.n_envs)
        try:  # noqa: SIM105  # suppress takes as long as all of the hooks
            hooks.env_step(self.n_envs)
        except StopTraining:
            pass

    def updates_due(self, hooks: Hooks, schedules: Schedules) -> Iterator[int]:
        """Yield for every due update.

        Args:
            hooks: called when learning begins and ends.
            schedules: schedules with ``priority_beta``, for a buffer with priorities.
        """
        if not self.updates.pending:
            return
        hooks.enter("learn")
        if self.prioritized:
            now = (self._clock.env_steps, self._clock.target_env_steps)
            self.buffer.set_beta(schedules.value("priority_beta", *now))
        yield from self.updates.take()
        hooks.enter("collect")

    def state_dict(self) -> dict[str, Any]:
        """Return the collector and, if it is to be saved, the buffer."""
        state: dict[str, Any] = {"collector": self.collector.state_dict(), "buffer": None}
        if self._saved is not None:
            state["buffer"] = self._saved.state()
            state["stored"], state["due"] = self._stored, self.updates.pending
            state["made_with"] = self._made_with
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Restore the collector and the buffer.

        Without a saved buffer, or if this one is not to be saved, learning continues once the
        policy has collected ``learning_starts`` new rows. With one, running episodes are cut
        where the envs begin new ones.

        Returns:
            Whether the envs continue exactly where they were.

        Raises:
            CheckpointError: the saved buffer cannot be restored into this one.
        """
        exact: bool = self.collector.load_state_dict(state["collector"])
        if state["buffer"] is None or self._saved is None:
            return exact
        stored = dict(state["buffer"])
        try:
            self.buffer.set_state(stored if exact else cut_episodes(stored, self.n_envs))
        except (LookupError, TypeError, ValueError) as error:
            raise self._misfit(state["made_with"], error) from error
        self._stored, self.updates.pending = int(state["stored"]), int(state["due"])
        return exact

    def _misfit(self, saved: Mapping[str, Any], error: Exception) -> CheckpointError:
        """Return the error for a saved buffer, naming the options that differ, if any."""
        given = self._made_with.items()
        others = [f"{k}={saved[k]}, got {v}" for k, v in given if saved[k] != v]
        reason = f"was saved with {'; '.join(others)}" if others else f"cannot be restored: {error}"
        return CheckpointError(
            f"its replay buffer {reason}; give the same options, or "
            "save_replay_buffer=False to fill a new buffer"
        )


class ReplayCollector(ReplaySteps):
    """Steps N envs and pushes every transition, with its true final observation.

    Args:
        envs: the running envs.
        buffer: destination of the transitions.
        observations: codec of the observations; ``None`` derives it from the envs' space.
        clip_rewards: bound of the absolute stored rewards; statistics use the env's.
    """

    def __init__(
        self,
        envs: RunningEnvs,
        buffer: ReplayBuffer | ReplayBufferProtocol,
        observations: ReplayObservations | None = None,
        clip_rewards: float | None = None,
    ) -> None:
        super().__init__(envs)
        self.observations = observations or ReplayObservations(self.env.observation_space)
        self._push = pusher(buffer)
        self._cut = getattr(buffer, "truncate_episodes", None)
        self._clip_rewards = clip_rewards

    @property
    def obs(self) -> Any:
        """A copy of the current (N, *shape) observations; for a nested space a dict of copies."""
        return self.observations.copy(self.envs.obs)

    def step(self, obs: Any, actions: Any, env_actions: Any) -> int:
        """Step every env once.

        If an env was lost, the vector step is not stored, because a buffer takes the steps of all
        envs in turn; a buffer with ``truncate_episodes`` then cuts the stored episodes. The same
        happens if the step fails, after which all envs begin new episodes.

        Args:
            obs: (N, *shape) from :attr:`obs`.
            actions: (N, ...) in stored form.
            env_actions: (N, ...) in the env's own form.

        Returns:
            The number of stored transitions: N, or 0.

        Raises:
            SpaceError: the env masks actions.
            EnvError: see :meth:`step_envs`.
        """
        try:
            step = self.step_envs(env_actions)
            rewards, lost = step["rewards"], step.get("lost")
            bound, pack = self._clip_rewards, self.observations.pack
            if stores := lost is None or not np.count_nonzero(lost):
                learnt = rewards if bound is None else np.clip(rewards, -bound, bound)
                ends = step["terminated"], step["truncated"]
                self._push(pack(obs), actions, learnt, *ends, pack(step["final_obs"]))
            elif self._cut is not None:
                self._cut()
        except BaseException:
            self.begin_again()
            if self._cut is not None:
                self._cut()
            raise
        return self.envs.n_envs if stores else 0


Choose = Callable[[Any], npt.NDArray[Any]]
"""Maps (N, *shape) observations, for a nested space a dict of them by leaf name, to (N,) or
(N, act_dim) actions in the buffer's form."""


class ReplayLoop(Replay):
    """A replay of transitions, for off-policy algorithms.

    An algorithm calls :meth:`step`, takes the updates from :meth:`updates_due`, and learns from the
    batches of :meth:`draw`. Until ``learning_starts`` env steps, actions are uniform and no updates
    become due.

    Args:
        envs: the running envs.
        buffer: result of :func:`rlox.replay.buffers.make_buffer`.
        options: requirements that the buffer was made for.
        streams: the run's random streams.
        clock: the run's clock.
        config: the algorithm's config, a :class:`rlox.config.frames.ReplayConfig`.

    Raises:
        ConfigError: see :class:`Replay`.
        SpaceError: the env's actions are neither ``Discrete`` nor a bounded ``Box``, or its
            observations have no fixed shape.
    """

    def __init__(
        self,
        envs: RunningEnvs,
        buffer: Any,
        options: BufferOptions,
        streams: SeedStreams,
        clock: Progress,
        config: Any,
    ) -> None:
        self.actions: DiscreteActions | BoxActions = make_actions(envs.env.action_space)
        self.observations = ReplayObservations(envs.env.observation_space)
        collector = ReplayCollector(envs, buffer, self.observations, config.clip_rewards)
        updates = UpdatesDue(config.gradient_steps, config.train_freq)
        super().__init__(collector, buffer, options.capacity, updates, clock, config)
        self._options, self._streams = options, streams
        self._sample: Sample | None = None

    def step(
        self, choose: Choose, hooks: Hooks, learner: ChosenReplayLearner | None = None
    ) -> None:
        """Step every env once and store the transitions; see :meth:`count_step`.

        Args:
            choose: chooses the actions once learning has started, without gradients.
            hooks: called after the vector step.
            learner: learner that acts within ``choose``, may take arrays; ``None``: tensors.
        """
        obs = self.collector.obs
        if self._clock.env_steps < self.config.learning_starts:
            actions = self.actions.random(self._streams.numpy("warm-up"), self.n_envs)
        else:
            tensor = self._tensor_for(learner)
            seen = obs if tensor is None else map_leaves(tensor, obs)
            actions = self.actions.bounded(choose(seen))
        stored = self.collector.step(obs, actions, self.actions.to_env(actions))
        self.count_step(stored, hooks)

    def draw(self, learner: ChosenReplayLearner | None = None) -> TransitionBatch:
        """Return a batch from the buffer.

        Args:
            learner: learner that the batch is for, may take arrays; ``None``: tensors.
        """
        size = self.config.batch_size
        if self._sample is None:
            drawn, self._sample = first_batch(self.buffer, size, self._options, self._streams)
        else:
            drawn = self._sample(size)
        discounts, weights = drawn.get("discounts"), drawn.get("weights")
        if discounts is None:
            discounts = np.multiply(~drawn["terminated"], self._options.gamma, dtype=np.float32)
        fields: dict[str, Any] = {
            "obs": self.observations.unpack(drawn["obs"]),
            "actions": drawn["actions"],
            "rewards": drawn["rewards"],
            "next_obs": self.observations.unpack(drawn["next_obs"]),
            "discounts": discounts,
            "weights": ALL_ALIKE.copy() if weights is None else weights,
        }
        if (tensor := self._tensor_for(learner)) is not None:
            fields = {name: map_leaves(tensor, field) for name, field in fields.items()}
        return TransitionBatch(**fields, indices=drawn.get("indices"))

    def _tensor_for(
        self, learner: ChosenReplayLearner | None
    ) -> Callable[[npt.NDArray[Any]], Tensor] | None:
        """Return a function from arrays to tensors; ``None`` for a learner that takes arrays."""
        return None if learner is not None and learner.takes_arrays else self._tensor

    def give_back(self, batch: TransitionBatch, learnt: StepResult) -> None:
        """Give the transitions of a batch new priorities, if the buffer has any.

        Args:
            batch: batch from :meth:`draw`.
            learnt: result of its step; the absolute ``errors`` are averaged over critics.

        Source:
            Schaul et al. 2016, section 3.3: abs(δ) + ε, with ε = 1e-6.
        """
        errors = learnt.errors
        if self.prioritized and batch.indices is not None and errors is not None:
            sizes = torch.as_tensor(errors).detach().abs().reshape(-1, errors.shape[-1]).mean(0)
            self.buffer.update_priorities(batch.indices, (sizes + 1e-6).cpu().numpy())

    def predict(self, choose: Choose, obs: npt.ArrayLike) -> Any:
        """Return an action, or a batch of actions; see :func:`rlox.networks.act`.

        Args:
            choose: maps observations to actions in the buffer's form.
            obs: one observation or a batch (B, *shape).
        """
        spaces = self.env.observation_space, self.env.action_space
        with torch_threads(self.config.torch_threads):
            return act(
                lambda rows: torch.from_numpy(self.actions.to_rows(choose(rows))),
                *spaces,
                obs,
                device=self.device,
            )

    def policy_data(self, algorithm: str, *parts: Any) -> PolicyData:
        """Return a policy as data; see :class:`rlox.deployment.Exportable`.

        Args:
            algorithm: registered name of the algorithm that trained it.
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
