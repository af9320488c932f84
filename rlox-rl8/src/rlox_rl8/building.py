"""Construction of an agent, and its config from that of rlox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from typing import Any, TypeVar

import torch
from rlox.config.model import Config
from rlox.errors import ConfigError
from rlox.files import require_memory_for
from rlox.learners.compiled import compiled
from rlox.nn import ModuleOptimizer, find_device
from torch import nn

from rlox_rl8.minibatches import loss_and_terms
from rlox_rl8.perceptrons import FastLane
from rlox_rl8.schedulers import EntropyScheduler, LRScheduler
from rlox_rl8.stepping import compiled_steps, step_envs

__all__ = ["agent_config", "automatic_device", "set_up"]

ConfigT = TypeVar("ConfigT")

MEMBERS = ("num_envs", "device", "observation_spec", "action_spec", "episodes_end", "reset", "step")
"""Of a :class:`rlox.protocols.TensorEnv`."""


def agent_config(cls: type[ConfigT], config: Config, parts: Mapping[str, Any] | None) -> ConfigT:
    """Return an agent's config with the numbers of ``config``.

    Args:
        cls: :class:`rlox_rl8.AlgorithmConfig` or the recurrent one.
        config: rlox's.
        parts: arguments other than numbers.

    Raises:
        ConfigError: a part is unknown, or is an option.
    """
    options = config.to_dict()
    names = set(cls.__dataclass_fields__)  # type: ignore[attr-defined]
    # others are of the run, and of the env backend
    numbers = {name: value for name, value in options.items() if name in names}
    numbers["num_envs"] = options["n_envs"]
    given = dict(parts or {})
    known = names - set(numbers)
    for name in given.keys() - known:
        raise ConfigError(f"part '{name}' is unknown; expected one of {', '.join(sorted(known))}")
    optimizer = {"lr": options["learning_rate"], **(given.pop("optimizer_config", None) or {})}
    return cls(**numbers, **given, optimizer_config=optimizer)  # type: ignore[call-arg]


def automatic_device() -> str:
    """Return what ``device="auto"`` takes."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def set_up(algorithm: Any, env_cls: Any, config: Any, policy_cls: Any, hparams_cls: Any) -> None:
    """Make env, policy, optimiser and schedules of either kind."""
    bounded = {}
    for name in ("num_envs", "horizon"):
        bound = getattr(env_cls, f"max_{name}", None)
        value = getattr(config, name)
        bounded[name] = value if bound is None else min(value, bound)
    columns = 5 + config.normalize_rewards  # numbers of a transition that every env has
    numbers = max(bounded["num_envs"], 0) * (max(bounded["horizon"], 0) + 1) * columns
    require_memory_for(
        "num_envs", bounded["num_envs"], 4 * numbers, "take fewer envs or a shorter horizon"
    )
    device = find_device(automatic_device() if config.device == "auto" else config.device)
    names = {field.name for field in fields(hparams_cls)}
    given = {f.name: getattr(config, f.name) for f in fields(config) if f.name in names}
    given |= {**bounded, "device": device}
    if config.sgd_minibatch_size is None:
        steps = max(bounded["horizon"] // max(given.get("seq_len", 1), 1), 1)
        given["sgd_minibatch_size"] = bounded["num_envs"] * steps
    algorithm.hparams = hparams_cls(**given)
    algorithm.hparams.validate()
    env = algorithm.env = env_cls(bounded["num_envs"], bounded["horizon"], device=device)
    if lacking := [name for name in MEMBERS if not hasattr(env, name)]:
        raise ConfigError(
            f"{type(env).__name__} lacks {', '.join(lacking)} of rlox.protocols.TensorEnv; "
            "add them, or inherit from rlox.rl8.Env"
        )
    for spec_name in ("observation_spec", "action_spec"):
        _require_dimensions(getattr(env, spec_name), spec_name)
    algorithm.policy = policy_cls(
        env.observation_spec,
        env.action_spec,
        model=config.model,
        model_cls=config.model_cls,
        model_config=config.model_config,
        distribution_cls=config.distribution_cls,
        device=device,
    )
    options = {"lr": 1e-3} if config.optimizer_config is None else config.optimizer_config
    algorithm.flat = ModuleOptimizer(
        algorithm.policy.model,
        partial(config.optimizer_cls, **options),
        max_grad_norm=algorithm.hparams.max_grad_norm,
    )
    algorithm.optimizer = algorithm.flat.torch_optimizer
    algorithm.lr_scheduler = LRScheduler(
        algorithm.optimizer, schedule=config.lr_schedule, kind=config.lr_schedule_kind
    )
    algorithm.entropy_scheduler = EntropyScheduler(
        config.entropy_coeff,
        schedule=config.entropy_coeff_schedule,
        kind=config.entropy_coeff_schedule_kind,
    )
    hparams = algorithm.hparams
    scaled = hparams.enable_amp and hparams.half is torch.float16  # bfloat16 has float32's range
    algorithm.grad_scaler = torch.amp.GradScaler(device.type, enabled=scaled)
    algorithm.loss_and_terms, algorithm.step_envs = loss_and_terms, step_envs
    if hparams.compile:
        algorithm.step_envs = compiled_steps(device)
        # torch leaves an LSTM out of its graphs, and those around it take longer than plain code
        remembers = any(isinstance(part, nn.RNNBase) for part in algorithm.policy.model.modules())
        if not (remembers and device.type == "cuda"):
            algorithm.loss_and_terms = compiled(loss_and_terms, device)
    algorithm._allocate()
    algorithm.fast = FastLane.of(algorithm, config.backend)


def _require_dimensions(spec: Any, name: str) -> None:
    if hasattr(spec, "keys"):
        for key in spec.keys():  # noqa: SIM118
            _require_dimensions(spec[key], f"{name} '{key}'")
    elif len(spec.shape) < 1:
        raise ValueError(f"{name} must have at least one dimension, got shape ()")
