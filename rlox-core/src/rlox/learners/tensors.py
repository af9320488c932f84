"""Rollouts of tensor envs: collected into one storage on the env's device, and learnt from there.

An iteration is two programs (:class:`rlox.nn.programs.Program`): T steps of the envs with values
and advantages, and all gradient steps. The host reads one tensor after each. If the env's step
cannot be captured, all but that step are programs instead of the first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  # the field's name for it
from gymnasium import spaces
from torch import Tensor

from rlox.batches.rollout import BEFORE_THE_LAST, RolloutBatch
from rlox.batches.transitions import ROWS, cut_into_sequences
from rlox.envs.gymnasium import STEP_KEYS, require_keys
from rlox.envs.preprocessing import CLIP, EPSILON, Moments, Preprocessor, make_preprocessor
from rlox.envs.running import (
    EpisodeStatistics,
    Running,
    leaves_of,
    require_same_normalization,
)
from rlox.envs.tensors import TensorVecEnv, array_of
from rlox.errors import BackendError, ConfigError, EnvError, SpaceError
from rlox.learners.rollouts import RolloutTask
from rlox.losses import KL_TOLERANCE, Objective, mean_kl
from rlox.nn.devices import acting, learning_mode
from rlox.nn.mlp import Memory
from rlox.nn.programs import Program
from rlox.protocols import RecurrentActor
from rlox.ranks import RANKS
from rlox.spaces.rows import ActionRows, ObservationRows, map_leaves
from rlox.training.hooks import Hooks, StopTraining

LONG = 10_000
"""Iterations worth compiling for: each takes 3 to 8 ms less on an H100, compiling half a minute."""


@dataclass
class Storage:
    """T steps of N envs and what is computed of them, time-major and allocated once."""

    obs: Any
    """(T + 1, N, *shape); the last are to act on next."""
    final_obs: Any
    """(T, N, *shape) that each step led to."""
    actions: Tensor
    log_probs: Tensor
    rewards: Tensor
    scaled_rewards: Tensor
    """(T, N) to estimate advantages from; may be :attr:`rewards` itself."""
    terminated: Tensor
    truncated: Tensor
    values: Tensor
    """(T + 1, N)"""
    final_values: Tensor
    """(T, N) of the observations that each step led to."""
    advantages: Tensor
    returns: Tensor
    report: Tensor
    """Returns (T, N), then lengths (T, N) of the episodes that ended, NaN elsewhere; then whether
    all numbers are finite and all masks allow a choice."""
    action_masks: Tensor | None = None
    episode_starts: Tensor | None = None
    initial_state: Tensor | None = None

    @property
    def n_steps(self) -> int:
        """T."""
        return len(self.rewards)

    def batch(self) -> RolloutBatch:
        """Return views of the steps, which the next rollout overwrites."""
        rows = {name: getattr(self, name) for name in ROWS}
        rows |= {"obs": map_leaves(BEFORE_THE_LAST, self.obs), "values": self.values[:-1]}
        found: dict[str, Any] = {name: map_leaves(_flat, steps) for name, steps in rows.items()}
        sizes: Any = {"n_steps": self.n_steps, "n_envs": self.rewards.shape[1]}
        return RolloutBatch(**found, **sizes, initial_state=self.initial_state)


class Actor:
    """A policy without a memory, which estimates the values of all steps at once."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def act(self, obs: Any, masks: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return actions and log-probabilities (N,), and values (N,) if it estimates them now."""
        acted: tuple[Tensor, Tensor] = self.policy.get_action_and_logprob(obs, *masks)
        return acted

    def begin_step(self, store: Storage, t: int) -> None:
        """Note what precedes step ``t``."""

    def begin(self) -> None:
        """Forget the episodes so far."""

    def end_step(self, store: Storage, t: int) -> None:
        """Note the ends of episodes in step ``t``, which the storage has."""

    def complete(self, store: Storage, next_obs: Any) -> None:
        """Write all values into the storage."""
        _flat(store.values).copy_(self.policy.get_value(map_leaves(_flat, store.obs)))
        _flat(store.final_values).copy_(self.policy.get_value(map_leaves(_flat, store.final_obs)))

    def state(self) -> list[Tensor]:
        """Return the tensors that are kept between rollouts."""
        return []


