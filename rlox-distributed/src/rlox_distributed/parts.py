"""The rows of one worker's envs in a vector step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from rlox.errors import EnvError
from rlox.protocols import VecEnvStep
from rlox.spaces.rows import map_leaves

__all__ = ["Masks", "begun", "concatenate", "joined", "joined_masks"]

Masks: TypeAlias = npt.NDArray[np.bool_] | None
"""(N, choices) of the next actions, if the envs have masks."""


def begun(obs: Any, before: Any, count: int) -> VecEnvStep:
    """Return the step of envs that were lost: they begin again.

    Args:
        obs: what they show.
        before: what was acted on.
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
    """Return the step of the envs of all workers; that of one as it is."""
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
        parts: of each worker.
        addresses: of the workers.

    Raises:
        EnvError: not all workers send masks of as many choices.
    """
    sizes = {None if part is None else part.shape[1] for part in parts}
    if len(sizes) > 1:
        sent = ", ".join(
            f"{address} " + ("none" if part is None else f"masks of {part.shape[1]}")
            for address, part in zip(addresses, parts, strict=True)
        )
        raise EnvError(
            f"workers must send masks of as many choices, but there are {sent}; "
            "start all workers with the same env"
        )
    masks = [part for part in parts if part is not None]
    return concatenate(masks) if masks else None


def concatenate(parts: Sequence[Any]) -> Any:
    """Return the rows of all parts; those of one as they are."""
    if len(parts) == 1:
        return parts[0]
    return map_leaves(lambda *leaves: np.concatenate(leaves), *parts)


def _none(step: VecEnvStep) -> npt.NDArray[np.bool_]:
    return np.zeros(len(step["rewards"]), np.bool_)
