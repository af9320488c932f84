"""The rows of one worker's envs in a vector step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from rlox.protocols import VecEnvStep
from rlox.spaces.nested import map_leaves

__all__ = ["begun", "concatenate", "joined"]


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


def concatenate(parts: Sequence[Any]) -> Any:
    """Return the rows of all parts; those of one as they are."""
    if len(parts) == 1:
        return parts[0]
    return map_leaves(lambda *leaves: np.concatenate(leaves), *parts)


def _none(step: VecEnvStep) -> npt.NDArray[np.bool_]:
    return np.zeros(len(step["rewards"]), np.bool_)
