"""Collecting and learning, shared by the feed-forward and the recurrent algorithm."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, fields
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from rlox.envs.running import require_same_leaves
from rlox.errors import CheckpointError, ConfigError
from rlox.files import require_memory_for
from rlox.learners.compiled import fused
from rlox.learners.tensors import call_hook
from rlox.nn import (
    ModuleOptimizer,
    find_device,
    keep_freed_memory,
    load_module_state,
    module_state,
)
from rlox.nn.programs import Program
from rlox.training.hooks import Hooks
from tensordict import TensorDict
from torch import Tensor, nn

from rlox_rl8._specs import Composite, Unbounded, require_rows
from rlox_rl8.data import AlgorithmHparams, AlgorithmState, CollectStats, MemoryStats, StepStats
from rlox_rl8.ends import Ends
from rlox_rl8.env import Env
from rlox_rl8.losses import (
    TERMS,
    advantages_and_returns,
    deviation,
    loss_and_terms,
    micro_batch,
)
from rlox_rl8.perceptrons import FastLane
from rlox_rl8.policies import GenericPolicyBase
from rlox_rl8.schedulers import EntropyScheduler, LRScheduler

HparamsT = TypeVar("HparamsT", bound=AlgorithmHparams)
StateT = TypeVar("StateT", bound=AlgorithmState)
PolicyT = TypeVar("PolicyT", bound=GenericPolicyBase)

MEMBERS = ("num_envs", "device", "observation_spec", "action_spec", "episodes_end", "reset", "step")
"""Members of a :class:`rlox_rl8.env.Env`."""

COLLECTED = [key for key in CollectStats.__annotations__ if key.startswith(("returns", "rewards"))]
"""Statistics of a horizon that its program computes."""

SAMPLED: dict[str, Any] = {"return_logp": True, "return_values": True}
ONLY_VALUES: dict[str, Any] = {"return_actions": False, "return_values": True}

REMEDY = "take fewer envs or a shorter horizon"


def automatic_device() -> str:
    """Return the device of ``device="auto"``."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def step_envs(env: Env, actions: Any) -> Any:
    """Step envs; the method is looked up on the object, because it may be replaced."""
    return env.step(actions)


