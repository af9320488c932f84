"""Rollout collection: stepping N envs with a policy, and storing the steps in arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter, methodcaller
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlox.batches.rollout import RolloutBatch, Unroll, estimate_advantages, keep_envs
from rlox.config.composition import Selection
from rlox.envs.gymnasium import Vectorization
from rlox.envs.preprocessing import RewardScaler, make_preprocessor
from rlox.envs.running import RunningEnvs, require_same_normalization
from rlox.errors import EnvError
from rlox.networks.predict import taking_masks
from rlox.nn.devices import acting
from rlox.protocols import OnPolicyActor, RecurrentActor, VecEnvStep
from rlox.spaces.rows import ActionRows, ObservationRows, map_leaves, require_finite

OnStep = Callable[[int], None]


class RolloutCollector:
    """Steps N envs with a policy and returns batches with advantages.

    Episodes continue from one :meth:`collect` to the next. Actions outside the bounds of a ``Box``
    are clipped for the env and stored as sampled. If the env masks actions, the policy gets the
    masks. A policy with a memory keeps it between rollouts, and clears it where episodes end.

    Args:
        env_id: a gymnasium id, a callable, an env, a vector env, or
            :class:`rlox.envs.running.RunningEnvs`, which the caller closes; ``seed``,
            ``backend``, ``vectorization`` and ``env_kwargs`` apply to envs made here.
        n_envs: number of envs N; ``None``: 1, or the number in a vector env.
        seed: fixes the envs' random streams.
        device: device of the batches.
        gamma: discount in [0, 1].
        gae_lambda: trace decay λ in [0, 1].
        backend: env backend for ids; ``"auto"`` takes the fastest that has the id.
        vectorization: for gymnasium envs, ``"sync"`` or ``"async"`` (one process each).
        env_kwargs: arguments of ``gymnasium.make`` or of the env backend.
        normalize_observations: see :class:`rlox.envs.preprocessing.Preprocessor`.
        normalize_rewards: see :class:`rlox.envs.preprocessing.RewardScaler`; advantages come from
            the scaled rewards, statistics and batches keep the env's.
        clip_rewards: bound of the absolute rewards to learn from; ``None``: no bound.
        frame_stack: number of frames, see :class:`rlox.envs.preprocessing.Preprocessor`.
        seq_len: steps of backpropagation through time for a policy with a memory, a divisor of
            every rollout's length; ``None``: the whole rollout.

    Raises:
        ConfigError: there is nothing to normalise.
        EnvError: the env cannot be built.
        SpaceError: a space of the env has no arrays, or its observations cannot be stacked.
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
        backend: str | Selection = "auto",
        vectorization: Vectorization = "sync",
        env_kwargs: Mapping[str, Any] | None = None,
        normalize_observations: bool = False,
        normalize_rewards: bool = False,
        clip_rewards: float | None = None,
        frame_stack: int = 1,
        seq_len: int | None = None,
    ) -> None:
        self._made_envs = not isinstance(env_id, RunningEnvs)
        if isinstance(env_id, RunningEnvs):
            if n_envs not in (None, env_id.n_envs):
                raise EnvError(f"n_envs is {n_envs}, but {env_id.n_envs} envs are running")
            self.envs = env_id
        else:
            self.envs = RunningEnvs.make(
                env_id,
                n_envs,
                seed,
                backend=backend,
                vectorization=vectorization,
                env_kwargs=env_kwargs,
            )
        self.env = self.envs.env
        self.statistics = self.envs.statistics
        self.device = torch.device(device)
        self.gamma = gamma
        self.gae_lambda = gae_lambda
        self.preprocessor, self.observation_space = make_preprocessor(
            self.env.observation_space, normalize_observations, frame_stack
        )
        """The preprocessor, if any, and the space of the policy's input from one env."""
        self.reward_scaler = RewardScaler(self.envs.n_envs, gamma) if normalize_rewards else None
        self.clip_rewards = clip_rewards
        self.seq_len = seq_len
        self._obs_rows = ObservationRows(self.observation_space)
        self._action_rows = ActionRows(self.env.action_space)
        self._memory: EnvMemory | None = None

    def collect(
        self, policy: OnPolicyActor | RecurrentActor, n_steps: int, on_step: OnStep | None = None
    ) -> RolloutBatch:
        """Step every env ``n_steps`` times and estimate advantages; see :meth:`unroll`.

        Returns:
            A batch of newly allocated tensors of T*N rows.
        """
        unroll = self.unroll(policy, n_steps, on_step)
        return estimate_advantages(unroll, policy, self.gamma, self.gae_lambda)

    @acting()
    def unroll(
        self, policy: OnPolicyActor | RecurrentActor, n_steps: int, on_step: OnStep | None = None
    ) -> Unroll:
        """Step every env ``n_steps`` times.

        Args:
            policy: acts on N observations on the collector's device.
            n_steps: steps T per env.
            on_step: called after each vector step with its number of env steps (N).

        Returns:
            The steps, newly allocated; with values if the policy estimates them as it acts. Lost
            envs are left out, see :class:`rlox.protocols.VecEnvStep`.

        Raises:
            ValueError: ``n_steps`` is not positive.
            EnvError: an env returned an observation or a reward that is not finite, or a wrong
                action mask; or all envs were lost.
            SpaceError: the env masks actions and the policy takes no masks.
        """
        if n_steps < 1:
            raise ValueError(f"n_steps must be at least 1, got {n_steps}")
        obs = self.envs.obs if self.envs.started else self._begin()
        arrays = getattr(policy, "takes_arrays", False)
        steps = UnrollWriter(self._obs_rows, n_steps, self.envs.n_envs, self.device, arrays=arrays)
        valued = self._acting_with_values(policy)
        act: Any = getattr(policy, "get_action_and_logprob", None) if valued is None else valued.act
        try:
            for _ in range(n_steps):
                row = steps.observe(obs)
                masks = self.envs.action_masks()
                if masks is None:
                    actions, log_probs = act(row)
                else:
                    act = act if steps.masked else taking_masks(act)
                    actions, log_probs = act(row, steps.mask(masks))
                step = self.envs.step(self._action_rows.to_env(steps.act(actions, log_probs)))
                if self.preprocessor is not None:
                    step = self.preprocessor.step(obs, step)
                final_obs = steps.add(step, self._learnt_rewards(step))
                if isinstance(valued, MemoryActor):
                    valued.end_step(final_obs, step["terminated"], step["truncated"])
                self.envs.obs = obs = step["obs"]
                if on_step is not None:
                    on_step(self.envs.n_envs)
        finally:
            # episodes continue even if a callback ends the rollout
            self.statistics.add(steps.rewards, steps.episode_ended, lost=steps.lost)
        unroll = steps.unroll(obs)
        unroll = unroll if valued is None else valued.complete(unroll)
        kept: npt.NDArray[np.bool_] = ~np.any(steps.lost, axis=0)
        return unroll if kept.all() else keep_envs(unroll, kept)

    def _begin(self) -> Any:
        """Reset all envs and drop their last episodes, which a failed step may have cut."""
        self._memory = None
        if self.reward_scaler is not None:
            self.reward_scaler.forget()
        if self.preprocessor is not None:
            self.envs.obs = self.preprocessor.reset(self.envs.obs)
        return self.envs.obs

    def _learnt_rewards(self, step: VecEnvStep) -> npt.NDArray[np.float64] | None:
        if self.reward_scaler is None:
            bound = self.clip_rewards
            return None if bound is None else np.clip(step["rewards"], -bound, bound)
        ended = step["terminated"] | step["truncated"]
        return self.reward_scaler.scale(step["rewards"], ended, lost=step.get("lost"))

    def _acting_with_values(self, policy: Any) -> MemoryActor | ValueActor | None:
        """Return the actor that estimates values as it acts; ``None`` if the policy does not."""
        if not isinstance(policy, RecurrentActor):
            return ValueActor(policy) if ValueActor.fits(policy) else None
        if self._memory is None:
            self._memory = EnvMemory.blank(self.envs.n_envs, policy.state_size, self.device)
        return MemoryActor(policy, self._memory, self.seq_len)

    def close(self) -> None:
        """Free the resources of the envs that the collector created."""
        if self._made_envs:
            self.envs.close()

    def state_dict(self) -> dict[str, Any]:
        """Return episode and preprocessing statistics, the policy's memory, and the env's state."""
        state = self.envs.state_dict()
        if self.preprocessor is not None:
            state["observations"] = self.preprocessor.state_dict()
        if self.reward_scaler is not None:
            state["rewards"] = self.reward_scaler.state_dict()
        if self._memory is not None:
            state["memory"] = {k: v.cpu().numpy().copy() for k, v in vars(self._memory).items()}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state; an env without one starts new episodes at the next collect.

        Raises:
            CheckpointError: the state was saved with other normalisation options.
        """
        require_same_normalization(state, self.preprocessor, self.reward_scaler)
        exact = self.envs.load_state_dict(state)
        if self.preprocessor is not None:
            self.preprocessor.load_state_dict(state["observations"])
        if self.reward_scaler is not None:
            self.reward_scaler.load_state_dict(state["rewards"], keep_running=exact)
        memory = state.get("memory") if exact else None
        self._memory = None if memory is None else EnvMemory.of(memory, self.device)


class ValueActor:
    """A policy without a memory that returns values with its actions.

    Args:
        policy: has the method ``act_with_value`` of :class:`rlox.protocols.OnPolicyActor`.
    """

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self._values: list[Tensor] = []

    @staticmethod
    def fits(policy: object) -> bool:
        """Return whether a policy has the method, and no subclass overrides those it replaces."""
        places = (vars(policy), *map(vars, type(policy).__mro__))

        def place(name: str) -> int:
            return next((i for i, names in enumerate(places) if name in names), len(places))

        replaced = min(place("get_action_and_logprob"), place("get_value"))
        return place("act_with_value") < len(places) and place("act_with_value") <= replaced

    def act(self, obs: Any, action_masks: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return actions (N, ...) and log-probabilities (N,); arguments as in the policy's method.

        Raises:
            SpaceError: there are masks and the policy takes none.
        """
        act = self._policy.act_with_value
        if action_masks is None:
            actions, log_probs, values = act(obs)
        else:
            actions, log_probs, values = taking_masks(act)(obs, action_masks)
        self._values.append(values)
        return actions, log_probs

    def complete(self, unroll: Unroll) -> Unroll:
        """Return the unroll with all values, including those of next and final observations."""
        next_obs = map_leaves(itemgetter(-1), unroll.obs)
        final_values = np.zeros(unroll.rewards.shape, np.float32)
        if unroll.final_obs is not None:
            final_values[unroll.truncated] = self._policy.get_value(unroll.final_obs).cpu().numpy()
        values = torch.stack([*self._values, self._policy.get_value(next_obs)])
        return replace(unroll, values=values, final_values=final_values)


