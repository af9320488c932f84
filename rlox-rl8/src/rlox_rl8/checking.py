"""Checks of tensors against specs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rlox_rl8._specs import Composite, TensorSpec

__all__ = ["require", "validate"]


def require(value: Any, spec: TensorSpec, n: int, name: str, device: torch.device) -> None:
    """Check shape, dtype, device and finiteness of ``n`` rows.

    Args:
        value: a tensor or TensorDict.
        spec: of one row.
        n: rows.
        name: of what returned it.
        device: where it should be.

    Raises:
        ValueError: it does not fit.
    """
    if isinstance(spec, Composite):
        for key in spec.keys():  # noqa: SIM118
            if key not in value.keys():  # noqa: SIM118  # rows come first
                raise ValueError(f"{name} must return '{key}', got {sorted(value.keys())}")
            require(value[key], spec[key], n, f"{name} '{key}'", device)
        return
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{name} must return a tensor, got {type(value).__name__}")
    expected = torch.Size([n, *spec.shape])
    if value.shape != expected:
        raise ValueError(f"{name} must have shape {tuple(expected)}, got {tuple(value.shape)}")
    if value.dtype != spec.dtype:
        raise ValueError(f"{name} must be {spec.dtype}, got {value.dtype}")
    if value.device.type != device.type:
        raise ValueError(f"{name} must be on {device}, got {value.device}")
    if value.is_floating_point() and not value.isfinite().all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")


def validate(
    algorithm: Any, storage: Any, before_step: Callable[[int], None], act: Callable[..., Any]
) -> None:
    """Check one reset, one sample and one step of an algorithm against its specs.

    Args:
        algorithm: whose env and policy are checked.
        storage: where the policy looks for observations.
        before_step: prepares a step.
        act: returns the policy's outputs.

    Raises:
        ValueError: something does not fit.
    """
    n, device = algorithm.hparams.num_envs, algorithm.hparams.device
    env, specs = algorithm.env, algorithm.buffer_spec
    spec = env.observation_spec
    fits = getattr(env, "fits_specs", False)
    first = spec.expand(n, *spec.shape).zero() if fits else env.reset(config=None)
    require(first, env.observation_spec, n, f"{type(env).__name__}.reset", device)
    storage["obs"][0] = first
    before_step(0)
    sampled = act(0, False)
    name = f"{type(algorithm.policy).__name__}.sample"
    for key in ("actions", "logp", "values"):
        require(sampled[key], specs[key], n, f"{name} {key}", device)
    if fits:
        return
    out = env.step(sampled["actions"])
    names = ["obs", "rewards"]
    if env.episodes_end:
        names += ["terminated", "truncated", "final_obs"]
    for key in names:
        if key not in out.keys():  # noqa: SIM118  # rows come first
            raise ValueError(
                f"{type(env).__name__}.step must return '{key}', got {list(out.keys())}"
            )
        spec = specs["obs" if key == "final_obs" else key]
        require(out[key], spec, n, f"{type(env).__name__}.step {key}", device)
