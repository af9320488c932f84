"""Conversions between gymnasium's spaces and tensor specs."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from rlox.errors import SpaceError
from rlox.spaces.rows import is_nested, leaf_spaces
from tensordict import TensorDict

from rlox_rl8 import _specs as specs
from rlox_rl8._specs import TensorSpec
from rlox_rl8.data import Device


def observation_spec(space: gymnasium.Space[Any], device: Device) -> TensorSpec:
    """Return the spec of a space's observations as returned by :func:`observe`.

    Raises:
        SpaceError: they cannot be tensors of one shape.
    """
    if is_nested(space):
        leaves = leaf_spaces(space)
        return specs.Composite({k: observation_spec(v, device) for k, v in leaves.items()})
    if isinstance(space, spaces.Discrete):
        return specs.Unbounded(torch.Size([int(space.n)]), device=device)
    if isinstance(space, (spaces.Box, spaces.MultiBinary)):
        shape = torch.Size(space.shape or (1,))
        dtype = torch.uint8 if space.dtype == np.uint8 and len(shape) > 1 else torch.float32
        return specs.Unbounded(shape, device=device, dtype=dtype)
    raise SpaceError(f"observations of {space} are not tensors of one shape; use 'ppo' instead")


def observe(space: gymnasium.Space[Any], obs: Any, device: Device) -> Any:
    """Return (N, ...) observations as tensors: ``Discrete`` one-hot, images uint8, others float.

    For a nested space, ``obs`` is a dict of arrays by leaf name.
    """
    if is_nested(space):
        leaves = {k: observe(s, obs[k], device) for k, s in leaf_spaces(space).items()}
        return TensorDict(leaves, batch_size=[len(next(iter(leaves.values())))], device=device)
    rows = np.asarray(obs)
    if isinstance(space, spaces.Discrete):
        places = torch.as_tensor(rows.astype(np.int64) - int(space.start), device=device)
        return torch.nn.functional.one_hot(places, int(space.n)).float()
    if rows.dtype == np.uint8 and isinstance(space, spaces.Box) and rows.ndim > 2:
        return torch.tensor(rows, device=device)
    shaped = rows.reshape(len(rows), *(space.shape or (1,)))
    return torch.tensor(shaped, dtype=torch.float32, device=device)


def action_spec(space: gymnasium.Space[Any], device: Device) -> TensorSpec:
    """Return the spec of a space's actions, flattened.

    Raises:
        SpaceError: the space is not ``Box``, ``Discrete``, ``MultiBinary`` or ``MultiDiscrete``.
    """
    if isinstance(space, spaces.Box):
        size = int(np.prod(space.shape, dtype=np.int64))
        return specs.Unbounded(torch.Size([size]), device=device)
    if isinstance(space, spaces.Discrete):
        return specs.Categorical(int(space.n), shape=torch.Size([1]), device=device)
    if isinstance(space, (spaces.MultiBinary, spaces.MultiDiscrete)):
        counts = np.full(space.shape, 2) if isinstance(space, spaces.MultiBinary) else space.nvec
        choices = counts.ravel().tolist()
        if len(set(choices)) > 1:
            return specs.MultiCategorical(choices, device=device)
        return specs.Categorical(choices[0], shape=torch.Size([len(choices)]), device=device)
    raise SpaceError(f"actions of {space} are neither a Box nor discrete; use 'ppo' instead")


def space_of(spec: TensorSpec) -> gymnasium.Space[Any]:
    """Return gymnasium's space for a spec.

    Raises:
        SpaceError: there is none.
    """
    kind, shape = specs.kind_of(spec), tuple(spec.shape)
    if kind is specs.Composite:
        return spaces.Dict([(key, space_of(spec[key])) for key in spec.keys()])  # noqa: SIM118
    if kind is specs.Binary:
        return spaces.MultiBinary(shape)
    if kind is specs.MultiCategorical:
        return spaces.MultiDiscrete(spec.nvec.cpu().numpy())
    if kind is specs.Categorical:
        return spaces.MultiDiscrete(np.full(shape, int(spec.n)))
    if kind is not None and spec.dtype == torch.uint8:
        return spaces.Box(0, 255, shape, np.uint8)
    if kind is None or not spec.dtype.is_floating_point:
        raise SpaceError(
            f"the spec {spec} has no gymnasium space; only float, uint8, discrete and binary do"
        )
    low, high = np.float32(-np.inf), np.float32(np.inf)
    if kind is specs.Bounded:
        low, high = (x.expand(shape).cpu().float().numpy() for x in (spec.low, spec.high))
    return spaces.Box(low, high, shape, np.float32)