class UnrollWriter:
    """Records T steps of N envs: for each :meth:`observe`, :meth:`act` and :meth:`add`.

    Args:
        rows: the arrays of the observations.
        n_steps: T.
        n_envs: N.
        device: device of the policy.
        arrays: whether the policy acts on NumPy arrays and returns such, where others do tensors.

    Raises:
        MemoryLimitError: the observations exceed the memory.
    """

    def __init__(
        self,
        rows: ObservationRows,
        n_steps: int,
        n_envs: int,
        device: torch.device,
        *,
        arrays: bool = False,
    ) -> None:
        self._rows, self._arrays = rows, arrays
        self._to_device = methodcaller("to", device)
        rows.require_memory_for(n_steps, n_envs)
        self._obs_arrays = rows.empty(n_steps + 1, n_envs)
        self._obs = map_leaves(torch.from_numpy, self._obs_arrays)
        self._obs_rows = _unbind(self._obs_arrays if arrays else self._obs)
        self._rewards = np.empty((n_steps, n_envs), np.float32)
        self._terminated = np.empty((n_steps, n_envs), np.bool_)
        self._truncated = np.empty((n_steps, n_envs), np.bool_)
        self._actions: list[Any] = []
        self._log_probs: list[Any] = []
        self._masks: list[Tensor] = []
        self._scaled_rewards: list[npt.NDArray[Any]] = []
        self._final_obs: list[Any] = []
        self._taken = 0
        self._lost = np.zeros((n_steps, n_envs), np.bool_)
        self._life_lost = np.zeros((n_steps, n_envs), np.bool_)

    @property
    def rewards(self) -> npt.NDArray[np.float32]:
        """(steps taken, N) rewards."""
        return self._rewards[: self._taken]

    @property
    def episode_ended(self) -> npt.NDArray[np.bool_]:
        """(steps taken, N) whether an episode, not just a life, ended with the step."""
        ended = (self._terminated | self._truncated) & ~self._life_lost
        return ended[: self._taken]

    @property
    def masked(self) -> bool:
        """Whether there have been action masks."""
        return bool(self._masks)

    def observe(self, obs: Any) -> Any:
        """Store the observations of all envs; return them as tensors on the device, or arrays.

        Args:
            obs: (N, *shape) to act on.
        """
        t = self._taken
        row = self._obs_rows[t]
        if isinstance(obs, dict):
            for name, array in self._obs_arrays.items():
                array[t] = obs[name]
        else:
            self._obs_arrays[t] = obs
        return row if self._arrays else map_leaves(self._to_device, row)

    def mask(self, masks: npt.NDArray[np.bool_]) -> Tensor:
        """Store the action masks (N, mask_size) and return them on the device."""
        self._masks.append(self._to_device(torch.from_numpy(np.array(masks, np.bool_))))
        return self._masks[-1]

    def act(self, actions: Any, log_probs: Any) -> npt.NDArray[Any]:
        """Store the policy's output, tensors or arrays, and return its action rows as an array.

        Args:
            actions: (N,) or (N, columns).
            log_probs: (N,)
        """
        self._actions.append(actions)
        self._log_probs.append(log_probs)
        rows: npt.NDArray[Any] = actions if self._arrays else actions.cpu().numpy()
        return rows

    def add(self, step: VecEnvStep, scaled_rewards: npt.NDArray[Any] | None = None) -> Any:
        """Store the envs' step.

        Args:
            step: the step, with observations as the policy sees them.
            scaled_rewards: (N,) to estimate advantages from; ``None``: the rewards.

        Returns:
            The true final observations of the envs whose episode was truncated, as tensors on the
            device; ``None`` if there are none.

        Raises:
            EnvError: an observation that a value is bootstrapped from is not finite.
        """
        t = self._taken
        self._taken += 1
        self._rewards[t] = step["rewards"]
        if scaled_rewards is not None:
            self._scaled_rewards.append(scaled_rewards)
        self._terminated[t] = step["terminated"]
        self._truncated[t] = cut = step["truncated"]
        if "lost" in step:
            self._lost[t] = step["lost"]
        if "life_lost" in step:
            self._life_lost[t] = step["life_lost"]
        if not np.count_nonzero(cut):
            return None
        require_finite(step["final_obs"])
        final_obs = map_leaves(lambda leaf: leaf[cut], step["final_obs"])
        self._final_obs.append(
            map_leaves(lambda a: self._to_device(torch.from_numpy(a)), self._rows.stored(final_obs))
        )
        return self._final_obs[-1]

    @property
    def lost(self) -> npt.NDArray[np.bool_]:
        """(steps taken, N) whether the env was lost in the step."""
        return self._lost[: self._taken]

    def unroll(self, next_obs: Any) -> Unroll:
        """Return all steps.

        Args:
            next_obs: (N, *shape) to act on next.

        Raises:
            EnvError: a reward or an observation is not finite.
        """
        if not np.isfinite(self._rewards).all():
            t, i = np.argwhere(~np.isfinite(self._rewards))[0]
            raise EnvError(
                f"env {i} returned the reward {self._rewards[t, i]}; rewards must be finite"
            )
        self.observe(next_obs)
        require_finite(self._obs_arrays, env_axis=1)
        final_obs = None
        if self._final_obs:
            final_obs = map_leaves(lambda *leaves: torch.cat(leaves), *self._final_obs)
        acted: Any = self._actions, self._log_probs
        if self._arrays:
            actions, log_probs = (torch.from_numpy(np.array(rows)) for rows in acted)
        else:
            actions, log_probs = map(torch.stack, acted)
        return Unroll(
            obs=map_leaves(self._to_device, self._obs),
            actions=actions,
            log_probs=log_probs,
            rewards=self._rewards,
            terminated=self._terminated,
            truncated=self._truncated,
            final_obs=final_obs,
            scaled_rewards=np.array(self._scaled_rewards, np.float32)
            if self._scaled_rewards
            else None,
            action_masks=torch.stack(self._masks) if self._masks else None,
            life_lost=self._life_lost if self._life_lost.any() else None,
        )


