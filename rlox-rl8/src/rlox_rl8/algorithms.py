"""Feed-forward and recurrent PPO on batched envs, with their configs.

Each iteration collects T steps of B envs and takes E passes of minibatch steps up the gradient of

    L = mean L_π + c_H mean H - c_V mean L_V

from :func:`rlox_rl8.losses.clipped_losses`, with generalised advantage estimates of rewards
divided by the deviation of R_t = γ R_{t-1} + r_t over the horizon (Engstrom et al. 2020, sec. 3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlox_rl8.data import (
    AlgorithmHparams,
    AlgorithmState,
    AmpDtype,
    Device,
    RecurrentAlgorithmHparams,
    RecurrentAlgorithmState,
    ScheduleKind,
)
from rlox_rl8.distributions import Distribution
from rlox_rl8.ends import begin_episodes
from rlox_rl8.engine import ONLY_VALUES, GenericAlgorithmBase, arrays_of, copy_arrays
from rlox_rl8.env import EnvFactory
from rlox_rl8.models import Model, ModelFactory, RecurrentModel, RecurrentModelFactory
from rlox_rl8.policies import Policy, RecurrentPolicy

Schedule = list[tuple[int, float]]

LEARNT = ("actions", "logp", "advantages", "returns")
"""Entries of the buffer that the losses read."""


@dataclass
class Collecting:
    """Arguments for the policy and the envs, the first in order."""

    model: Any = None
    model_cls: Any = None
    model_config: dict[str, Any] | None = None
    distribution_cls: type[Distribution] | None = None
    horizon: int = 32
    horizons_per_env_reset: int = 1
    num_envs: int = 8192


@dataclass
class Sequences:
    """Arguments for the sequences of recurrent policies, the second in order."""

    seq_len: int = 4
    seqs_per_state_reset: int = 8


@dataclass
class Learning:
    """Arguments for the optimiser, the losses and the device, the last in order."""

    optimizer_cls: type[torch.optim.Optimizer] = torch.optim.Adam
    optimizer_config: dict[str, Any] | None = None
    accumulate_grads: bool = False
    enable_amp: bool = False
    lr_schedule: Schedule | None = None
    lr_schedule_kind: ScheduleKind = "step"
    entropy_coeff: float = 0.0
    entropy_coeff_schedule: Schedule | None = None
    entropy_coeff_schedule_kind: ScheduleKind = "step"
    gae_lambda: float = 0.95
    gamma: float = 0.95
    sgd_minibatch_size: int | None = None
    num_sgd_iters: int = 4
    shuffle_minibatches: bool = True
    clip_param: float = 0.2
    vf_clip_param: float = 5.0
    dual_clip_param: float | None = None
    vf_coeff: float = 1.0
    target_kl_div: float | None = None
    max_grad_norm: float = 5.0
    normalize_advantages: bool = True
    normalize_rewards: bool = True
    device: Device = "auto"
    amp_dtype: AmpDtype = "auto"
    compile: bool = False


@dataclass
class AlgorithmConfig(Learning, Collecting):
    """Arguments of :class:`Algorithm`; see ``rl8_ppo``'s options for the hyperparameters."""

    model: Model | None = None
    model_cls: ModelFactory | None = None
    backend: str = "auto"

    def build(self, env_cls: EnvFactory) -> Algorithm:
        """Return a validated algorithm for a class of envs."""
        algorithm = Algorithm(env_cls, config=self)
        algorithm.validate()
        return algorithm


@dataclass
class RecurrentAlgorithmConfig(Learning, Sequences, Collecting):
    """Arguments of :class:`RecurrentAlgorithm`; see ``rl8_recurrent_ppo``'s options."""

    model: RecurrentModel | None = None
    model_cls: RecurrentModelFactory | None = None

    def build(self: Any, env_cls: EnvFactory | None = None) -> RecurrentAlgorithm:
        """Return a validated algorithm for a class of envs; called on the class, with defaults."""
        # called on the class, the first argument is the class of envs
        config, envs = (RecurrentAlgorithmConfig(), self) if env_cls is None else (self, env_cls)
        algorithm = RecurrentAlgorithm(envs, config=config)
        algorithm.validate()
        return algorithm


class Algorithm(GenericAlgorithmBase[AlgorithmHparams, AlgorithmState, Policy]):
    """Feed-forward PPO.

    Args:
        env_cls: a subclass of :class:`rlox_rl8.Env`.
        config: all other arguments; ``None``: the defaults.

    Raises:
        ValueError: a number is out of range.
    """

    def __init__(self, env_cls: EnvFactory, /, config: AlgorithmConfig | None = None) -> None:
        config = config or AlgorithmConfig()
        super().__init__(env_cls, config, AlgorithmState(), AlgorithmHparams, Policy)
        observed = self.buffer.select("obs")
        self._observed = [observed[:, : t + 1] for t in range(self.hparams.horizon + 1)]

    def _value(self, final: TensorDict, envs: Tensor) -> Tensor:
        return self.policy.sample(final, **ONLY_VALUES)["values"]  # type: ignore[no-any-return]

    def _act(self, t: int, **options: Any) -> TensorDict:
        return self.policy.sample(self._observed[t], **options)

    def _samples(self) -> TensorDict:
        past = self.buffer[:, :-1]
        kept = past.select(*LEARNT).reshape(-1)
        kept["views"] = self.policy.model.apply_view_requirements(past, kind="all")
        return kept

    def _forward(self, samples: TensorDict) -> TensorDict:
        return self.policy.sample(samples, kind="all", requires_grad=True, **ONLY_VALUES)


