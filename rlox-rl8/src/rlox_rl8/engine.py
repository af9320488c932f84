"""Collecting and learning, shared by the feed-forward and the recurrent algorithm."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Generic, TypeAlias, TypeVar

import torch
from rlox.files import require_memory_for
from rlox.nn import ModuleOptimizer, keep_freed_memory
from rlox.protocols import TensorEnv
from tensordict import TensorDict
from torch import Tensor

from rlox_rl8._specs import Composite, Unbounded
from rlox_rl8.checking import validate
from rlox_rl8.data import (
    AlgorithmHparams,
    AlgorithmState,
    CollectStats,
    MemoryStats,
    StepStats,
)
from rlox_rl8.ends import Ends
from rlox_rl8.losses import write_advantages
from rlox_rl8.memory import bytes_of, memory_stats
from rlox_rl8.minibatches import TERMS, add_gradient, minibatches
from rlox_rl8.perceptrons import FastLane, acting_lane
from rlox_rl8.policies import GenericPolicyBase
from rlox_rl8.schedulers import EntropyScheduler, LRScheduler
from rlox_rl8.statistics import collected, params_of

__all__ = ["Acted", "GenericAlgorithmBase"]

Acted: TypeAlias = TensorDict | dict[str, Tensor]

HparamsT = TypeVar("HparamsT", bound=AlgorithmHparams)
StateT = TypeVar("StateT", bound=AlgorithmState)
PolicyT = TypeVar("PolicyT", bound=GenericPolicyBase)


class GenericAlgorithmBase(ABC, Generic[HparamsT, StateT, PolicyT]):
    """PPO over one storage (T + 1, B) on the env's device, which lives as long as this.

    A subclass supplies what differs between feed-forward and recurrent policies.
    """

    env: TensorEnv
    hparams: HparamsT
    state: StateT
    policy: PolicyT
    optimizer: torch.optim.Optimizer
    flat: ModuleOptimizer
    """What takes the steps of :attr:`optimizer`: gradients clipped, then unscaled."""
    entropy_scheduler: EntropyScheduler
    lr_scheduler: LRScheduler
    grad_scaler: torch.amp.GradScaler
    step_envs: Callable[[TensorEnv, Any], Any]
    loss_and_terms: Callable[..., tuple[Tensor, dict[str, Tensor]]]
    buffer: TensorDict
    """(B, T + 1) views of the storage; row T of ``obs`` is the last observation."""
    buffer_spec: Composite
    """Of one transition of one env."""

    def _allocate(self) -> None:
        keep_freed_memory()
        one = Unbounded(torch.Size([1]), device=self.hparams.device)
        names = ["rewards", "logp", "values", "advantages", "returns"]
        names += ["reversed_discounted_returns"] * self.hparams.normalize_rewards
        self.buffer_spec = Composite(
            obs=self.env.observation_spec,
            actions=self.env.action_spec,
            **{name: one.clone() for name in names},
        )
        if self.env.episodes_end:
            self.buffer_spec.update(Ends.spec(self.policy, self.hparams.device))
        n, steps = self.hparams.num_envs, self.hparams.horizon + 1
        if self.hparams.device_type == "cpu":
            size = n * steps * bytes_of(self.buffer_spec)
            require_memory_for("num_envs", n, size, "take fewer envs or a shorter horizon")
        self._storage: TensorDict = self.buffer_spec.expand(steps, n).zero()
        self.buffer = self._storage.apply(lambda x: x.transpose(0, 1), batch_size=[n, steps])
        self.ends = Ends(self._storage, self._value) if self.env.episodes_end else None
        self.random: Callable[[], AbstractContextManager[None]] = nullcontext
        """Installs the run's random stream; the global one is drawn from unless this is set."""
        self.on_env_step: Callable[[int], None] | None = None
        self._on_train_batch: Callable[[Any], None] | None = None
        self._steps_heard = False
        """Whether what is called after env steps wants to be called between them."""
        self.fast: FastLane | None = None
        """What a backend does in the place of torch."""
        self._lane: FastLane | None = None
        """What acts in the policy's place in the horizon that is collected."""
        self._whole = True
        """Whether the last horizon was collected to its end."""

    @contextmanager
    def reporting(
        self,
        env_step: Callable[[int], None],
        train_batch: Callable[[Any], None],
        steps_heard: bool = True,
    ) -> Iterator[None]:
        """Report steps of envs and of the optimiser to a training's hooks in the block."""
        self.on_env_step, self._on_train_batch = env_step, train_batch
        self._steps_heard = steps_heard
        try:
            yield
        finally:
            self.on_env_step = self._on_train_batch = None
            self._steps_heard = False

    @property
    def horizons_per_env_reset(self) -> int:
        """Calls of :meth:`collect` between resets; negative resets once."""
        return self.hparams.horizons_per_env_reset

    @property
    def params(self) -> dict[str, Any]:
        """Names of classes and hyperparameters, for loggers."""
        return params_of(self)

    @abstractmethod
    def _value(self, final: TensorDict, envs: Tensor) -> Tensor:
        """Return values of the final observations (n, 1) of the envs whose flag in (B) is set."""

    @abstractmethod
    def _before_step(self, t: int) -> None:
        """Prepare step ``t`` of a horizon."""

    @abstractmethod
    def _act(self, t: int, deterministic: bool, *, last: bool = False) -> Acted:
        """Return actions, logp and values at step ``t``; only values at the ``last``.

        There may be no values before the last, if those of all steps are in the storage after it.
        """

    @abstractmethod
    def _samples(self) -> TensorDict:
        """Return what is learnt from, one row per unit of minibatches."""

    @abstractmethod
    def _forward(self, samples: TensorDict) -> TensorDict:
        """Return features and values of samples, with their graph."""

    def memory_stats(self) -> MemoryStats:
        """Return the memory of the device."""
        return memory_stats(self.hparams.device)

    def _resets_now(self) -> bool:
        every, done = self.hparams.horizons_per_env_reset, self.state.horizons
        return not self._whole or (done == 0 if every < 0 else done % every == 0)

    def collect(
        self, *, env_config: dict[str, Any] | None = None, deterministic: bool = False
    ) -> CollectStats:
        """Collect one horizon into :attr:`buffer`, for :meth:`step` to learn from.

        Args:
            env_config: of the env's reset, if one is due.
            deterministic: act with the mode of the policy.

        Raises:
            ValueError: observations or rewards are not finite, or of a wrong shape.
        """
        with self.random(), self.policy.mode(False):
            return self._collect(env_config, deterministic)

    def _collect(self, env_config: dict[str, Any] | None, deterministic: bool) -> CollectStats:
        started = time.perf_counter()
        hparams, store = self.hparams, self._storage
        resets = self._resets_now()
        store["obs"][0] = self.env.reset(config=env_config) if resets else store["obs"][-1]
        if hparams.normalize_rewards:
            carried = store["reversed_discounted_returns"]
            carried[0] = 0.0 if resets else carried[-1]
        self._whole = False
        self.state.buffered = False
        if self.fast is not None and not self._steps_heard and self.fast.steps_envs():
            self.fast.collect(deterministic, resets)
        else:
            with acting_lane(self.fast, not self._steps_heard) as self._lane:
                self._collect_by_steps(deterministic, resets)
        self._whole = True
        stats = self._statistics(resets)
        self.state.horizons += 1
        self.state.buffered = True
        stats["profiling/collect_ms"] = 1e3 * (time.perf_counter() - started)
        return stats

    def begun(self, t: int, resets: bool) -> Tensor:
        """Return the discounted returns (B, 1) that go on at step ``t``."""
        carried: Tensor = self._storage["reversed_discounted_returns"][t]
        return carried if self.ends is None else self.ends.begun(carried, t, resets)

    def _collect_by_steps(self, deterministic: bool, resets: bool) -> None:
        hparams, store = self.hparams, self._storage
        kept = {key: store[key] for key in ("actions", "logp", "values")}
        obs, rewards = store["obs"], store["rewards"]
        carried = store.get("reversed_discounted_returns", None)
        for t in range(hparams.horizon):
            self._before_step(t)
            sampled = self._act(t, deterministic)
            out = self.step_envs(self.env, sampled["actions"])
            for key, entry in kept.items():
                if (found := sampled.get(key, None)) is not None:
                    entry[t] = found
            obs[t + 1] = out["obs"]
            rewards[t] = out["rewards"]
            if hparams.normalize_rewards:
                carried[t + 1] = hparams.gamma * self.begun(t, resets) + out["rewards"]
            if self.ends is not None:
                self.ends.store(t, out)
            if self.on_env_step is not None:
                self.on_env_step(hparams.num_envs)
        store["values"][-1] = self._act(hparams.horizon, deterministic, last=True)["values"]

    def _statistics(self, resets: bool) -> CollectStats:
        """Set the reward scale and return statistics, with one transfer from the device."""
        name = type(self.env).__name__
        try:
            stats, scale = collected(self._storage, self.hparams, resets, name)
        except ValueError:
            self._whole = False
            raise
        self.state.reward_scale = scale
        if self.ends is not None:
            self.ends.count(resets)
        return stats

    def step(self) -> StepStats:
        """Learn from the buffer.

        Raises:
            RuntimeError: nothing was collected since the last step.
        """
        if not self.state.buffered:
            raise RuntimeError(
                f"{type(self).__name__} is not buffered. Call `collect` once prior to `step`."
            )
        with self.random():
            return self._step()

    def _step(self) -> StepStats:
        started = time.perf_counter()
        hparams, store = self.hparams, self._storage
        ends = {} if self.ends is None else self.ends.of_horizon()
        write_advantages(store, hparams, self.state.reward_scale, ends)
        samples = self._samples()
        totals: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), device=hparams.device))
        accumulated = hparams.num_minibatches if hparams.accumulate_grads else 1
        taken = 0
        for i, minibatch in enumerate(minibatches(samples, hparams)):
            terms = add_gradient(self, minibatch, accumulated)
            for key, value in terms.items():
                totals[key] = totals[key] + value
            if terms.get("stopped") is not None:
                break
            if (i + 1) % accumulated == 0:
                scaler = self.grad_scaler if hparams.enable_amp else None
                self.flat.apply(scaler=scaler)
                if scaler is not None:
                    scaler.update()
                taken += 1
                if self._on_train_batch is not None:
                    self._on_train_batch(dict)
        count = taken + ("stopped" in totals)
        stats: Any = {
            "coefficients/entropy": self.entropy_scheduler.coeff,
            "coefficients/vf": hparams.vf_coeff,
        }
        numbers = torch.stack([totals[key] for key in TERMS]).tolist()
        stats |= {key: number / count for key, number in zip(TERMS, numbers, strict=True)}
        if hparams.normalize_rewards and self.ends is None:
            # copies are reset together: if sums went on, scales would change with the next reset
            store["reversed_discounted_returns"][-1] = 0.0
        self.state.buffered = False
        self.state.transitions += hparams.num_envs * hparams.horizon
        self.entropy_scheduler.step(self.state.transitions)
        self.lr_scheduler.step(self.state.transitions)
        stats["profiling/step_ms"] = 1e3 * (time.perf_counter() - started)
        return stats  # type: ignore[no-any-return]

    def validate(self) -> None:
        """Check shapes and values of one reset, one sample and one step, and reset counters.

        Raises:
            ValueError: the env's or the model's output does not fit the specs.
        """
        self._lane = None
        with self.random(), torch.no_grad():
            validate(self, self._storage, self._before_step, self._act)
        self._forget()

    def _forget(self) -> None:
        """Drop what :meth:`validate` left."""
