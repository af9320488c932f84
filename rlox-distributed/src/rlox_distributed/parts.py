"""The rows and seeds of one worker's envs in a vector step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from rlox.errors import EnvError
from rlox.protocols import VecEnvStep
from rlox.spaces.rows import map_leaves

Masks: TypeAlias = npt.NDArray[np.bool_] | None
"""Masks of the next actions, (N, choices), if the envs have any."""


def begun(obs: Any, before: Any, count: int) -> VecEnvStep:
    """Return the step of lost envs, which restart.

    Args:
        obs: their first observations.
        before: the observations acted on.
        count: number of envs.
    """
    return {
        "obs": obs,
        "rewards": np.zeros(count),
        "terminated": np.zeros(count, np.bool_),
        "truncated": np.ones(count, np.bool_),
        "final_obs": before,
        "lost": np.ones(count, np.bool_),
    }


def joined(steps: Sequence[VecEnvStep]) -> VecEnvStep:
    """Return the step of the envs of all workers; a single step is returned unchanged."""
    if len(steps) == 1:
        return steps[0]
    obs = concatenate([step["obs"] for step in steps])
    none_ended = all(step["final_obs"] is step["obs"] for step in steps)
    whole: VecEnvStep = {
        "obs": obs,
        "rewards": np.concatenate([step["rewards"] for step in steps]),
        "terminated": np.concatenate([step["terminated"] for step in steps]),
        "truncated": np.concatenate([step["truncated"] for step in steps]),
        "final_obs": obs if none_ended else concatenate([step["final_obs"] for step in steps]),
    }
    if any("life_lost" in step for step in steps):
        whole["life_lost"] = np.concatenate([step.get("life_lost", _none(step)) for step in steps])
    if any("lost" in step for step in steps):
        whole["lost"] = np.concatenate([step.get("lost", _none(step)) for step in steps])
    return whole


def joined_masks(parts: Sequence[Masks], addresses: Sequence[str]) -> Masks:
    """Return the masks of the envs of all workers.

    Args:
        parts: masks of each worker.
        addresses: addresses of the workers.

    Raises:
        EnvError: the workers' masks differ in the number of choices.
    """
    sizes = {None if part is None else part.shape[1] for part in parts}
    if len(sizes) > 1:
        sent = ", ".join(
            f"{address} " + ("none" if part is None else f"masks of {part.shape[1]}")
            for address, part in zip(addresses, parts, strict=True)
        )
        raise EnvError(
            f"workers must send masks of equal width, but there are {sent}; "
            "start all workers with the same env"
        )
    masks = [part for part in parts if part is not None]
    return concatenate(masks) if masks else None


def concatenate(parts: Sequence[Any]) -> Any:
    """Return the rows of all parts; a single part is returned unchanged."""
    if len(parts) == 1:
        return parts[0]
    return map_leaves(lambda *leaves: np.concatenate(leaves), *parts)


def _none(step: VecEnvStep) -> npt.NDArray[np.bool_]:
    return np.zeros(len(step["rewards"]), np.bool_)


def seeds_of_envs(seed: int | Sequence[int] | None, n_envs: int) -> list[int] | None:
    """Return the seed of each env; see :meth:`rlox.protocols.VecEnv.reset_all`.

    Raises:
        EnvError: there are more or fewer seeds than envs, or one is not an integer of 64 bits.
    """
    if seed is None:
        return None
    seeds: list[int]
    if isinstance(seed, (int, np.integer)):
        seeds = [int(seed) + i for i in range(n_envs)]
    else:
        seeds = list(seed) if isinstance(seed, Iterable) else [seed]
    for one in seeds:
        if not isinstance(one, (int, np.integer)) or not 0 <= one < 1 << 64:
            raise EnvError(f"seed must be integers from 0 to 2**64 - 1, got {one!r}")
    if len(seeds) != n_envs:
        raise EnvError(f"seed has {len(seeds)} seeds for {n_envs} envs; give one per env")
    return [int(one) for one in seeds]


def seeds_of_attempt(seeds: Sequence[int], attempt: int) -> list[int]:
    """Return the seeds of envs for their n-th restart; 0 is the first start."""
    if not attempt or not seeds:
        return list(seeds)
    drawn: list[int] = np.random.SeedSequence((*seeds, attempt)).generate_state(len(seeds)).tolist()
    return drawn
