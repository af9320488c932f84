"""Action masks of gymnasium envs, and requests to act.

An env uses one of three places. :class:`rlox.spaces.ActionRows` describes the mask's row.

1. ``info["action_mask"]`` of every reset and step: gymnasium's own envs do so;
2. the key ``"action_mask"`` of a ``Dict`` of observations: PettingZoo's convention. The policy does
   not see it as part of the observation;
3. a method ``action_masks()``: sb3-contrib's convention.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from rlox.errors import EnvError
from rlox.spaces.rows import ActionRows, ObservationRows

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


@dataclass(frozen=True)
class Request:
    """What a user asks a policy to act on."""

    obs: Any
    """(B, *shape) arrays, of a nested space a dict of them by leaf name."""
    masks: npt.NDArray[np.bool_] | None
    """(B, mask_size)"""
    size: int
    """B"""
    single: bool
    """Whether it was one observation, which is a batch of one here."""
    rows: ActionRows

    def actions(self, chosen: npt.NDArray[Any]) -> Any:
        """Return what the user gets for action rows (B, ...)."""
        actions = self.rows.to_env(chosen)
        return self.rows.take(actions, 0) if self.single else actions


def read_request(
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    obs: Any,
    action_masks: npt.ArrayLike | None,
) -> Request:
    """Return what a user passed as a batch.

    Args:
        observation_space: of one env; its shape distinguishes one observation from a batch.
        action_space: of one env.
        obs: one observation or a batch (B, *shape), nested as the space is. The key
            ``"action_mask"`` of a dict is taken for the masks.
        action_masks: (mask_size,) or (B, mask_size); ``None`` masks nothing.

    Raises:
        SpaceError: the actions take no masks.
        ValueError: ``obs`` or ``action_masks`` has another shape, or a mask allows nothing.
    """
    if isinstance(obs, Mapping) and MASK_KEY in obs and action_masks is None:
        action_masks = obs[MASK_KEY]
        obs = {key: value for key, value in obs.items() if key != MASK_KEY}
    batch, single = ObservationRows(observation_space).batch(obs)
    size = len(next(iter(batch.values())) if isinstance(batch, dict) else batch)
    rows = ActionRows(action_space)
    masks = None
    if action_masks is not None:
        given = np.asarray(action_masks)[None] if single else np.asarray(action_masks)
        masks = rows.check_masks(given, size)
    return Request(batch, masks, size, single, rows)


def remembered(state: Any) -> Mapping[str, Any]:
    """Return what a user passed as ``state``: by name what is remembered, nothing for ``None``.

    Raises:
        ValueError: it is not what a prediction returned.
    """
    if state is None:
        return {}
    if not isinstance(state, Mapping) or not state.keys() <= {"frames", "memory"}:
        got = list(state) if isinstance(state, Mapping) else type(state).__name__
        raise ValueError(
            f"state must be None or what predict returned with the last actions, got {got}"
        )
    return state


def memory_of(
    state: npt.ArrayLike | None, shape: tuple[int, int], episode_start: npt.ArrayLike | None
) -> npt.NDArray[np.float32]:
    """Return the memory (B, state_size) to act with, emptied where an episode begins.

    Args:
        state: what was remembered; ``None`` is an empty memory.
        shape: (B, state_size).
        episode_start: bool or (B,) bools; ``None`` if none begins.

    Raises:
        ValueError: ``state`` or ``episode_start`` has another shape.
    """
    memory = np.zeros(shape, np.float32) if state is None else np.array(state, np.float32)
    if memory.shape != shape:
        raise ValueError(f"state must have shape {shape}, got {memory.shape}")
    if episode_start is not None:
        if np.shape(episode_start) not in ((), shape[:1]):
            raise ValueError(
                f"episode_start must be one bool or {shape[0]}, got shape {np.shape(episode_start)}"
            )
        memory[np.broadcast_to(np.asarray(episode_start, np.bool_), shape[:1])] = 0.0
    return memory