class GenericAlgorithmBase(ABC, Generic[HparamsT, StateT, PolicyT]):
    """PPO over one storage (T + 1, B) on the env's device, allocated once.

    A horizon and all gradient steps are two programs (:class:`rlox.nn.programs.Program`); the host
    reads one tensor after each. Callbacks hear of the steps of a captured program after it.
    Subclasses supply the differences between feed-forward and recurrent policies.
    """

    env: Env
    hparams: HparamsT
    state: StateT
    policy: PolicyT
    buffer: TensorDict
    """(B, T + 1) views of the storage; row T of ``obs`` is the last observation."""
    buffer_spec: Composite
    """Spec of one transition of one env."""

    def __init__(
        self, env_cls: Any, config: Any, state: StateT, hparams_cls: Any, policy_cls: Any
    ) -> None:
        self.state = state
        given = {field.name: getattr(config, field.name) for field in fields(hparams_cls)}
        for name in ("num_envs", "horizon"):
            bound = getattr(env_cls, f"max_{name}", None)
            given[name] = given[name] if bound is None else min(given[name], bound)
        device = find_device(automatic_device() if config.device == "auto" else config.device)
        given["device"] = device
        if config.sgd_minibatch_size is None:
            steps = max(given["horizon"] // max(given.get("seq_len", 1), 1), 1)
            given["sgd_minibatch_size"] = given["num_envs"] * steps
        self.hparams = hparams = hparams_cls(**given)
        hparams.validate()
        n, horizon = hparams.num_envs, hparams.horizon
        numbers = n * (horizon + 1) * (5 + hparams.normalize_rewards)  # least for any env
        require_memory_for("num_envs", n, 4 * numbers, REMEDY)
        self.env = env = env_cls(n, horizon, device=device)
        _require_members(env)
        parts = ("model", "model_cls", "model_config", "distribution_cls")
        given = {name: getattr(config, name) for name in parts}
        self.policy = policy_cls(env.observation_spec, env.action_spec, **given, device=device)
        options = {"lr": 1e-3} if config.optimizer_config is None else config.optimizer_config
        make_optimizer = partial(config.optimizer_cls, **options)
        self.flat = ModuleOptimizer(
            self.policy.model, make_optimizer, max_grad_norm=hparams.max_grad_norm
        )
        """Takes the optimiser's steps: gradients clipped, then unscaled."""
        self.optimizer = self.flat.torch_optimizer
        self.lr_scheduler = LRScheduler(
            self.optimizer, schedule=config.lr_schedule, kind=config.lr_schedule_kind
        )
        self.entropy_scheduler = EntropyScheduler(
            config.entropy_coeff,
            schedule=config.entropy_coeff_schedule,
            kind=config.entropy_coeff_schedule_kind,
        )
        # bfloat16 has the range of float32
        scaled = hparams.enable_amp and hparams.half is torch.float16
        self.grad_scaler = torch.amp.GradScaler(device.type, enabled=scaled)
        self.loss_and_terms: Callable[..., tuple[Tensor, dict[str, Tensor]]] = loss_and_terms
        self.step_envs: Callable[[Env, Any], Any] = step_envs
        if hparams.compile:
            self.step_envs = fused(step_envs, device)
            # torch compiles no LSTM, and the parts around it are slower than plain code
            remembers = any(isinstance(part, nn.RNNBase) for part in self.policy.model.modules())
            if not (remembers and device.type == "cuda"):
                self.loss_and_terms = fused(loss_and_terms, device)
        self.random: Callable[[], AbstractContextManager[None]] = nullcontext
        """Installs the run's random stream; by default draws come from the global one."""
        self.hooks: Hooks | None = None
        """Hooks of the running iteration."""
        self._whole = True
        """Whether the last horizon is complete."""
        self._allocate()
        self.fast = FastLane.of(self, getattr(config, "backend", "torch"))
        """Gradients that a backend computes instead of torch."""

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
            parts = self.buffer_spec.values(True, True)
            size = n * steps * sum(part.shape.numel() * part.dtype.itemsize for part in parts)
            require_memory_for("num_envs", n, size, REMEDY)
        self._storage: TensorDict = self.buffer_spec.expand(steps, n).zero()
        self.buffer = self._storage.apply(lambda x: x.transpose(0, 1), batch_size=[n, steps])
        self.ends = Ends(self._storage, self._value) if self.env.episodes_end else None
        empty = partial(torch.zeros, device=self.hparams.device)
        self._stats, self._terms = empty(len(COLLECTED) + 2), empty(len(TERMS))
        self._scale, self._coeff = empty(2).unbind()
        self._has_entropy = False
        self._taken = 0
        """Optimiser steps of the last :meth:`step`."""
        groups, on_gpu = self.optimizer.param_groups, self.hparams.device_type == "cuda"
        asks = self.grad_scaler.is_enabled() or self.hparams.target_kl_div is not None
        asks |= not getattr(self.policy.model, "capturable", True)
        captures = on_gpu and not asks and "capturable" in groups[0]
        self._learn = Program(self._take_steps, captures=captures)
        if captures:
            for group in groups:
                group["capturable"] = True
        self._rates = [empty(()) for _ in groups]
        self._captures = on_gpu and getattr(self.env, "capturable", False) and self.ends is None
        self._collects: dict[Any, Program] = {}
        """By the arguments of :meth:`_unroll`."""

    @property
    def horizons_per_env_reset(self) -> int:
        """Calls of :meth:`collect` between resets; negative resets once."""
        return self.hparams.horizons_per_env_reset

    @property
    def params(self) -> dict[str, Any]:
        """Names of classes and hyperparameters, for loggers."""
        return {
            "env_cls": type(self.env).__name__,
            "model_cls": type(self.policy.model).__name__,
            "distribution_cls": self.policy.distribution_cls.__name__,
            "optimizer_cls": type(self.optimizer).__name__,
            "entropy_coeff": self.entropy_scheduler.coeff,
            **asdict(self.hparams),
            "device": str(self.hparams.device),
        }

    @abstractmethod
    def _value(self, final: TensorDict, envs: Tensor) -> Tensor:
        """Return values of the final observations (n, 1) of the envs whose flag in (B) is set."""

    def _begin(self, resets: bool) -> tuple[int, ...]:
        """Prepare a horizon, and return the steps at which all states are reset."""
        return ()

    def _before_step(self, t: int, resets_at: tuple[int, ...]) -> None:
        """Prepare step ``t`` of a horizon."""

    @abstractmethod
    def _act(self, t: int, **options: Any) -> TensorDict:
        """Return the policy's outputs at step ``t``, by the options of its ``sample``."""

    @abstractmethod
    def _samples(self) -> TensorDict:
        """Return the samples to learn from, one row per unit of minibatches."""

    @abstractmethod
    def _forward(self, samples: TensorDict) -> TensorDict:
        """Return features and values of samples, with their graph."""

    def memory_stats(self) -> MemoryStats:
        """Return free and total bytes of the device, and the percentage in use."""
        if self.hparams.device_type == "cuda":
            free, total = torch.cuda.mem_get_info(self.hparams.device)
        else:
            page = os.sysconf("SC_PAGE_SIZE")
            free, total = (os.sysconf(name) * page for name in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES"))
        used = 100 * (total - free) / total
        return {"memory/free": free, "memory/total": total, "memory/percent": used}

    def collect(
        self, *, env_config: dict[str, Any] | None = None, deterministic: bool = False
    ) -> CollectStats:
        """Collect one horizon into :attr:`buffer`, for :meth:`step` to learn from.

        Args:
            env_config: passed to the env's reset, if one is due.
            deterministic: act with the mode of the policy.

        Raises:
            ValueError: observations or rewards are not finite, or have a wrong shape.
        """
        started = time.perf_counter()
        hparams, store = self.hparams, self._storage
        every, done = hparams.horizons_per_env_reset, self.state.horizons
        resets = not self._whole or (done == 0 if every < 0 else done % every == 0)
        with self.random(), self.policy.mode(False):
            store["obs"][0] = self.env.reset(config=env_config) if resets else store["obs"][-1]
            if hparams.normalize_rewards:
                carried = store["reversed_discounted_returns"]
                carried[0] = 0.0 if resets else self._begun(carried[-1], hparams.horizon - 1)
            self._whole = self.state.buffered = False
            how = (deterministic, self._begin(resets))
            if how not in self._collects:
                program = Program(partial(self._unroll, *how), captures=self._captures)
                self._collects[how] = program
            self._collects[how]()
        stats = self._statistics(resets)
        self._whole = True
        if self.ends is not None:
            self.ends.count(resets)
        self.state.horizons += 1
        self.state.buffered = True
        stats["profiling/collect_ms"] = 1e3 * (time.perf_counter() - started)
        if self._captures and self.hooks is not None:
            call_hook(self.hooks.env_step, [hparams.num_envs] * hparams.horizon)
        return stats

    def _begun(self, carried: Tensor, t: int) -> Tensor:
        """Return discounted returns (B, 1) after step ``t``, 0 where it ended an episode."""
        return carried if self.ends is None else carried.masked_fill(self.ends.ended(t), 0.0)

    def _unroll(self, deterministic: bool, resets_at: tuple[int, ...]) -> None:
        """Step all envs T times from the first observations in the storage."""
        hparams, store = self.hparams, self._storage
        obs, rewards = store["obs"], store["rewards"]
        carried = store.get("reversed_discounted_returns", None)
        for t in range(hparams.horizon):
            self._before_step(t, resets_at)
            sampled = self._act(t, deterministic=deterministic, **SAMPLED)
            for key in ("actions", "logp", "values"):
                store[key][t] = sampled[key]
            out = self.step_envs(self.env, sampled["actions"])
            obs[t + 1] = out["obs"]
            rewards[t] = out["rewards"]
            if carried is not None:
                begun = self._begun(carried[t], t - 1) if t else carried[0]
                carried[t + 1] = hparams.gamma * begun + out["rewards"]
            if self.ends is not None:
                self.ends.store(t, out)
            if self.hooks is not None and not self._captures:
                self.hooks.env_step(hparams.num_envs)
        store["values"][-1] = self._act(hparams.horizon, **ONLY_VALUES)["values"]
        found = []
        for x in (rewards[:-1].sum(0), rewards[:-1]):
            found += [x.min(), x.max(), x.mean(), deviation(x)]
        found.append(obs.sum().float() if isinstance(obs, Tensor) else found[0])
        found.append(torch.ones_like(found[0]) if carried is None else deviation(carried[1:]))
        self._stats.copy_(torch.stack(found))

    def _statistics(self, resets: bool) -> CollectStats:
        """Set the reward scale and return statistics, with one transfer from the device."""
        *numbers, self.state.reward_scale = self._stats.tolist()
        if any(x - x != 0 for x in numbers):
            raise ValueError(
                f"{type(self.env).__name__}.step must return finite observations and rewards, got "
                "NaN or infinity; correct the env, or lower lr if the policy diverged"
            )
        stats: Any = dict(zip(COLLECTED, numbers, strict=False))
        stats["env/resets"] = self.hparams.num_envs if resets else 0
        stats["env/steps"] = self.hparams.num_envs * self.hparams.horizon
        return stats  # type: ignore[no-any-return]

    def step(self) -> StepStats:
        """Learn from the buffer.

        Raises:
            RuntimeError: nothing was collected since the last step.
        """
        if not self.state.buffered:
            raise RuntimeError(
                f"{type(self).__name__} is not buffered. Call `collect` once prior to `step`."
            )
        started = time.perf_counter()
        hparams, store, coeff = self.hparams, self._storage, self.entropy_scheduler.coeff
        self._scale.fill_(self.state.reward_scale)
        self._coeff.fill_(coeff)
        if self._has_entropy != bool(coeff):
            self._has_entropy = bool(coeff)
            self._learn.forget()
        if self._learn.captures:
            for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
                if group["lr"] is not rate:  # a scheduler writes numbers
                    group["lr"] = rate.fill_(group["lr"])
        with self.random():
            self._learn()
        stats: Any = {"coefficients/entropy": coeff, "coefficients/vf": hparams.vf_coeff}
        stats |= zip(TERMS, self._terms.tolist(), strict=True)
        if hparams.normalize_rewards and self.ends is None:
            # copies are reset together: without this, the scale would change at each reset
            store["reversed_discounted_returns"][-1] = 0.0
        self.state.buffered = False
        self.state.transitions += hparams.num_envs * hparams.horizon
        self.entropy_scheduler.step(self.state.transitions)
        self.lr_scheduler.step(self.state.transitions)
        stats["profiling/step_ms"] = 1e3 * (time.perf_counter() - started)
        if self._learn.captures and self.hooks is not None:
            call_hook(self.hooks.train_batch, [dict] * self._taken)
        return stats  # type: ignore[no-any-return]

    def _take_steps(self) -> None:
        """Estimate advantages and take all gradient steps."""
        hparams, store = self.hparams, self._storage
        ends = {} if self.ends is None else self.ends.of_horizon()
        store["advantages"][:-1], store["returns"][:-1] = advantages_and_returns(
            store["rewards"][:-1],
            store["values"],
            normalize=hparams.normalize_advantages,
            gamma=hparams.gamma,
            gae_lambda=hparams.gae_lambda,
            reward_scale=self._scale,
            **ends,
        )
        totals: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), device=hparams.device))
        accumulated = hparams.num_minibatches if hparams.accumulate_grads else 1
        self._taken = 0
        for i, minibatch in enumerate(self._minibatches(self._samples())):
            terms = self._add_gradient(minibatch, accumulated)
            for key, value in terms.items():
                totals[key] = totals[key] + value
            if "stopped" in terms:
                break
            if (i + 1) % accumulated == 0:
                scaler = self.grad_scaler if self.grad_scaler.is_enabled() else None
                self.flat.apply(scaler=scaler)
                if scaler is not None:
                    scaler.update()
                self._taken += 1
                if self.hooks is not None and not self._learn.captures:
                    self.hooks.train_batch(dict)
        count = self._taken + ("stopped" in totals)
        self._terms.copy_(torch.stack([totals[key] for key in TERMS]) / count)

    def _minibatches(self, samples: TensorDict) -> Iterator[TensorDict]:
        """Yield the minibatches of all passes; a single one is neither copied nor shuffled."""
        hparams = self.hparams
        for _ in range(hparams.num_sgd_iters):
            if hparams.num_minibatches == 1:  # its order has no effect
                yield samples
                continue
            order = torch.arange(len(samples), device=hparams.device)
            if hparams.shuffle_minibatches:
                # a graph cannot replay randperm
                order = torch.rand(len(samples), device=hparams.device).argsort()
            yield from (samples[rows] for rows in torch.split(order, hparams.sgd_minibatch_size))

    def _add_gradient(self, minibatch: TensorDict, accumulated: int) -> dict[str, Tensor]:
        """Add the gradient of one of the ``accumulated`` minibatches (N, ...) of a gradient step.

        Returns:
            Means by the names of :data:`TERMS`, and ``stopped`` if the divergence was too high.
        """
        if self.fast is not None and self.fast.learns():
            terms = self.fast.add_gradient(minibatch, 1 / accumulated)
            return {key: value / accumulated for key, value in terms.items()}
        hparams = self.hparams
        coeff = self._coeff if self._has_entropy else None
        rows = size = len(minibatch)
        # whether a gradient is added depends on the divergence of the whole minibatch
        if hparams.target_kl_div is None and hparams.device_type == "cpu":
            per_row = minibatch["logp"].numel() // rows
            size = max(micro_batch(self.policy.model) // per_row, 1)
        totals: dict[str, Tensor] = {}
        for part in minibatch.split(size) if size < rows else (minibatch,):
            weight = len(part) / (rows * accumulated)
            with self.policy.mode(True):
                total, terms = self.loss_and_terms(self, part, coeff)
            for key, value in terms.items():
                totals[key] = totals.get(key, 0) + value * weight
            divergence = terms["monitors/kl_div"]
            if hparams.target_kl_div is not None and divergence > 1.5 * hparams.target_kl_div:
                return {**totals, "stopped": divergence}
            self.flat.backward(self.grad_scaler.scale(total * weight))
        return totals

    def validate(self) -> None:
        """Check shapes and values of one reset, one sample and one step, and reset counters.

        Raises:
            ValueError: the env's or the model's output does not fit the specs.
        """
        with self.random(), torch.no_grad():
            self._validate()
        self._forget()

    def _validate(self) -> None:
        n, device = self.hparams.num_envs, self.hparams.device
        env, specs = self.env, self.buffer_spec
        spec, name = specs["obs"], type(env).__name__
        fits = getattr(env, "fits_specs", False)
        first = spec.expand(n, *spec.shape).zero() if fits else env.reset(config=None)
        require_rows(first, spec, n, f"{name}.reset", device)
        self._storage["obs"][0] = first
        self._before_step(0, ())
        sampled = self._act(0, **SAMPLED)
        for key in ("actions", "logp", "values"):
            called = f"{type(self.policy).__name__}.sample {key}"
            require_rows(sampled[key], specs[key], n, called, device)
        if fits:
            return
        out = env.step(sampled["actions"])
        names = {"obs": "obs", "rewards": "rewards"}
        if env.episodes_end:
            names |= {"terminated": "terminated", "truncated": "truncated", "final_obs": "obs"}
        for key, like in names.items():
            if key not in out.keys():  # noqa: SIM118  # rows come first
                raise ValueError(f"{name}.step must return '{key}', got {list(out.keys())}")
            require_rows(out[key], specs[like], n, f"{name}.step {key}", device)

    def _forget(self) -> None:
        """Drop the traces of :meth:`validate`."""

    @property
    def _leaves(self) -> list[str]:
        """Names of the observations' leaves, in the order of the model's inputs."""
        spec = self.env.observation_spec
        return [str(key) for key in spec.keys()] if hasattr(spec, "keys") else []  # noqa: SIM118

    def state_dict(self) -> dict[str, Any]:
        """Return all state that training changes, as arrays and plain values."""
        env = self.env
        return {
            "model": module_state(self.policy.model),
            "optimizer": self.flat.state_dict(),
            "rates": [float(group["lr"]) for group in self.optimizer.param_groups],
            "entropy_coeff": self.entropy_scheduler.coeff,
            "scaler": dict(self.grad_scaler.state_dict()),
            "counters": asdict(self.state),
            "whole": self._whole,
            "storage": arrays_of(self._storage),
            "started": self.state.horizons > 0,
            "env": env.state_dict() if hasattr(env, "state_dict") else None,
            "env_kind": getattr(env, "state_kind", ""),
            "leaves": self._leaves,
            "episodes": None if self.ends is None else self.ends.statistics.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a :meth:`state_dict`; if it does not fit the env, the env is reset first.

        Raises:
            CheckpointError: the state belongs to another model or env.
        """
        require_same_leaves(state.get("leaves"), self._leaves)
        load_module_state(self.policy.model, state["model"])
        self.flat.load_state_dict(state["optimizer"])
        self._learn.forget()
        self._collects.clear()
        for group, rate in zip(self.optimizer.param_groups, state["rates"], strict=True):
            group["lr"] = rate
        self.entropy_scheduler.coeff = state["entropy_coeff"]
        self.grad_scaler.load_state_dict(dict(state["scaler"]))
        for name, value in state["counters"].items():
            setattr(self.state, name, value)
        copy_arrays(state["storage"], self._storage)
        # some states fit only envs of one kind
        fits = state.get("env_kind", "") == getattr(self.env, "state_kind", "")
        exact = state["env"] is not None and fits and hasattr(self.env, "load_state_dict")
        if exact:
            self.env.load_state_dict(state["env"])  # type: ignore[attr-defined]
        self._whole = bool(state["whole"]) and exact
        if self.ends is not None and self.ends.statistics.fits(state["episodes"]):
            self.ends.statistics.load_state_dict(state["episodes"], keep_running=exact)


def arrays_of(data: TensorDict) -> dict[str, Any]:
    """Return copies of a TensorDict's tensors as arrays, by their path."""
    return {k: v.detach().cpu().numpy().copy() for k, v in data.flatten_keys("/").items()}


def copy_arrays(saved: Mapping[str, Any], into: TensorDict) -> None:
    """Copy the result of :func:`arrays_of` into a TensorDict.

    Raises:
        CheckpointError: an array has another shape.
    """
    for key, value in saved.items():
        target, found = into[tuple(key.split("/"))], torch.from_numpy(np.array(value))
        if found.shape != target.shape:
            raise CheckpointError(
                f"'{key}' has shape {tuple(found.shape)}, expected {tuple(target.shape)}"
            )
        target.copy_(found)


def _require_members(env: Any) -> None:
    """Check that an env is a :class:`rlox_rl8.env.Env` whose specs have dimensions."""
    if lacking := [name for name in MEMBERS if not hasattr(env, name)]:
        raise ConfigError(
            f"{type(env).__name__} lacks {', '.join(lacking)} of rlox.rl8.Env; "
            "add them, or inherit from rlox.rl8.Env"
        )
    for name in ("observation_spec", "action_spec"):
        spec = getattr(env, name)
        leaves = spec.values(True, True) if isinstance(spec, Composite) else [spec]
        if any(len(leaf.shape) < 1 for leaf in leaves):
            raise ValueError(f"{name} must have at least one dimension, got shape ()")
