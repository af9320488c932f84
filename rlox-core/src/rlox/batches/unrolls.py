"""Unrolls joined, as rows, and as plain arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlox.batches.rollout import Unroll
from rlox.errors import EnvError
from rlox.spaces.rows import map_leaves

Arrays = dict[str, npt.NDArray[Any]]

NUMBERS = ("weights_version", "actor", "sequence", "resets")
ON_DEVICE = ("actions", "log_probs", "action_masks", "episode_starts", "initial_state", "values")
IN_NUMPY = (
    "rewards", "terminated", "truncated", "scaled_rewards", "final_values", "envs", "life_lost",
)  # fmt: skip
STEPS = ("rewards", "terminated", "truncated")
NESTED = ("obs", "final_obs")
MOMENTS = "moments"


@dataclass(frozen=True)
class StepRows:
    """T*N steps as :func:`rlox.losses.evaluate_actions` takes them, step 0 first."""

    obs: Any
    actions: Tensor
    action_masks: Tensor | None = None
    episode_starts: Tensor | None = None
    initial_state: Tensor | None = None


def step_rows(unroll: Unroll) -> StepRows:
    """Return the steps of an unroll as rows, without the observation to act on next."""
    return StepRows(
        obs=map_leaves(lambda leaf: leaf[:-1].flatten(0, 1), unroll.obs),
        actions=unroll.actions.flatten(0, 1),
        action_masks=_flat(unroll.action_masks),
        episode_starts=_flat(unroll.episode_starts),
        initial_state=unroll.initial_state,
    )


def join_unrolls(unrolls: Sequence[Unroll]) -> Unroll:
    """Return one unroll of the envs of several, side by side.

    Args:
        unrolls: of equal T and of one policy. Version, actor and sequence number of the first
            stand for all.

    Returns:
        The unroll of ΣN envs; without values, which those that act estimate.

    Raises:
        ValueError: there is none, or their lengths differ.
    """
    lengths = {unroll.n_steps for unroll in unrolls}
    if len(lengths) != 1:
        raise ValueError(f"unrolls of one length must be joined, got the lengths {sorted(lengths)}")
    first = unrolls[0]
    if len(unrolls) == 1:
        return first
    truncated = np.concatenate([unroll.truncated for unroll in unrolls], 1)

    def side_by_side(name: str) -> Any:
        return _cat([getattr(unroll, name) for unroll in unrolls], 1)

    return Unroll(
        obs=map_leaves(lambda *leaves: torch.cat(leaves, 1), *(u.obs for u in unrolls)),
        actions=side_by_side("actions"),
        log_probs=side_by_side("log_probs"),
        rewards=np.concatenate([u.rewards for u in unrolls], 1),
        terminated=np.concatenate([u.terminated for u in unrolls], 1),
        truncated=truncated,
        final_obs=_join_final_obs(unrolls, truncated),
        action_masks=side_by_side("action_masks"),
        episode_starts=side_by_side("episode_starts"),
        initial_state=_cat([u.initial_state for u in unrolls], 0),
        weights_version=first.weights_version,
        actor=first.actor,
        sequence=first.sequence,
        life_lost=_join_lives(unrolls),
    )


def keep_envs(unroll: Unroll, kept: npt.NDArray[np.bool_]) -> Unroll:
    """Return the unroll of some of its envs.

    Args:
        unroll: of N envs.
        kept: (N,) which.

    Raises:
        EnvError: none is kept.
    """
    if not kept.any():
        raise EnvError("all envs were lost in one rollout, and nothing is left to learn from")
    columns = torch.from_numpy(kept)
    cut = torch.from_numpy(np.nonzero(unroll.truncated)[1])
    fields: dict[str, Any] = {"envs": np.flatnonzero(kept)}
    for name in (*STEPS, "scaled_rewards", "final_values", "life_lost"):
        if getattr(unroll, name) is not None:
            fields[name] = getattr(unroll, name)[:, kept]
    for name in ("obs", "actions", "log_probs", "action_masks", "episode_starts", "values"):
        value = getattr(unroll, name)
        if value is not None:
            fields[name] = map_leaves(lambda leaf: leaf[:, columns.to(leaf.device)], value)
    if unroll.initial_state is not None:
        parts = unroll.initial_state.view(-1, unroll.n_envs, unroll.initial_state.shape[1])
        fields["initial_state"] = parts[:, columns.to(parts.device)].flatten(0, 1)
    if unroll.final_obs is not None:
        rows = columns[cut]
        fields["final_obs"] = (
            map_leaves(lambda leaf: leaf[rows.to(leaf.device)], unroll.final_obs)
            if rows.any()
            else None
        )
    return replace(unroll, **fields)


def _join_final_obs(unrolls: Sequence[Unroll], truncated: npt.NDArray[np.bool_]) -> Any:
    """Return the final observations in the order of the joined ``truncated.nonzero()``."""
    with_some = [u.final_obs for u in unrolls if u.final_obs is not None]
    if not with_some:
        return None
    rows: npt.NDArray[np.int64] = np.zeros(truncated.shape, np.int64)
    column = found = 0
    for unroll in unrolls:
        part = rows[:, column : column + unroll.n_envs]
        count = int(unroll.truncated.sum())
        part[unroll.truncated] = np.arange(found, found + count)
        column, found = column + unroll.n_envs, found + count
    order = torch.from_numpy(rows[truncated])
    return map_leaves(lambda *leaves: torch.cat(leaves)[order.to(leaves[0].device)], *with_some)


def _join_lives(unrolls: Sequence[Unroll]) -> npt.NDArray[np.bool_] | None:
    lives = [u.life_lost for u in unrolls]
    if all(each is None for each in lives):
        return None
    columns = [
        np.zeros(u.terminated.shape, np.bool_) if each is None else each
        for u, each in zip(unrolls, lives, strict=True)
    ]
    return np.concatenate(columns, 1)


def on_device(unroll: Unroll, device: torch.device) -> Unroll:
    """Return the unroll with its tensors on a device."""
    moved = {name: _moved(getattr(unroll, name), device) for name in (*ON_DEVICE, *NESTED)}
    return replace(unroll, **moved)


def unroll_to_arrays(unroll: Unroll) -> Arrays:
    """Return all that an unroll holds as NumPy arrays by name; see :func:`unroll_from_arrays`."""
    arrays: Arrays = {name: np.asarray(getattr(unroll, name), np.int64) for name in NUMBERS}
    for name in IN_NUMPY:
        if getattr(unroll, name) is not None:
            arrays[name] = getattr(unroll, name)
    for name in ON_DEVICE:
        if getattr(unroll, name) is not None:
            arrays[name] = getattr(unroll, name).cpu().numpy()
    for name in NESTED:
        value = getattr(unroll, name)
        leaves = value if isinstance(value, dict) else {"": value}
        for leaf, tensor in leaves.items():
            if tensor is not None:
                arrays[f"{name}:{leaf}" if isinstance(value, dict) else name] = tensor.cpu().numpy()
    return arrays | moments_to_arrays(unroll.moments)


def unroll_from_arrays(arrays: Mapping[str, Any], device: torch.device | str = "cpu") -> Unroll:
    """Return the unroll that :func:`unroll_to_arrays` took apart.

    Args:
        arrays: by name; they are not copied where the device is the CPU.
        device: where what the policy saw and did is to be.
    """
    fields: dict[str, Any] = {name: int(arrays[name]) for name in NUMBERS}
    fields["resets"] = bool(fields["resets"])
    fields |= {name: arrays[name] for name in IN_NUMPY if name in arrays}
    fields |= {name: _tensor(arrays[name], device) for name in ON_DEVICE if name in arrays}
    for key, array in arrays.items():
        name, colon, leaf = key.partition(":")
        if name in NESTED and colon:
            fields.setdefault(name, {})[leaf] = _tensor(array, device)
        elif name in NESTED:
            fields[name] = _tensor(array, device)
    return Unroll(**fields, moments=moments_from_arrays(arrays))


def moments_to_arrays(moments: Mapping[str, Mapping[str, Any]] | None) -> Arrays:
    """Return moments by leaf as arrays by name; see :func:`moments_from_arrays`."""
    return {
        f"{MOMENTS}:{part}:{leaf}": np.asarray(number, np.float64)
        for leaf, of_leaf in (moments or {}).items()
        for part, number in of_leaf.items()
    }


def moments_from_arrays(arrays: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
    """Return the moments among arrays by name; ``None`` if there are none."""
    moments: dict[str, dict[str, Any]] = {}
    for key, array in arrays.items():
        if key.startswith(f"{MOMENTS}:"):
            _, part, leaf = key.split(":", 2)
            moments.setdefault(leaf, {})[part] = array
    return moments or None


def _tensor(array: Any, device: torch.device | str) -> Tensor:
    return torch.from_numpy(np.asarray(array)).to(device)


def _moved(value: Any, device: torch.device) -> Any:
    return None if value is None else map_leaves(lambda leaf: leaf.to(device), value)


def _flat(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.flatten(0, 1)


def _cat(tensors: Sequence[Any], dim: int) -> Any:
    return None if tensors[0] is None else torch.cat(list(tensors), dim)
