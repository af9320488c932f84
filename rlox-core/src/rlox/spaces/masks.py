"""Action masks of gymnasium envs.

An env uses one of three places. :class:`rlox.spaces.ActionRows` describes the mask's row.

1. ``info["action_mask"]`` of every reset and step: gymnasium's own envs do so;
2. the key ``"action_mask"`` of a ``Dict`` of observations: PettingZoo's convention. The policy does
   not see it as part of the observation;
3. a method ``action_masks()``: sb3-contrib's convention.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from rlox.errors import EnvError
from rlox.spaces.rows import ActionRows

__all__ = ["MASK_KEY", "ActionMasks", "without_mask"]

MASK_KEY = "action_mask"


def without_mask(space: gymnasium.Space[Any]) -> gymnasium.Space[Any]:
    """Return an observation space without the key of the action mask."""
    if not isinstance(space, spaces.Dict) or MASK_KEY not in space.spaces:
        return space
    return spaces.Dict({key: leaf for key, leaf in space.spaces.items() if key != MASK_KEY})


class ActionMasks:
    """The masks of N envs for their next actions.

    Args:
        env: its envs give masks in one of the three places, or in none.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self._env = env
        self._actions: ActionRows | None = None
        space = env.single_observation_space
        self._in_obs = without_mask(space) is not space
        self._by_method = not self._in_obs and _has_method(env)
        self._in_info = False
        self.current: npt.NDArray[np.bool_] | None = None
        """(N, mask_size), True if a choice is possible; ``None`` if the envs give no masks."""

    def after_reset(self, obs: Any, infos: Mapping[str, Any]) -> None:
        """Read the masks of envs that were all reset; see :meth:`after_step`."""
        self._in_info = not self._in_obs and not self._by_method and MASK_KEY in infos
        self.after_step(obs, infos)

    def after_step(
        self,
        obs: Any,
        infos: Mapping[str, Any],
        ended: npt.NDArray[np.bool_] | None = None,
        reset_infos: Mapping[str, Any] | None = None,
    ) -> None:
        """Read the masks that go with the observations to act on next.

        Args:
            obs: of all envs, the mask's key included.
            infos: of the step.
            ended: (N,) the envs that were reset after the step.
            reset_infos: theirs; ``None`` if ``infos`` has them.

        Raises:
            EnvError: a mask is missing, has another shape, or forbids all choices, or the actions
                cannot be masked.
        """
        if self._in_obs:
            given = obs[MASK_KEY]
        elif self._by_method:
            given = _call(self._env)
        elif self._in_info:
            given = self._from_infos(infos, ended, reset_infos)
        elif MASK_KEY in infos:
            raise EnvError(
                f"an env gave info['{MASK_KEY}'] with a step but not with its reset; give it with "
                "both"
            )
        else:
            return
        if self._actions is None:
            self._actions = ActionRows(self._env.single_action_space)
        try:
            self.current = self._actions.check_masks(given, self._env.num_envs)
        except ValueError as error:
            raise EnvError(f"the envs gave wrong action masks: {error}") from None

    def _from_infos(
        self,
        infos: Mapping[str, Any],
        ended: npt.NDArray[np.bool_] | None,
        reset_infos: Mapping[str, Any] | None,
    ) -> npt.NDArray[Any]:
        everywhere = np.ones(self._env.num_envs, np.bool_)
        if ended is None or reset_infos is None:
            return _rows(infos, everywhere)
        after_reset = _rows(reset_infos, ended)
        # at the end of an episode no action need be possible, nor a mask be given
        return (
            after_reset
            if ended.all()
            else np.where(ended[:, None], after_reset, _rows(infos, ~ended))
        )


def _rows(infos: Mapping[str, Any], asked: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Return the masks (N, mask_size) in infos, of which those ``asked`` for must be there."""
    given = infos.get(f"_{MASK_KEY}", asked if MASK_KEY in infos else ~asked)
    if not given[asked].all():
        missing = np.flatnonzero(asked & ~given)[0]
        raise EnvError(
            f"env {missing} gave no info['{MASK_KEY}']; give it with every reset and step"
        )
    masks = np.asarray(infos[MASK_KEY])
    if masks.dtype == object:
        raise EnvError(
            f"info['{MASK_KEY}'] must be one array of 0 and 1, the columns of all choices side by "
            f"side, got {type(masks[asked][0]).__name__}"
        )
    return masks


def _has_method(env: VectorEnv[Any, Any, Any]) -> bool:
    if callable(getattr(env, "action_masks", None)):
        return True
    base = env.unwrapped
    if not isinstance(base, (SyncVectorEnv, AsyncVectorEnv)):
        return False
    return all(base.call("has_wrapper_attr", "action_masks"))


def _call(env: VectorEnv[Any, Any, Any]) -> npt.NDArray[Any]:
    method = getattr(env, "action_masks", None)
    base: Any = env.unwrapped
    return np.asarray(base.call("action_masks") if method is None else method())
