"""Policies as data, and actions from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
import numpy.typing as npt

from rlox.config.model import UNSET
from rlox.deployment.layers import Step, compute, memory_size
from rlox.envs.preprocessing import Preprocessor
from rlox.errors import ExportError, SpaceError
from rlox.spaces import ActionRows, ObservationRows, memory_of, read_request, remembered

Space = gymnasium.Space[Any]


@dataclass(frozen=True)
class PolicyData:
    """A complete policy: from an env's observation to its most probable action."""

    algorithm: str
    """Registered name of the algorithm that trained it."""
    observation_space: Space
    """Observation space of one env, without action masks."""
    action_space: Space
    """Action space of one env."""
    network: dict[str, Any]
    """From the policy's inputs to rows of actions in the env's units (:mod:`rlox.spaces.rows`);
    see :mod:`rlox.deployment.layers`."""
    preprocessor: Preprocessor | None = None
    """Turns observations into the policy's inputs; ``None`` leaves them unchanged."""
    takes_masks: bool = False
    """Whether the policy takes action masks."""


@runtime_checkable
class Exportable(Protocol):
    """An algorithm that gives its policy as data."""

    def policy_data(self) -> Any:
        """Return a :class:`PolicyData`, or a team's :class:`~rlox.deployment.teams.TeamData`.

        Raises:
            ExportError: it holds a module that cannot be described.
        """


class Compute(Protocol):
    """A network: from observations, memory and masks to rows of actions and the memory after."""

    state_size: int
    """Size of its memory for an episode."""

    def __call__(
        self, obs: Any, state: npt.NDArray[np.float32], masks: npt.NDArray[np.bool_] | None
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Compute B actions."""


class NumPyNetwork:
    """Layers computed with NumPy.

    Args:
        layer: their description.
    """

    def __init__(self, layer: dict[str, Any]) -> None:
        self._layer = layer
        self.state_size = memory_size(layer)

    def __call__(
        self, obs: Any, state: npt.NDArray[np.float32], masks: npt.NDArray[np.bool_] | None
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Return rows of B actions and the memory (B, state_size) after them."""
        step = Step(state, masks)
        rows = compute(self._layer, obs, step)
        return rows, step.after()


class LoadedPolicy:
    """A trained policy that acts without the algorithm that trained it.

    Args:
        data: the policy.
        network: computes ``data.network``.
    """

    def __init__(self, data: PolicyData, network: Compute) -> None:
        self.data = data
        self._network = network
        self.state_size = network.state_size
        """Size of its memory for an episode."""
        self.observation_space = data.observation_space
        """Space of the observations that :meth:`predict` takes."""
        self.action_space = data.action_space
        """Space of the actions that :meth:`predict` returns."""

    @property
    def remembers(self) -> bool:
        """Whether it has a memory or stacks frames."""
        seen = self.data.preprocessor
        return self.state_size > 0 or (seen is not None and seen.has_frames)

    def __repr__(self) -> str:
        d = self.data
        return f"<LoadedPolicy of '{d.algorithm}': {d.observation_space} -> {d.action_space}>"

    def policy_data(self) -> PolicyData:
        """Return the policy as data, so that :func:`rlox.export` writes it.

        Raises:
            ExportError: it was read from an ONNX file, whose graph does not describe layers.
        """
        if not isinstance(self._network, NumPyNetwork):
            raise ExportError("a policy read from an ONNX file cannot be exported; copy the file")
        return self.data

    def predict(
        self,
        obs: Any,
        deterministic: bool = True,
        *,
        state: Any = UNSET,
        episode_start: npt.ArrayLike | None = None,
        action_masks: npt.ArrayLike | None = None,
    ) -> Any:
        """Return an action for one observation, or actions for a batch.

        Args:
            obs: one observation or a batch (B, *shape), nested like the observation space.
            deterministic: must be true: a policy file holds the most probable actions.
            state: the memory of the episodes, as returned with the last actions; ``None`` at the
                beginning. If it is left out, each observation counts as the first of an
                episode.
            episode_start: bool or (B,) bools, whether an episode begins with the observation,
                which empties its memory; ``None`` empties none.
            action_masks: (mask_size,) or (B, mask_size), see :mod:`rlox.spaces.rows`;
                ``None``: nothing is masked.

        Returns:
            For one observation, an action of the space: an int if it is ``Discrete``, else an
            array, nested like the space; for a batch, arrays (B, ...). If ``state`` is given, a
            pair of them and the next state, ``None`` if there is nothing to remember.

        Raises:
            ExportError: a sampled action is asked for.
            SpaceError: the policy or the actions take no masks.
            ValueError: an argument has another shape.
        """
        if not deterministic:
            raise ExportError(
                "a policy file holds the most probable actions, got deterministic=False; leave it "
                "out, or sample with the checkpoint"
            )
        data = self.data
        request = read_request(data.observation_space, data.action_space, obs, action_masks)
        if request.masks is not None and not data.takes_masks:
            raise SpaceError(f"there are action masks, which '{data.algorithm}' does not take")
        before = {} if state is UNSET else remembered(state)
        rows, following = self.act(request.obs, request.masks, before, episode_start)
        actions = request.actions(rows)
        return actions if state is UNSET else (actions, following or None)

    def act(
        self,
        obs: Any,
        masks: npt.NDArray[np.bool_] | None,
        before: Mapping[str, Any],
        episode_start: npt.ArrayLike | None = None,
    ) -> tuple[npt.NDArray[Any], dict[str, Any]]:
        """Return rows of B actions, and the memory of the episodes after them.

        Args:
            obs: (B, *shape) arrays, as in :attr:`rlox.spaces.Request.obs`.
            masks: (B, mask_size); ``None``: nothing is masked.
            before: the memory returned with the last actions; empty at the beginning.
            episode_start: bool or (B,) bools, whether an episode begins with the observation.

        Returns:
            Rows for :meth:`rlox.spaces.Request.actions`, and the memory: by name, arrays (B, ...)
            or dicts of these by leaf name; empty if there is nothing to remember.

        Raises:
            ValueError: an argument has another shape.
        """
        following: dict[str, Any] = {}
        preprocessor = self.data.preprocessor
        size = len(next(iter(obs.values())) if isinstance(obs, dict) else obs)
        seen = obs
        if preprocessor is not None:
            seen = preprocessor.see(obs, before.get("frames"), episode_start)
            if preprocessor.has_frames:
                following["frames"] = seen
        memory = memory_of(before.get("memory"), (size, self.state_size), episode_start)
        rows, after = self._network(seen, memory, masks)
        if self.state_size:
            following["memory"] = after
        return rows, following


def example(data: PolicyData) -> tuple[Any, npt.NDArray[np.bool_] | None]:
    """Return an example observation and masks in the form that a policy takes."""
    n_masks = ActionRows(data.action_space).mask_size if data.takes_masks else 0
    masks = np.ones((1, n_masks), np.bool_) if n_masks else None
    return ObservationRows(data.observation_space).blank(1), masks