class RememberingActor(Actor):
    """A policy with a memory, which estimates values as it acts.

    Args:
        policy: see :class:`rlox.protocols.RecurrentActor`.
        n_envs: N.
        device: of the policy.
        seq_len: steps between the states that the learner starts from; ``None``: T.
    """

    def __init__(self, policy: Any, n_envs: int, device: torch.device, seq_len: int | None) -> None:
        super().__init__(policy)
        self.memory = torch.zeros(n_envs, policy.state_size, device=device)
        self.starts = torch.ones(n_envs, dtype=torch.bool, device=device)
        self._seq_len = seq_len

    def begin(self) -> None:
        """Let an episode begin in every env."""
        self.starts.fill_(True)

    def _before(self) -> Tensor:
        return self.memory.masked_fill(self.starts.unsqueeze(1), 0.0)

    def begin_step(self, store: Storage, t: int) -> None:
        """Store where episodes begin, and the memory where a sequence does."""
        assert store.episode_starts is not None
        assert store.initial_state is not None
        part, at = divmod(t, self._seq_len or store.n_steps)
        if at == 0:
            store.initial_state.view(-1, *self.memory.shape)[part].copy_(self._before())
        store.episode_starts[t].copy_(self.starts)

    def act(self, obs: Any, masks: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Act and update the memory; see :class:`Actor`."""
        distribution, values, after = self.policy.step(obs, self._before(), *masks)
        self.memory.copy_(after)
        return (*distribution.sample(getattr(self.policy, "generator", None)), values)

    def judge(self, obs: Any) -> Tensor:
        """Return values (N,) of final observations, which depend on the memory after the step."""
        found: Tensor = self.policy.step(obs, self.memory)[1]
        return found

    def end_step(self, store: Storage, t: int) -> None:
        """Note where episodes end; see :class:`Actor`."""
        torch.logical_or(store.terminated[t], store.truncated[t], out=self.starts)

    def complete(self, store: Storage, next_obs: Any) -> None:
        """Write the last values; see :class:`Actor`."""
        store.values[-1].copy_(self.policy.step(next_obs, self._before())[1])

    def state(self) -> list[Tensor]:
        """Return the memory and where episodes begin."""
        return [self.memory, self.starts]


class TensorMoments:
    """:class:`rlox.envs.preprocessing.Moments` on a device, of all ranks together.

    Args:
        moments: what they begin with, and follow at :meth:`pull`.
        device: of the values.
    """

    def __init__(self, moments: Moments, device: torch.device) -> None:
        self._moments = moments
        self._numbers = [
            torch.zeros(np.shape(x), dtype=torch.float64, device=device)
            for x in (moments.mean, moments.variance, moments.count)
        ]
        self.push()

    def pull(self) -> Moments:
        """Write the numbers into those of the host, and return these."""
        found = [array_of(x) for x in self._numbers]
        self._moments.load_state_dict(dict(zip(("mean", "variance", "count"), found, strict=True)))
        return self._moments

    def push(self) -> None:
        """Take over the numbers of the host."""
        for number, x in zip(self._numbers, self._moments.state_dict().values(), strict=True):
            number.copy_(torch.as_tensor(x, dtype=torch.float64))

    def update(self, values: Tensor) -> None:
        """Update with values (B, *shape)."""
        mean, variance, count = self._numbers
        values = values.double()
        firsts, size = torch.stack((values.mean(0), values.square().mean(0))), len(values)
        for ranks in RANKS:
            ranks.average(firsts, "moments")
            size *= ranks.size
        total, difference = count + size, firsts[0] - mean
        squares = variance * count + (firsts[1] - firsts[0].square()) * size
        squares += difference.square() * (count * size / total)
        mean += difference * size / total
        variance.copy_(squares / total)
        count.copy_(total)

    def scaled(self, values: Tensor, *, centred: bool) -> Tensor:
        """Return values (B, *shape) divided by their deviation and clipped."""
        mean, variance, _ = self._numbers
        centre = mean if centred else 0.0
        return ((values - centre) / (variance + EPSILON).sqrt()).clamp(-CLIP, CLIP)


class TensorCollector(Running):
    """Steps the N envs of a tensor env with a policy, without a copy to the host.

    Args:
        env: the env, which moves to ``device`` if it can.
        device: of the policy.
        seed: fixes the env's draws.
        gamma: discount γ in [0, 1].
        gae_lambda: trace decay λ in [0, 1].
        seq_len: see :class:`rlox.rollouts.collector.RolloutCollector`, also for the others.
        normalize_observations: moments are kept on the device.
        normalize_rewards: the same.
        clip_rewards: bound.

    Raises:
        ConfigError: the env is on another device and cannot move.
        SpaceError: the actions are not those of a ``Discrete``, ``MultiDiscrete``, ``MultiBinary``
            or ``Box``.
    """

    def __init__(
        self,
        env: TensorVecEnv,
        *,
        device: torch.device,
        seed: int,
        gamma: float,
        gae_lambda: float,
        seq_len: int | None,
        normalize_observations: bool = False,
        normalize_rewards: bool = False,
        clip_rewards: float | None = None,
    ) -> None:
        if hasattr(env.tensors, "to"):
            env.tensors = env.tensors.to(device)
        if torch.zeros(0, device=env.tensors.device).device != torch.zeros(0, device=device).device:
            raise ConfigError(
                f"device must be the env's, {env.tensors.device}, got {device}; set device="
                f"'{env.tensors.device}', or give {type(env.tensors).__name__} a method to(device)"
            )
        super().__init__(env, seed, EpisodeStatistics(env.n_envs), leaves_of(env))
        self.device = device
        self._preprocessor, self.observation_space = make_preprocessor(
            env.observation_space, normalize_observations, 1
        )
        moments = {} if self._preprocessor is None else self._preprocessor.moments
        self._moments = {name: TensorMoments(each, device) for name, each in moments.items()}
        self._of_returns = TensorMoments(Moments(), device) if normalize_rewards else None
        self._returns = torch.zeros(env.n_envs, dtype=torch.float64, device=device)
        self.clip_rewards = clip_rewards
        self.storage: Storage | None = None
        self._gamma, self._lambda, self._seq_len = gamma, gae_lambda, seq_len
        self._rows = ObservationRows(self.observation_space)
        self._to_env = _action_converter(env.action_space, device)
        self._choices = ActionRows(env.action_space).choices
        self._masks: tuple[Tensor, ...] = ()
        self.running = torch.zeros(2, env.n_envs, dtype=torch.float64, device=device)
        """Returns and lengths of the running episodes."""
        self.actor = Actor(None)
        """Of the policy that :meth:`bind` has set."""
        self._chosen: tuple[Tensor, ...] = ()
        self._final: Any = None
        self._judged = torch.zeros(0)
        self.compiles: bool | None = None
        """Whether a learner with this choice compiles what it runs; ``None``: not yet decided."""
        self.compile(lambda function: function)

    @property
    def preprocessor(self) -> Preprocessor | None:
        """Normalises observations on the host with the moments so far."""
        for moments in self._moments.values():
            moments.pull()
        return self._preprocessor

    def bind(self, policy: Any, *, captures: bool) -> None:
        """Set the policy that acts, and whether all but the env's steps are programs."""
        generators = (getattr(policy, "generator", None),)
        self._choose = Program(self._act, generators, captures=captures)
        self._judge = Program(self._judge_final, captures=captures)
        self._conclude = Program(self._complete, captures=captures)
        self.actor = Actor(policy)
        if isinstance(policy, RecurrentActor):
            self.actor = RememberingActor(policy, self.n_envs, self.device, self._seq_len)
            for module in self.actor.policy.modules():
                if isinstance(module, Memory):
                    module.by_step = self.device.type == "cuda"  # as graphs need it

    def compile(self, keep: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Replace functions over tensors by what ``keep`` returns for them."""
        self._act_with = keep(lambda actor, obs, masks: actor.act(obs, masks))
        self._step = keep(self.env.tensors.step)
        self._estimate = keep(estimate_advantages)

    def prepare(self, n_steps: int) -> bool:
        """Reset the envs and allocate the storage, if that is due.

        Returns:
            Whether tensors were replaced.
        """
        store = self.storage
        if store is not None and store.n_steps == n_steps and self.started:
            return False
        self._rows.require_memory_for(2 * n_steps, self.n_envs)
        for program in (self._choose, self._judge, self._conclude):
            program.forget()
        self.storage = store = self._allocate(n_steps)
        if store.action_masks is not None:
            self._masks = (torch.empty_like(store.action_masks[0]),)
        self._final = map_leaves(torch.empty_like, self.obs)
        return True

    def _reset(self, seeds: list[int]) -> Any:
        assert self.storage is not None
        obs = self.env.tensors.reset(seeds[0])
        self._require_obs("reset's observations", obs, self.storage.obs)
        first = map_leaves(lambda row: row[0].clone(), self.storage.obs)
        map_leaves(Tensor.copy_, first, self._seen(obs, learns=True))
        self._returns.zero_()
        self.running.zero_()
        self.actor.begin()
        return first

    def _require(self, step: Any, store: Storage) -> None:
        """Check that a step fits into the storage; its numbers are checked after the rollout.

        Raises:
            EnvError: a key is missing, or a tensor has another shape, kind or device.
        """
        require_keys(f"{type(self.env.tensors).__name__}.step", step, STEP_KEYS)
        for key in ("rewards", "terminated", "truncated"):
            self._require_tensor(f"{key} of step", step[key], getattr(store, key))
        for key in ("obs", "final_obs"):
            self._require_obs(f"{key} of step", step[key], getattr(store, key))

    def _require_obs(self, what: str, obs: Any, rows: Any) -> None:
        """Check that observations (N, ...) fit into rows (T, N, ...); see :meth:`_require`."""
        leaves, likes = (x if isinstance(x, dict) else {"": x} for x in (obs, rows))
        if set(leaves) != set(likes):
            raise EnvError(f"{what} must have the leaves {list(likes)}, got {list(leaves)}")
        for leaf, like in likes.items():
            self._require_tensor(f"{what} {leaf}".strip(), leaves[leaf], like)

    def _require_tensor(self, what: str, found: Any, like: Tensor) -> None:
        shape = like.shape[1:]
        if (
            not isinstance(found, Tensor)
            or found.shape != shape
            or found.is_floating_point() > like.is_floating_point()
            or (found.dtype == torch.bool) != (like.dtype == torch.bool)
            or found.device != like.device
        ):
            got = repr(found)
            if isinstance(found, Tensor):
                got = f"{found.dtype} {tuple(found.shape)} on {found.device}"
            raise EnvError(
                f"{type(self.env.tensors).__name__}: {what} must be a tensor of {like.dtype} "
                f"{tuple(shape)} on {like.device}, got {got:.80}"
            )

    def _allocate(self, n_steps: int) -> Storage:
        shape, empty = (n_steps, self.n_envs), partial(torch.zeros, device=self.device)

        def observations(count: int) -> Any:
            blank = self._rows.blank(count, self.n_envs)
            return map_leaves(lambda leaf: torch.from_numpy(leaf).to(self.device), blank)

        rows = ActionRows(self.env.action_space)
        leaf = rows.leaves[0]
        columns = () if isinstance(leaf.space, spaces.Discrete) else (leaf.columns,)
        masked = hasattr(self.env.tensors, "action_masks")
        rewards, memory = empty(shape), dict[str, Any]()
        scales = self._of_returns is not None or self.clip_rewards is not None
        if isinstance(self.actor, RememberingActor):
            parts = n_steps // (self._seq_len or n_steps)
            memory["episode_starts"] = empty(shape, dtype=torch.bool)
            memory["initial_state"] = self.actor.memory.repeat(parts, 1)
        return Storage(
            obs=observations(n_steps + 1),
            final_obs=observations(n_steps),
            actions=empty((*shape, *columns), dtype=torch.int64 if leaf.sizes else torch.float32),
            log_probs=empty(shape),
            rewards=rewards,
            scaled_rewards=empty(shape) if scales else rewards,
            terminated=empty(shape, dtype=torch.bool),
            truncated=empty(shape, dtype=torch.bool),
            values=empty(n_steps + 1, self.n_envs),
            final_values=empty(shape),
            advantages=empty(shape),
            returns=empty(shape),
            report=empty(2 * n_steps * self.n_envs + 1, dtype=torch.float64),
            action_masks=empty((*shape, rows.mask_size), dtype=torch.bool) if masked else None,
            **memory,
        )

    def _seen(self, obs: Any, *, learns: bool = False) -> Any:
        """Return an env's observations (N, ...) normalised, after an update if that is asked."""

        def leaf(name: str, values: Tensor) -> Tensor:
            if name not in self._moments:
                return values
            if learns:
                self._moments[name].update(values)
            return self._moments[name].scaled(values, centred=True)

        if isinstance(obs, dict):
            return {name: leaf(name, values) for name, values in obs.items()}
        return leaf("", obs)

    def _scaled(self, rewards: Tensor, ended: Tensor) -> Tensor:
        """Return the rewards (N,) of a step to estimate advantages from."""
        if self._of_returns is not None:
            self._returns.mul_(self._gamma).add_(rewards)
            self._of_returns.update(self._returns)
            self._returns.masked_fill_(ended, 0.0)
            return self._of_returns.scaled(rewards, centred=False)
        assert self.clip_rewards is not None
        return rewards.clamp(-self.clip_rewards, self.clip_rewards)

    def _act(self) -> None:
        self._chosen = self._act_with(self.actor, self._obs, self._masks)

    def _judge_final(self) -> None:
        assert isinstance(self.actor, RememberingActor)
        self._judged = self.actor.judge(self._final)

    @acting()
    def unroll(self) -> None:
        """Step every env T times into :attr:`storage`; one program of :class:`TensorLearner`."""
        store, tensors, actor = self.storage, self.env.tensors, self.actor
        assert store is not None
        _write(store.obs, 0, self._obs)
        for t in range(store.n_steps):
            if store.action_masks is not None:
                found = tensors.action_masks()
                self._require_tensor("action_masks()", found, store.action_masks)
                self._masks[0].copy_(store.action_masks[t].copy_(found))
            actor.begin_step(store, t)
            self._choose()
            actions, log_probs, *values = self._chosen
            store.log_probs[t].copy_(log_probs)
            if values:
                store.values[t].copy_(values[0])
            actions = store.actions[t].copy_(actions.view_as(store.actions[t]))
            step = self._step(self._to_env(actions))
            self._require(step, store)
            for name in ("rewards", "terminated", "truncated"):
                getattr(store, name)[t].copy_(step[name])
            if store.scaled_rewards is not store.rewards:
                ended = store.terminated[t] | store.truncated[t]
                store.scaled_rewards[t].copy_(self._scaled(store.rewards[t], ended))
            seen = self._seen(step["obs"], learns=True)
            final_obs = _write(store.final_obs, t, self._seen(step["final_obs"]))
            if isinstance(actor, RememberingActor):
                map_leaves(Tensor.copy_, self._final, final_obs)
                self._judge()
                store.final_values[t].copy_(self._judged)
            actor.end_step(store, t)
            map_leaves(Tensor.copy_, self._obs, _write(store.obs, t + 1, seen))
        self._conclude()

    def _complete(self) -> None:
        """Write values, advantages and the report into the storage."""
        store = self.storage
        assert store is not None
        self.actor.complete(store, self._obs)
        self._estimate(store, self._gamma, self._lambda)
        _find_episodes(store, self.running)
        seen = [x.values() if isinstance(x, dict) else (x,) for x in (store.obs, store.final_obs)]
        flags = [each.isfinite().all() for each in (store.rewards, *chain(*seen))]
        if store.action_masks is not None:
            possible = torch.split(store.action_masks, self._choices, -1)
            flags.append(torch.stack([each.any(-1).all() for each in possible]).all())
        store.report[-1].copy_(torch.stack(flags).all())

    def finish(self) -> None:
        """Read what the host needs of a rollout: its episodes.

        Raises:
            EnvError: a reward or an observation is not finite.
        """
        assert self.storage is not None
        report = self.storage.report.cpu().numpy()
        if not report[-1]:
            self._obs = None
            for moments in (*self._moments.values(), *filter(None, [self._of_returns])):
                moments.push()  # which never forget a NaN
            raise EnvError(
                f"{type(self.env.tensors).__name__} must return finite observations and rewards, "
                "and masks that allow a choice, got others; correct the env"
            )
        returns, lengths = report[:-1].reshape(2, -1)
        ended = ~np.isnan(returns)
        self.statistics.finish(returns[ended], lengths[ended])

    def batch(self) -> RolloutBatch:
        """Return the steps as views of the storage."""
        assert self.storage is not None
        batch = self.storage.batch()
        return batch if batch.initial_state is None else cut_into_sequences(batch)

    def close(self) -> None:
        """Free nothing: tensors free themselves."""

    def state_dict(self) -> dict[str, Any]:
        """Return statistics and, if the env has a state, all that its episodes continue with."""
        state = super().state_dict()
        running = (self.running, *self.actor.state())
        if (preprocessor := self.preprocessor) is not None:
            state["observations"] = preprocessor.state_dict()
        if self._of_returns is not None:
            moments = self._of_returns.pull().state_dict()
            state["rewards"] = {"moments": moments, "returns": array_of(self._returns)}
        state["running"] = [array_of(each) for each in running] if state["env"] else None
        return {**state, "compiles": self.compiles}

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Restore the state; an env without one begins new episodes at the next rollout.

        Returns:
            Whether the envs continue exactly where they were.

        Raises:
            CheckpointError: leaves of the observations or actions have another order, or
                normalisation differs, or the env's state is another env's.
        """
        require_same_normalization(state, self._preprocessor, self._of_returns)
        self._obs = None
        exact = super().load_state_dict(state)
        if exact:
            self._obs = map_leaves(lambda x: torch.tensor(x, device=self.device), self._obs)
            kept = (self.running, *self.actor.state())
            for tensor, array in zip(kept, state["running"], strict=True):
                tensor.copy_(torch.tensor(array))
        if self._preprocessor is not None:
            self._preprocessor.load_state_dict(state["observations"])
            for moments in self._moments.values():
                moments.push()
        if self._of_returns is not None:
            self._of_returns.pull().load_state_dict(state["rewards"]["moments"])
            self._of_returns.push()
            if exact:
                self._returns.copy_(torch.as_tensor(state["rewards"]["returns"]))
        self.storage, self.compiles = None, state.get("compiles")
        return exact


def estimate_advantages(store: Storage, gamma: float, gae_lambda: float) -> None:
    """Write advantages and returns; :func:`rlox.batches.rollout.estimate_advantages` on a device.

    Source:
        See there.
    """
    following = torch.where(store.truncated, store.final_values, store.values[1:])
    following = following.masked_fill(store.terminated, 0.0)
    deltas = store.scaled_rewards + gamma * following - store.values[:-1]
    decay = gamma * gae_lambda * (~(store.terminated | store.truncated)).to(deltas.dtype)
    later = torch.zeros_like(deltas[0])
    for t in reversed(range(store.n_steps)):
        later = torch.addcmul(deltas[t], decay[t], later, out=store.advantages[t])
    torch.add(store.advantages, store.values[:-1], out=store.returns)


def _find_episodes(store: Storage, running: Tensor) -> None:
    """Write the ended episodes into the report, and what runs on into ``running`` (2, N)."""
    ended = store.terminated | store.truncated
    gains = torch.stack((store.rewards, torch.ones_like(store.rewards))).double()
    sums = running.unsqueeze(1) + gains.cumsum(1)
    steps = torch.arange(1, store.n_steps + 1, device=ended.device).unsqueeze(1)
    # the last end of an episode until each step, counted from 1; 0: none yet
    last = F.pad((steps * ended).cummax(0).values, (0, 0, 1, 0)).expand(2, -1, -1)
    sums = F.pad(sums, (0, 0, 1, 0))
    before = sums.gather(1, last)
    episodes = (sums[:, 1:] - before[:, :-1]).masked_fill(~ended, torch.nan)
    store.report[:-1].view_as(episodes).copy_(episodes)
    running.copy_(sums[:, -1] - before[:, -1])


class TensorLearner:
    """Learner of rollouts of tensor envs: :func:`rlox.rollouts.minimize_over_epochs` as a program.

    Callbacks hear of vector steps and minibatches after each program, and a stop takes effect then.

    Args:
        task: its collector is a :class:`TensorCollector`.
        fuse: compiles a function over tensors.
        compiles: whether to do so. A task with :attr:`~rlox.learners.rollouts.RolloutTask.progress`
            also does on a GPU if it plans :data:`LONG` iterations at the first rollout; the
            collector's state keeps the choice.

    Raises:
        BackendError: there are added losses.
    """

    releases_gil = False

    def __init__(
        self,
        task: RolloutTask,
        fuse: Callable[[Callable[..., Any]], Callable[..., Any]],
        *,
        compiles: bool = False,
    ) -> None:
        if task.added_losses:
            raise BackendError(
                f"tensor envs take no added losses, got {', '.join(task.added_losses.names)}"
            )
        self._task, self._mode = task, learning_mode([task.policy])
        self._collector: TensorCollector = task.collector
        tensors: Any = self._collector.env.tensors
        self._on_gpu = task.device.type == "cuda"
        captures = self._on_gpu and all(ranks.captures for ranks in RANKS)
        whole = getattr(tensors, "capturable", False)
        of_policy = getattr(task.policy, "generator", None)
        self._collector.bind(task.policy, captures=captures and not whole)
        generators = (of_policy, getattr(tensors, "generator", None))
        self._collect = Program(self._collector.unroll, generators, captures=captures and whole)
        self._learn = Program(self._take_steps, (of_policy, task.generator), captures=captures)
        self._fuse, self._compiles, self._is_compiled = fuse, compiles, False
        self._loss: Callable[..., Any] = loss_of
        self._base_rate, self._rate, self._stopped = torch.zeros(3, device=task.device).unbind()
        self._given: Any = task.objective
        self._objective: Any = task.objective
        self._scheduled: dict[str, Tensor] = {}
        self._optimizer: Any = None
        self._kind: Any = None
        self._report = torch.zeros(0)
        self._batch: RolloutBatch | None = None

    def collect(self, n_steps: int, hooks: Hooks) -> RolloutBatch:
        """Step the envs; see :class:`rlox.learners.rollouts.Learner`.

        Returns:
            Views of the storage, which the next call overwrites.
        """
        if self._choose_functions(n_steps) | self._collector.prepare(n_steps):
            self._collect.forget()
            self._learn.forget()
        self._collect()
        self._collector.finish()
        call_hook(hooks.env_step, [self._collector.n_envs] * n_steps)
        self._batch = self._collector.batch()
        return self._batch

    def _choose_functions(self, n_steps: int) -> bool:
        """Compile functions, or no longer, if that is due; return whether they were replaced."""
        collector, progress, compiles = self._collector, self._task.progress, self._compiles
        if progress is not None:
            if collector.compiles is None:
                planned = progress.target_env_steps - progress.env_steps
                iterations = planned // (n_steps * collector.n_envs)
                collector.compiles = self._on_gpu and iterations >= LONG
                if collector.compiles:
                    logging.getLogger("rlox").info("compiling, for %d iterations", iterations)
            compiles = collector.compiles and self._on_gpu
        if compiles is self._is_compiled:
            return False
        keep = self._fuse if compiles else lambda function: function
        self._is_compiled, self._loss = compiles, keep(loss_of)
        collector.compile(keep)
        return True

    def update(
        self, batch: Any, objective: Objective, learning_rate: float, hooks: Hooks
    ) -> dict[str, float]:
        """Take all gradient steps; see :class:`rlox.learners.rollouts.Learner`.

        Raises:
            ValueError: ``batch`` is not the one that :meth:`collect` returned last.
        """
        if batch is not self._batch:
            raise ValueError(
                "a rollout of tensors is learnt from where it is stored, got another batch; write "
                "into the tensors of the collected one"
            )
        self._follow(objective)
        optimizer = self._task.optimizer.torch_optimizer
        if optimizer is not self._optimizer:  # another one after a state was loaded
            optimizer.param_groups[0].update(lr=self._rate, capturable=self._rate.is_cuda)
            if self._rate.is_cuda:
                state = optimizer.state[self._task.optimizer.parameters]
                state.update({name: x.cuda() for name, x in state.items()})
            if self._task.target_kl is not None:
                optimizer.found_inf = self._stopped  # skips the step where this is 1
            self._optimizer = optimizer
            self._learn.forget()
        self._base_rate.fill_(learning_rate)
        self._rate.fill_(learning_rate)
        with self._mode:
            self._learn()
        rows = self._report.tolist()
        names = [field.name for field in fields(self._kind)]
        counted = [dict(zip(names, terms, strict=True)) for counts, _, *terms in rows if counts]
        stepped = [dict(zip(names, terms, strict=True)) for _, steps, *terms in rows if steps]
        call_hook(hooks.train_batch, [lambda terms=terms: terms for terms in stepped])
        return {name: float(np.mean([each[name] for each in counted])) for name in names}

    def _follow(self, objective: Any) -> None:
        """Let the objective's numbers that a schedule changes be tensors, as graphs keep others."""
        if objective is self._given or not is_dataclass(objective):
            return
        moved = {f.name for f in fields(objective)
                 if getattr(objective, f.name) != getattr(self._given, f.name)}  # fmt: skip
        for name in moved - set(self._scheduled):
            self._scheduled[name] = torch.zeros((), device=self._task.device)
            self._learn.forget()
        for name, number in self._scheduled.items():
            number.fill_(getattr(objective, name))
        self._given = objective
        self._objective = replace(objective, **self._scheduled)  # type: ignore[type-var]

    def _take_steps(self) -> None:
        task, rows = self._task, []
        batch = self._collector.batch()
        units = len(batch.returns) if batch.initial_state is None else batch.n_envs
        self._stopped.zero_()
        for _ in range(task.n_epochs):
            minibatches: Iterable[Any] = (batch,)
            if task.batch_size is not None:
                draw = torch.rand(units, generator=task.generator, device=task.device)
                minibatches = batch.minibatches(task.batch_size, draw.argsort())
            for minibatch in minibatches:
                loss, terms = self._loss(self._objective, task.policy, minibatch)
                counts = 1 - self._stopped
                if task.target_kl is not None:
                    passes = mean_kl(terms, "target_kl") > KL_TOLERANCE * task.target_kl
                    self._stopped.copy_(torch.maximum(self._stopped, passes.float()))
                if task.adaptive_rate is not None:
                    task.adaptive_rate.follow(terms, 1 - self._stopped)
                    self._rate.copy_(self._base_rate * task.adaptive_rate.factor)
                self._kind = type(terms)
                task.optimizer.step(loss, None)
                scalars = (x if isinstance(x, Tensor) else torch.full_like(counts, x)
                           for x in vars(terms).values())  # fmt: skip
                rows.append(torch.stack([counts, 1 - self._stopped, *scalars]))
        self._report = torch.stack(rows)


def loss_of(objective: Objective, policy: Any, minibatch: Any) -> tuple[Tensor, Any]:
    """Return an objective's loss; a function, so that it can be compiled."""
    return objective.loss(policy, minibatch)


def call_hook(hook: Callable[[Any], None], calls: Iterable[Any]) -> None:
    """Call a hook for each of the steps that a program has made.

    Raises:
        StopTraining: a callback has asked to stop, after the last call.
    """
    stop = None
    for each in calls:
        try:
            hook(each)
        except StopTraining as asked:  # noqa: PERF203  # the steps were made
            stop = asked
    if stop is not None:
        raise stop


def _flat(steps: Any) -> Any:
    return None if steps is None else steps.flatten(0, 1)


def _write(rows: Any, t: int, values: Any) -> Any:
    """Copy values (N, ...) into row ``t`` of (T, N, ...) by leaf, and return the row."""
    return map_leaves(lambda leaf, value: leaf[t].copy_(value), rows, values)


def _action_converter(space: Any, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return a function from action rows to the env's actions.

    Raises:
        SpaceError: the space is another.
    """
    shape = space.shape or ()
    if isinstance(space, spaces.Box):
        low, high = (torch.as_tensor(x, device=device) for x in (space.low, space.high))
        whole = space.dtype.kind in "iu"

        def convert(rows: Tensor) -> Tensor:
            numbers = rows.view(-1, *shape)
            return (numbers.round() if whole else numbers).clamp(low, high).to(low.dtype)

        return convert
    if isinstance(space, spaces.MultiBinary):
        return lambda rows: rows.view(-1, *shape).to(torch.int8)  # the dtype of the space
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        start = torch.as_tensor(space.start, device=device)
        return lambda rows: rows.view(-1, *shape) + start
    raise SpaceError(
        f"actions of tensor envs must be Discrete, MultiDiscrete, MultiBinary or Box, got {space}"
    )
