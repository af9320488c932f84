"""The rows and seeds of one worker's envs in a vector step."""

from __future__ import annotations

from collections.abc import Sequence
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
    for key in ("life_lost", "lost"):
        if any(key in step for step in steps):
            flags: list[Any] = [
                step.get(key, np.zeros(len(step["rewards"]), np.bool_)) for step in steps
            ]
            whole[key] = np.concatenate(flags)
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


def seeds_of_attempt(seeds: Sequence[int], attempt: int) -> list[int]:
    """Return the seeds of envs for their n-th restart; 0 is the first start."""
    if not attempt or not seeds:
        return list(seeds)
    drawn: list[int] = np.random.SeedSequence((*seeds, attempt)).generate_state(len(seeds)).tolist()
    return drawn