def _unbind(obs: Any) -> list[Any]:
    """Return the rows of (T, N, *shape) tensors or arrays."""
    if not isinstance(obs, dict):
        return list(obs)
    leaves = map(list, obs.values())
    return [dict(zip(obs, row, strict=True)) for row in zip(*leaves, strict=True)]


@dataclass
class EnvMemory:
    """A policy's memory of N envs between rollouts."""

    state: Tensor
    """(N, state_size)"""
    starts: Tensor
    """(N,) bool, whether an episode begins with the next observation."""

    @classmethod
    def blank(cls, n_envs: int, state_size: int, device: torch.device) -> EnvMemory:
        """Return the memory of N envs at the start of their first episodes."""
        starts = torch.ones(n_envs, dtype=torch.bool, device=device)
        return cls(torch.zeros(n_envs, state_size, device=device), starts)

    @classmethod
    def of(cls, arrays: Mapping[str, Any], device: torch.device) -> EnvMemory:
        """Return the memory from a checkpoint's arrays, by field."""
        return cls(**{name: torch.tensor(array, device=device) for name, array in arrays.items()})


class MemoryActor:
    """A policy with a memory, which estimates values as it acts.

    Args:
        policy: acts on the rollout's device.
        memory: memory of the envs at present; it is updated in place.
        seq_len: steps between the states that the learner starts from; ``None``: only the first
            state.
    """

    def __init__(
        self, policy: RecurrentActor, memory: EnvMemory, seq_len: int | None = None
    ) -> None:
        self._policy = policy
        self._memory = memory
        self._seq_len = seq_len
        self._initial_states = [memory.state]
        self._starts: list[Tensor] = []
        self._values: list[Tensor] = []
        self._final_values: list[Tensor] = []
        self._waiting: Tensor | None = None

    def act(
        self, obs: Any, action_masks: Tensor | None = None, *, active: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return actions (N, ...) and their log-probabilities (N,).

        Args:
            obs: N observations.
            action_masks: (N, mask_size) bool; ``None`` masks nothing.
            active: (N,) bool, the rows that act; the memory of the others stays unchanged, and an
                episode that begins in such a row begins with the first observation on which the
                row acts. ``None``: all act.
        """
        starts, before = self._memory.starts, self._state_to_act_on()
        done = len(self._starts)
        if done and self._seq_len is not None and done % self._seq_len == 0:
            self._initial_states.append(before)
        self._starts.append(starts)
        distribution, values, after = self._policy.step(obs, before, action_masks)
        self._waiting = None
        if active is not None:
            after = torch.where(active.unsqueeze(-1), after, before)
            self._waiting = starts & ~active
        self._memory.state = after
        self._values.append(values)
        return distribution.sample(getattr(self._policy, "generator", None))

    def end_step(
        self,
        final_obs: Any,
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
        begins: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Estimate values of truncated episodes from their memory; clear the memory of ended ones.

        Args:
            final_obs: (K, *shape) of the truncated episodes.
            terminated: (N,)
            truncated: (N,)
            begins: (N,) whether an episode begins with the next observation; ``None``: where one
                ended.
        """
        device = self._memory.state.device
        if final_obs is not None:
            state = self._memory.state[torch.from_numpy(truncated).to(device)]
            self._final_values.append(self._policy.step(final_obs, state)[1])
        ended = terminated | truncated if begins is None else begins
        starts = torch.from_numpy(ended).to(device)
        self._memory.starts = starts if self._waiting is None else starts | self._waiting

    def complete(self, unroll: Unroll) -> Unroll:
        """Return the unroll with the values and the states that replay the memory."""
        next_obs = map_leaves(itemgetter(-1), unroll.obs)
        next_values = self._policy.step(next_obs, self._state_to_act_on())[1]
        final_values = np.zeros(unroll.rewards.shape, np.float32)
        if self._final_values:
            final_values[unroll.truncated] = torch.cat(self._final_values).cpu().numpy()
        return replace(
            unroll,
            values=torch.stack([*self._values, next_values]),
            final_values=final_values,
            episode_starts=torch.stack(self._starts),
            initial_state=torch.cat(self._initial_states),
        )

    def _state_to_act_on(self) -> Tensor:
        return self._memory.state.masked_fill(self._memory.starts.unsqueeze(-1), 0.0)
