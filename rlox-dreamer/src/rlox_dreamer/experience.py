"""Experience: stepping envs into a buffer of sequences, and drawing batches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Box
from rlox.algorithm import Algorithm
from rlox.config.composition import selection
from rlox.deployment import PolicyData
from rlox.envs.preprocessing import Preprocessor
from rlox.envs.running import RunningEnvs, require_same_option
from rlox.errors import ConfigError
from rlox.learners.transitions import StepResult
from rlox.nn import torch_threads
from rlox.protocols import SequenceBuffer, VecEnv
from rlox.replay.buffers import SequenceOptions, make_sequence_buffer
from rlox.replay.building import Given
from rlox.replay.loop import Choose, Replay, ReplaySteps, UpdatesDue
from rlox.spaces.data import memory_of
from rlox.spaces.rows import ObservationRows, leaf_spaces, map_leaves
from rlox.training.hooks import Hooks, Progress
from torch import Tensor

from rlox_dreamer.configs import DreamerV3Config
from rlox_dreamer.networks import ActionCodec, Networks
from rlox_dreamer.observations import by_name

Array = npt.NDArray[Any]

OBS = "obs"
"""Prefix of the fields of an observation's leaves."""

FLAGS = ("is_first", "is_last", "is_terminal")
"""Fields that locate a row in its episode."""


@dataclass(frozen=True)
class SequenceBatch:
    """T consecutive rows of B streams, time-major, and their initial states."""

    obs: Any
    """(T, B, *shape) by leaf name, in the networks' form."""
    actions: Tensor
    """(T, B, A), each before its observation."""
    rewards: Tensor
    """(T, B) of these actions."""
    is_first: Tensor
    """(T, B) bool."""
    is_last: Tensor
    """(T, B) bool, also where the next row begins an episode."""
    is_terminal: Tensor
    """(T, B) bool, whether the task ended."""
    context_deter: Tensor
    """(B, D) deterministic state after the previous row."""
    context_stoch: Tensor
    """(B, S) classes of its stochastic state."""
    indices: Array
    """(B, T) indices of the rows."""