class RecurrentAlgorithm(
    GenericAlgorithmBase[RecurrentAlgorithmHparams, RecurrentAlgorithmState, RecurrentPolicy]
):
    """Recurrent PPO: gradients go back ``seq_len`` steps, to states stored while collecting.

    The arguments are those of :class:`Algorithm`.
    """

    def __init__(
        self, env_cls: EnvFactory, /, config: RecurrentAlgorithmConfig | None = None
    ) -> None:
        state, config = RecurrentAlgorithmState(), config or RecurrentAlgorithmConfig()
        super().__init__(env_cls, config, state, RecurrentAlgorithmHparams, RecurrentPolicy)
        observed, past = self.buffer.select("obs"), self.policy.model.sees_past
        # views need the whole horizon so far
        begins = (0 if past else t for t in range(self.hparams.horizon + 1))
        self._observed = [observed[:, first : t + 1] for t, first in enumerate(begins)]
        # a model may return its own tensors
        self._states = self.policy.model.init_states(self.hparams.num_envs).detach().clone()
        """States (B) between horizons."""
        self._now = self._states
        """States (B) before the next step."""
        sequences = self.hparams.horizon // self.hparams.seq_len
        self._starts: TensorDict = self._states.expand(sequences, len(self._states)).clone()
        """States (sequences of an env, B) at the starts of the buffer's sequences."""

    def _forget(self) -> None:
        self.state.seqs = 0
        self._states.copy_(self.policy.model.init_states(self.hparams.num_envs).detach())

    def _value(self, final: TensorDict, envs: Tensor) -> Tensor:
        # until the next step, the states still belong to the cut episode
        out = self.policy.sample(final, self._now[envs], **ONLY_VALUES)[0]
        return out["values"]  # type: ignore[no-any-return]

    def _begin(self, resets: bool) -> tuple[int, ...]:
        hparams, done = self.hparams, self.state.seqs
        if self.ends is not None and resets:
            self._states.copy_(self.policy.init_states(hparams.num_envs))
        self.state.seqs += len(self._starts)
        every = hparams.seqs_per_state_reset
        return tuple(
            hparams.seq_len * k
            for k in range(len(self._starts))
            if (done + k == 0 if every < 0 else (done + k) % every == 0)
        )

    def _unroll(self, deterministic: bool, resets_at: tuple[int, ...]) -> None:
        self._now = self._states
        super()._unroll(deterministic, resets_at)
        self._states.copy_(self._now)

    def _before_step(self, t: int, resets_at: tuple[int, ...]) -> None:
        hparams = self.hparams
        if self.ends is not None:  # step 0 reads the flags of the previous horizon
            begins = self.ends.ended(t - 1 if t else hparams.horizon - 1)[:, 0]
            self._now = begin_episodes(self.policy, self._now, begins)
        if t in resets_at:
            self._now = self.policy.init_states(hparams.num_envs)
        if t % hparams.seq_len == 0:
            self._starts[t // hparams.seq_len] = self._now

    def _act(self, t: int, **options: Any) -> TensorDict:
        observed = self._observed[t]
        if self.policy.model.sees_past:
            observed = self.policy.latest(observed)
        out, states = self.policy.sample(observed, self._now, **options)
        if t < self.hparams.horizon:
            self._now = states
        return out

    def _samples(self) -> TensorDict:
        hparams = self.hparams
        past = self.buffer[:, :-1].select("obs", *LEARNT)
        if self.policy.model.sees_past:  # windows reach back before the start of a sequence
            past["views"] = self.policy.views(past)
        if self.ends is not None:
            begins = self.ends.ended(slice(0, hparams.horizon)).roll(1, 0).transpose(0, 1)
            past["begins"] = begins.clone()
            past["begins"][:, 0] = False  # the stored states account for these already
        rows = past.reshape(-1, hparams.seq_len)
        # store one state per sequence, and look it up by the sequence's number
        numbers = torch.arange(len(rows), device=hparams.device)[:, None]
        rows["sequence"] = numbers.expand(-1, hparams.seq_len)
        self._flat_starts = self._starts.transpose(0, 1).reshape(-1)
        return rows

    def _forward(self, samples: TensorDict) -> TensorDict:
        states = self._flat_starts[samples["sequence"][:, 0]]
        options: Any = {"requires_grad": True, **ONLY_VALUES}
        if self.ends is None:
            return self.policy.sample(samples, states, **options)[0]
        outs = []
        for t in range(self.hparams.seq_len):
            states = begin_episodes(self.policy, states, samples["begins"][:, t, 0])
            out, states = self.policy.sample(samples[:, t : t + 1], states, **options)
            outs.append(out)
        return torch.stack(outs, 1).flatten(0, 1)

    def state_dict(self) -> dict[str, Any]:
        """Return all state that training changes, including the policy's states."""
        kept = {"states": arrays_of(self._states), "starts": arrays_of(self._starts)}
        return {**super().state_dict(), **kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        copy_arrays(state["states"], self._states)
        copy_arrays(state["starts"], self._starts)
