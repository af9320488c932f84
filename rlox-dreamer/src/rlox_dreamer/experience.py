"""Experience: stepping envs into a sequence buffer, and drawing batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import numpy as np
import numpy.typing as npt
from rlox.envs.running import RunningEnvs
from rlox.errors import CheckpointError
from rlox.replay.collector import ReplaySteps
from rlox.replay.loop import UpdatesDue
from rlox.rollouts.collector import require_same_option
from rlox.spaces.rows import ObservationRows, map_leaves
from rlox.training.hooks import Hooks, Progress, StopTraining
from rlox.training.segments import SavedBuffer

from rlox_dreamer.sequences import OBS, Acted, Batches, SequenceBatch

__all__ = ["Experience"]

Array = npt.NDArray[Any]


class Experience:
    """N running envs, the streams of their rows, and the updates that are due.

    Args:
        envs: the running envs.
        batches: of the buffer that their rows are stored in.
        clock: the run's clock.
        updates: the replay ratio.
        batch_size: sequences B of a batch.
        length: rows T of a sequence.
        learning_starts: rows to store before the first update, in env steps.
        steps_per_iteration: env steps of one iteration, rounded up to whole vector steps.
        saves_buffer: whether checkpoints hold the buffer.

    Raises:
        SpaceError: the env masks actions.
    """

    def __init__(
        self,
        envs: RunningEnvs,
        batches: Batches,
        clock: Progress,
        *,
        updates: UpdatesDue,
        batch_size: int,
        length: int,
        learning_starts: int,
        steps_per_iteration: int,
        saves_buffer: bool,
    ) -> None:
        self.envs, self.env = envs, envs.env
        self.batches, self.buffer = batches, batches.buffer
        self.statistics = envs.statistics
        self.updates = updates
        self.steps = ReplaySteps(envs)
        self.steps.require_no_masks()
        self._clock = clock
        self._batch_size, self._length = batch_size, length
        self._learning_starts = learning_starts
        self._steps_per_iteration = steps_per_iteration
        self._saved = SavedBuffer(self.buffer) if saves_buffer else None
        self._rows = ObservationRows(self.env.observation_space)
        self._all = np.arange(self.env.n_envs)
        self._stored = 0
        self._previous: Array | None = None
        self._reward = np.zeros(self.env.n_envs, np.float32)

    @property
    def vector_steps_left(self) -> int:
        """Vector steps to the iteration's end; fewer than all if the last one was interrupted."""
        return self._clock.vector_steps_left(self.env.n_envs, self._steps_per_iteration)

    @contextmanager
    def counted_episodes(self) -> Iterator[None]:
        """Count the episodes of a block's steps at its end, even if it raises."""
        preprocessor = self.batches.preprocessor
        with nullcontext() if preprocessor is None else preprocessor.sharing():
            try:
                yield
            finally:
                self.steps.count_episodes()

    def step(self, act: Callable[[Any, npt.NDArray[np.bool_]], Acted], hooks: Hooks) -> None:
        """Let the policy act once in every env, and store the rows.

        A callback that ends the training sets ``hooks.stopped`` and raises nothing here, so that
        the updates that are due are done first.

        Args:
            act: from observations (N, *shape) by leaf name, and whether they are the first of their
                episodes (N,), to actions and states.
            hooks: called after the vector step.

        Raises:
            EnvError: an env returned a number that is not finite.
        """
        n_envs, steps = self.env.n_envs, self._clock.env_steps
        obs = self._rows.stored(self.envs.obs)
        if self.batches.preprocessor is not None:
            self.batches.preprocessor.take_in(obs)
        first, nothing = self.steps.episode_start, self.steps.nothing
        acted = act(self.batches.see(obs), first)
        # nothing precedes an episode's first row, also where a failed step has cut the one before
        before = acted.actions if self._previous is None else self._previous
        action = np.where(first[:, None], np.float32(0), before)
        reward = np.where(first, np.float32(0), self._reward)
        self._push(obs, action, reward, first, nothing, nothing, acted, self._all)
        step = self.steps.step(acted.env_actions)
        ended = self.steps.episode_start
        if ended.any():
            self._push_ends(step, acted, ended & ~step.get("lost", nothing))
        self._previous, self._reward = acted.actions.copy(), step["rewards"].astype(np.float32)
        self._stored += n_envs
        if self._stored >= self._learning_starts and self.has_sequences(self._length):
            self.updates.count(steps, n_envs)
        with suppress(StopTraining):
            hooks.env_step(n_envs)

    def has_sequences(self, length: int) -> bool:
        """Return whether sequences of ``length`` rows can be drawn."""
        # a stream has a row for each of its env's steps at least
        return self._stored // self.env.n_envs > length

    def _push_ends(self, step: Mapping[str, Any], acted: Acted, ended: Array) -> None:
        """Store the rows of final observations; no row follows that needs their states."""
        envs = np.flatnonzero(ended)
        if not len(envs):
            return
        final = map_leaves(lambda leaf: leaf[envs], self._rows.stored(step["final_obs"]))
        nothing = Acted(
            np.zeros_like(acted.deter[envs]), np.zeros_like(acted.stoch[envs]), acted.actions, None
        )
        rewards = np.asarray(step["rewards"])[envs]
        no, yes = np.zeros(len(envs), np.bool_), np.ones(len(envs), np.bool_)
        terminated = np.asarray(step["terminated"])[envs]
        self._push(final, acted.actions[envs], rewards, no, yes, terminated, nothing, envs)

    def _push(
        self,
        obs: Any,
        action: Array,
        reward: Array,
        first: Array,
        last: Array,
        terminal: Array,
        acted: Acted,
        envs: Array,
    ) -> None:
        leaves = obs if isinstance(obs, dict) else {"": obs}
        rows = {
            **{f"{OBS}{name}": leaf for name, leaf in leaves.items()},
            "action": action,
            "reward": reward,
            "is_first": first,
            "is_last": last,
            "is_terminal": terminal,
            "deter": acted.deter,
            "stoch": acted.stoch,
        }
        self.buffer.push(rows, envs)

    def updates_due(self, hooks: Hooks) -> Iterator[int]:
        """Yield for every update that is due.

        Args:
            hooks: called when learning begins and ends.
        """
        if not self.updates.pending:
            return
        hooks.enter("learn")
        yield from self.updates.take()
        hooks.enter("collect")

    def draw(self) -> SequenceBatch:
        """Return a batch from the buffer."""
        return self.batches.draw(self._batch_size, self._length)

    def state_dict(self) -> dict[str, Any]:
        """Return the envs and their last actions and, if it is to be saved, the buffer."""
        state: dict[str, Any] = {
            "envs": self.steps.state_dict(),
            "previous": self._previous,
            "reward": self._reward.copy(),
            "moments": None,
            "buffer": None,
        }
        if self.batches.preprocessor is not None:
            state["moments"] = self.batches.preprocessor.state_dict()
        if self._saved is not None:
            state["buffer"] = self._saved.state()
            state["stored"], state["due"] = self._stored, self.updates.pending
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the envs and the buffer.

        Without a saved buffer, learning goes on once ``learning_starts`` new rows are stored. Envs
        that cannot go on where they were begin new episodes.

        Raises:
            CheckpointError: the buffer was saved and this one cannot take it over.
        """
        preprocessor, n_envs = self.batches.preprocessor, self.env.n_envs
        require_same_option(
            "normalize_observations", state["moments"] is not None, preprocessor is not None
        )
        if preprocessor is not None:
            preprocessor.load_state_dict(state["moments"])
        self._previous, self._reward = None, np.zeros(n_envs, np.float32)
        # earlier checkpoints have what begins episodes beside the envs
        if self.steps.load_state_dict({**state, **state["envs"]}):
            previous = state["previous"]
            self._previous = None if previous is None else np.array(previous, np.float32)
            self._reward[:] = state["reward"]
        if state["buffer"] is None:
            return
        try:
            self.buffer.set_state(dict(state["buffer"]))
        except ValueError as error:
            raise CheckpointError(f"the replay buffer cannot be restored: {error}") from None
        self._stored, self.updates.pending = int(state["stored"]), int(state["due"])