class Experience(Replay):
    """N running envs and the streams of their rows.

    Rows hold the env's own observations; they are normalised on the way to the networks. The acting
    function maps observations (N, *shape) by leaf name and memories (N, M) to new memories: model
    states, with a one-hot stochastic part, and actions.

    Args:
        envs: the running envs.
        buffer: with the fields of :func:`row_fields`.
        actions: codec of the envs' actions.
        preprocessor: normalises observations; ``None`` leaves them unchanged.
        clock: the run's clock.
        config: sizes, replay ratio and rhythm.
    """

    def __init__(
        self,
        envs: RunningEnvs,
        buffer: SequenceBuffer,
        actions: ActionCodec,
        preprocessor: Preprocessor | None,
        clock: Progress,
        config: DreamerV3Config,
    ) -> None:
        collector = ReplaySteps(envs)
        rows = config.batch_size * config.seq_len
        ratio = Fraction(config.train_ratio).limit_denominator(10**6) / rows
        updates = UpdatesDue(ratio.numerator, ratio.denominator)
        super().__init__(collector, buffer, config.buffer_size, updates, clock, config)
        self.envs, self.actions, self.preprocessor = envs, actions, preprocessor
        self._rows = ObservationRows(self.env.observation_space)
        self._all = np.arange(self.n_envs)
        self._parts = np.cumsum([config.deter_dim, config.stoch_dim * config.stoch_classes])
        self._memory = np.zeros((self.n_envs, self._parts[-1] + actions.size), np.float32)
        self._reward = np.zeros(self.n_envs, np.float32)

    @contextmanager
    def iteration(self) -> Iterator[None]:
        """Run the steps and updates of one iteration; see :meth:`Replay.iteration`."""
        sharing = nullcontext() if self.preprocessor is None else self.preprocessor.sharing()
        with sharing, super().iteration():
            yield

    def see(self, obs: Any) -> Any:
        """Return the networks' inputs for observations (N, *shape) by leaf name."""
        seen = obs if self.preprocessor is None else self.preprocessor.begin(obs)
        return map_leaves(self._tensor, seen)

    def step(self, choose: Choose, hooks: Hooks, learner: Any = None) -> None:
        """Let the policy act once in every env, and store the rows; see :meth:`count_step`.

        Args:
            choose: maps observations and memories to the next memories.
            hooks: called after the vector step.
            learner: unused.

        Raises:
            EnvError: an env returned a number that is not finite.
            SpaceError: the env masks actions.
        """
        obs = self._rows.stored(self.envs.obs)
        if self.preprocessor is not None:
            self.preprocessor.take_in(obs)
        first, nothing = self.collector.episode_start, self.collector.nothing
        # an episode's first row has no predecessor, even after an episode cut by a failed step
        before = np.where(first[:, None], np.float32(0), self._memory)
        reward = np.where(first, np.float32(0), self._reward)
        after = choose((self.see(obs), self._tensor(before)))
        self._push(self._all, obs, before, reward, (first, nothing, nothing), after)
        step = self.collector.step_envs(self.actions.to_env(self._split(after)[2]))
        ended = self.collector.episode_start & ~step.get("lost", nothing)
        if ended.any():
            self._push_ends(np.flatnonzero(ended), step, after)
        self._memory, self._reward = after, step["rewards"].astype(np.float32)
        self.count_step(self.n_envs, hooks)

    def _push_ends(self, envs: Array, step: Mapping[str, Any], after: Array) -> None:
        """Store the rows of final observations; their states are never needed."""
        final = map_leaves(lambda leaf: leaf[envs], self._rows.stored(step["final_obs"]))
        no, yes = np.zeros(len(envs), np.bool_), np.ones(len(envs), np.bool_)
        flags = (no, yes, np.asarray(step["terminated"])[envs])
        rewards, before = np.asarray(step["rewards"])[envs], after[envs]
        self._push(envs, final, before, rewards, flags, np.zeros_like(before))

    def _push(
        self,
        envs: Array,
        obs: Any,
        before: Array,
        reward: Array,
        flags: tuple[Array, ...],
        after: Array,
    ) -> None:
        deter, stoch, _ = self._split(after)
        rows = {
            **{f"{OBS}{name}": leaf for name, leaf in by_name(obs).items()},
            **dict(zip(FLAGS, flags, strict=True)),
            "action": self._split(before)[2],
            "reward": reward,
            "deter": deter,
            "stoch": stoch.reshape(len(envs), -1, self.config.stoch_classes).argmax(-1),
        }
        self.buffer.push(rows, envs)

    def _split(self, memory: Array) -> list[Array]:
        """Split memories into (N, D), (N, S C) and (N, A)."""
        return np.split(memory, self._parts, -1)

    def can_draw(self) -> bool:
        """Return whether the streams are longer than a batch's sequences."""
        return self.has_sequences(self.config.seq_len)

    def has_sequences(self, length: int) -> bool:
        """Return whether sequences of ``length`` rows can be drawn."""
        # a stream has at least one row for each of its env's steps
        return bool(self._stored // self.n_envs > length)

    def draw(self, learner: Any = None) -> SequenceBatch:
        """Return a batch from the buffer."""
        return self.draw_sequences(self.config.batch_size, self.config.seq_len)

    def draw_sequences(self, count: int, length: int, seed: int | None = None) -> SequenceBatch:
        """Return ``count`` sequences of ``length`` rows; with a seed later draws do not change."""
        drawn = self.buffer.sample(count, length, seed)

        def sequence(name: str) -> Array:
            """Return (T, B, ...) from (B, T + 1, ...), without the context."""
            return np.ascontiguousarray(drawn[name][:, 1:].swapaxes(0, 1))

        leaves = {
            name[len(OBS) :]: sequence(name).reshape(-1, *drawn[name].shape[2:])
            for name in drawn
            if name.startswith(OBS)
        }
        obs = self.see(leaves.get("", leaves))
        is_first, is_last, is_terminal = (self._tensor(sequence(name)) for name in FLAGS)
        is_last[:-1] |= is_first[1:]
        deter, stoch = (np.ascontiguousarray(drawn[name][:, 0]) for name in ("deter", "stoch"))
        return SequenceBatch(
            obs=map_leaves(lambda leaf: leaf.unflatten(0, (length, count)), obs),
            actions=self._tensor(sequence("action")),
            rewards=self._tensor(sequence("reward")),
            is_first=is_first,
            is_last=is_last,
            is_terminal=is_terminal,
            context_deter=self._tensor(deter),
            context_stoch=self._tensor(stoch),
            indices=drawn["indices"][:, 1:],
        )

    def give_back(self, batch: SequenceBatch, learnt: StepResult) -> None:
        """Store the model's new states of a batch's rows."""
        if self.config.replay_context and learnt.outputs is not None:
            fields = {name: part.cpu().numpy() for name, part in learnt.outputs.items()}
            self.buffer.update(batch.indices, fields)

    def predict(
        self, choose: Choose, obs: Any, state: npt.ArrayLike | None, episode_start: Any
    ) -> tuple[Any, Array]:
        """Return actions and the next memories; see ``DreamerV3.predict``."""
        batch, single = self._rows.batch(obs)
        count = len(next(iter(by_name(batch).values())))
        memory = memory_of(state, (count, self._memory.shape[1]), episode_start)
        with torch.no_grad(), torch_threads(self.config.torch_threads):
            after = choose((self.see(batch), self._tensor(memory)))
        taken = self.actions.to_env(self._split(after)[2])
        return self.actions.rows.take(taken, 0) if single else taken, after

    def policy_data(self, algorithm: str, networks: Networks) -> PolicyData:
        """Return the policy as data; see :class:`rlox.deployment.Exportable`."""
        return PolicyData(
            algorithm=algorithm,
            observation_space=self.env.observation_space,
            action_space=self.env.action_space,
            network=networks.layer_data(),
            preprocessor=self.preprocessor,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the envs' state, their memories and, with ``save_replay_buffer``, the buffer."""
        return {
            **super().state_dict(),
            "memory": self._memory.copy(),
            "reward": self._reward.copy(),
            "moments": None if self.preprocessor is None else self.preprocessor.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Restore the state; see :meth:`Replay.load_state_dict`."""
        normalizes = self.preprocessor is not None
        require_same_option("normalize_observations", state["moments"] is not None, normalizes)
        if self.preprocessor is not None:
            self.preprocessor.load_state_dict(state["moments"])
        exact = super().load_state_dict(state)
        if exact:
            self._memory[:], self._reward[:] = state["memory"], state["reward"]
        return exact


def make_experience(algorithm: Algorithm, given: Given) -> Experience:
    """Return an algorithm's envs and replay buffer; closing the algorithm frees them.

    Raises:
        ConfigError: the buffer stores no sequences, or an option contradicts the env.
        EnvError: the env cannot be built.
        SpaceError: the action space is not supported.
    """
    cfg, envs = algorithm.config, RunningEnvs.of(algorithm)
    actions = ActionCodec(envs.env.action_space)
    _require_derived(cfg, envs.env, actions)
    asked = SequenceOptions(
        capacity=cfg.buffer_size,
        fields=row_fields(cfg, envs.env, actions),
        declared=("deter", "stoch"),
        n_envs=envs.env.n_envs,
        online_length=cfg.seq_len if cfg.online_queue else None,
        seed=algorithm.streams.seeds("replay", 1)[0],
    )
    own, named = given.own("buffer"), selection(cfg, "buffer")
    buffer = make_sequence_buffer(named.name if own is None else own, asked, named.options)
    preprocessor = _preprocessor(cfg, envs.env)
    return Experience(envs, buffer, actions, preprocessor, algorithm.clock, cfg)


def row_fields(cfg: DreamerV3Config, env: VecEnv, actions: ActionCodec) -> dict[str, Any]:
    """Return shape and dtype of a row's fields."""
    leaves = by_name(ObservationRows(env.observation_space).empty(1))
    return {
        **{f"{OBS}{name}": (leaf.shape[1:], leaf.dtype) for name, leaf in leaves.items()},
        **dict.fromkeys(FLAGS, ((), np.bool_)),
        "action": ((actions.size,), np.float32),
        "reward": ((), np.float32),
        "deter": ((cfg.deter_dim,), np.float32),
        "stoch": ((cfg.stoch_dim,), np.uint8 if cfg.stoch_classes <= 256 else np.int16),
    }


def _preprocessor(cfg: DreamerV3Config, env: VecEnv) -> Preprocessor | None:
    """Return a normaliser of float ``Box`` leaves; ``None`` without any, or if switched off."""
    leaves = leaf_spaces(env.observation_space).values()
    floats = any(isinstance(leaf, Box) and leaf.dtype.kind == "f" for leaf in leaves)
    if not (cfg.normalize_observations and floats):
        return None
    return Preprocessor(env.observation_space, normalize=True, frame_stack=1)


def _require_derived(cfg: DreamerV3Config, env: VecEnv, actions: ActionCodec) -> None:
    leaves = by_name(ObservationRows(env.observation_space).empty(1)).values()
    derived = {"obs_dim": sum(math.prod(leaf.shape) for leaf in leaves), "n_actions": actions.size}
    for name, value in derived.items():
        if getattr(cfg, name) not in (None, value):
            raise ConfigError(
                f"{name} follows from the env and is {value}, got {getattr(cfg, name)}; "
                "leave it out"
            )
