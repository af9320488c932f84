"""Rollout collection: N envs stepped with a policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlox.batches.rollout import RolloutBatch, Unroll, estimate_advantages
from rlox.batches.unrolls import keep_envs
from rlox.config.composition import Selection
from rlox.envs.gymnasium import Vectorization
from rlox.envs.running import RunningEnvs
from rlox.errors import CheckpointError, EnvError
from rlox.networks.predict import taking_masks
from rlox.nn import acting
from rlox.preprocessing import Preprocessor, RewardScaler
from rlox.protocols import MaskingVecEnv, OnPolicyActor, RecurrentActor, VecEnvStep
from rlox.rollouts.writer import EnvMemory, MemoryActor, UnrollWriter
from rlox.spaces.rows import ActionRows, ObservationRows, map_leaves

OnStep = Callable[[int], None]


class RolloutCollector:
    """Steps N envs with a policy and returns batches with advantages.

    Episodes run on from one :meth:`collect` to the next. Actions outside a box's bounds are clipped
    for the env and stored as sampled. If the env masks actions, the policy gets the masks. A
    policy with a memory remembers from one rollout to the next, and forgets where episodes end.

    Args:
        env_id: what to step: a gymnasium id, a callable, an env, a vector env, or
            :class:`rlox.envs.running.RunningEnvs`, which stay their maker's to close; ``seed``,
            ``backend``, ``vectorization`` and ``env_kwargs`` are of envs made here.
        n_envs: number of envs N; ``None``: 1, or as many as a vector env has.
        seed: fixes the envs' random streams.
        device: device of the batches.
        gamma: discount in [0, 1].
        gae_lambda: trace decay λ in [0, 1].
        backend: env backend for ids; ``"auto"`` takes the fastest that has the id.
        vectorization: for gymnasium envs, ``"sync"`` or ``"async"`` (one process each).
        env_kwargs: arguments of ``gymnasium.make`` or of the env backend.
        normalize_observations: see :class:`rlox.preprocessing.Preprocessor`.
        normalize_rewards: see :class:`rlox.preprocessing.RewardScaler`; advantages are estimated
            from the scaled rewards, statistics and batches keep the env's.
        clip_rewards: bound of the sizes of rewards that are learnt from; ``None``: no bound.
        frame_stack: number of frames, see :class:`rlox.preprocessing.Preprocessor`.
        seq_len: steps that gradients of a policy with a memory go back through, a divisor of every
            rollout's; ``None``: all of the rollout's.

    Raises:
        ConfigError: there is nothing to normalise.
        EnvError: the env cannot be built.
        SpaceError: the observations or actions are of a space without arrays, or cannot be stacked.
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
            if n_envs not in (None, env_id.env.n_envs):
                raise EnvError(f"n_envs is {n_envs}, but {env_id.env.n_envs} envs are running")
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
        self.preprocessor: Preprocessor | None = None
        self.observation_space = self.env.observation_space
        """Space of what the policy sees of one env."""
        if normalize_observations or frame_stack > 1:
            self.preprocessor = Preprocessor(
                self.env.observation_space,
                normalize=normalize_observations,
                frame_stack=frame_stack,
            )
            self.observation_space = self.preprocessor.space
        self.reward_scaler = RewardScaler(self.env.n_envs, gamma) if normalize_rewards else None
        self.clip_rewards = clip_rewards
        self.seq_len = seq_len
        self._obs_rows = ObservationRows(self.observation_space)
        self._action_rows = ActionRows(self.env.action_space)
        self._memory: EnvMemory | None = None
        self._masking = self.env if isinstance(self.env, MaskingVecEnv) else None

    def collect(
        self, policy: OnPolicyActor | RecurrentActor, n_steps: int, on_step: OnStep | None = None
    ) -> RolloutBatch:
        """Step every env ``n_steps`` times and estimate advantages; arguments as :meth:`unroll`.

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
            on_step: called after each vector step with the number of env steps it took (N).

        Returns:
            The steps, newly allocated; with values if the policy estimates them as it acts. Envs
            that were lost meanwhile are left out, see :class:`rlox.protocols.VecEnvStep`.

        Raises:
            ValueError: ``n_steps`` is not positive.
            EnvError: an env returned an observation or a reward that is not finite, or a wrong
                action mask; or all envs were lost.
            SpaceError: the env masks actions and the policy takes no masks.
        """
        if n_steps < 1:
            raise ValueError(f"n_steps must be at least 1, got {n_steps}")
        obs = self.envs.obs if self.envs.started else self._begin()
        steps = UnrollWriter(self._obs_rows, n_steps, self.env.n_envs, self.device)
        valued = self._acting_with_values(policy)
        act: Any = getattr(policy, "get_action_and_logprob", None) if valued is None else valued.act
        try:
            for _ in range(n_steps):
                row = steps.observe(obs)
                masks = None if self._masking is None else self._masking.action_masks()
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
                    on_step(self.env.n_envs)
        finally:
            # episodes go on even if a callback ends the rollout
            self.statistics.add(steps.rewards, steps.episode_ended, lost=steps.lost)
        unroll = steps.unroll(obs)
        unroll = unroll if valued is None else valued.complete(unroll)
        kept: npt.NDArray[np.bool_] = ~np.any(steps.lost, axis=0)
        return unroll if kept.all() else keep_envs(unroll, kept)

    def _begin(self) -> Any:
        """Reset all envs and forget their last episodes, which a failed step may have cut."""
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
        """Return what estimates values as it acts; ``None`` if the policy does not."""
        if not isinstance(policy, RecurrentActor):
            return ValueActor(policy) if ValueActor.fits(policy) else None
        if self._memory is None:
            self._memory = EnvMemory.blank(self.env.n_envs, policy.state_size, self.device)
        return MemoryActor(policy, self._memory, self.seq_len)

    def close(self) -> None:
        """Free the resources of the envs that the collector made."""
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
            CheckpointError: the state was saved with another choice of what is normalised.
        """
        normalizes = self.preprocessor is not None and bool(self.preprocessor.moments)
        require_same_option("normalize_observations", bool(state.get("observations")), normalizes)
        require_same_option("normalize_rewards", "rewards" in state, self.reward_scaler is not None)
        exact = self.envs.load_state_dict(state)
        if self.preprocessor is not None:
            self.preprocessor.load_state_dict(state["observations"])
        if self.reward_scaler is not None:
            self.reward_scaler.load_state_dict(state["rewards"], keep_running=exact)
        memory = state.get("memory") if exact else None
        self._memory = None if memory is None else EnvMemory.of(memory, self.device)


def require_same_option(option: str, saved: bool, present: bool) -> None:
    """Check that a checkpoint was saved with an option on if it is on, and off if it is off.

    Raises:
        CheckpointError: it was not.
    """
    if saved != present:
        raise CheckpointError(
            f"it was saved with {option}={saved}, got {option}={present}; leave the option as it "
            "was, or start a new training to change it"
        )


class ValueActor:
    """A policy without a memory, whose values come with its actions.

    Args:
        policy: has the method ``act_with_value`` of :class:`rlox.protocols.OnPolicyActor`.
    """

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self._values: list[Tensor] = []

    @staticmethod
    def fits(policy: object) -> bool:
        """Return whether a policy has the method, and none of those it stands for is newer."""
        places = (vars(policy), *map(vars, type(policy).__mro__))

        def place(name: str) -> int:
            return next((i for i, names in enumerate(places) if name in names), len(places))

        replaced = min(place("get_action_and_logprob"), place("get_value"))
        return place("act_with_value") < len(places) and place("act_with_value") <= replaced

    def act(self, obs: Any, action_masks: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return actions (N, ...) and their log-probabilities (N,); arguments as in the policy's.

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
        """Return the unroll with the values, those of the next and of final observations too."""
        next_obs = map_leaves(lambda leaf: leaf[-1], unroll.obs)
        final_values = np.zeros(unroll.rewards.shape, np.float32)
        if unroll.final_obs is not None:
            final_values[unroll.truncated] = self._policy.get_value(unroll.final_obs).cpu().numpy()
        values = torch.stack([*self._values, self._policy.get_value(next_obs)])
        return replace(unroll, values=values, final_values=final_values)
