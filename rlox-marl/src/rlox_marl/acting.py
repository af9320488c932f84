"""Actions of a team's policies for users and evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rlox.networks.predict import drawing_from, predict
from rlox.protocols import MultiAgentObs
from rlox.spaces import ActionRows, ObservationRows, map_leaves

from rlox_marl.collector import gather_actions
from rlox_marl.views import PolicyView

__all__ = ["TeamActor"]


class TeamActor:
    """The policies of a team, to act with.

    Args:
        views: of the policies.
        policies: by the views' names.
        order: names of the agents in the env's order.
        generator: source of samples, so that acting disturbs no training.
        device: where the policies are.
    """

    def __init__(
        self,
        views: tuple[PolicyView, ...],
        policies: Mapping[str, Any],
        order: tuple[str, ...],
        generator: torch.Generator,
        device: torch.device,
    ) -> None:
        self._views, self._policies, self._order = views, policies, order
        self._generator, self._device = generator, device
        self._agents = {
            agent: (view, column) for view in views for column, agent in enumerate(view.agents)
        }
        self._unseen = {view.name: _unseen(view) for view in views}

    def predict(self, obs: Any, deterministic: bool, agent_idx: Any, masks: Any = None) -> Any:
        """Return an action of one agent for one observation, or actions for a batch.

        Args:
            obs: one observation or a batch (B, *shape) as the env gives it to the agent.
            deterministic: the mode of the action distribution rather than a sample.
            agent_idx: which of the env's agents, or (B,) of them for a batch.
            masks: see :func:`rlox.networks.predict.predict`.

        Raises:
            ValueError: there is no agent of that number.
        """
        numbers = np.asarray(agent_idx)
        if numbers.dtype.kind not in "iu" or numbers.ndim > 1:
            raise ValueError(f"agent_idx must be integers, one or (B,) of them, got {agent_idx!r}")
        if ((numbers < 0) | (numbers >= len(self._order))).any():
            raise ValueError(
                f"agent_idx must lie in [0, {len(self._order) - 1}], got {agent_idx!r}; the agents "
                f"are {', '.join(self._order)}"
            )
        if not numbers.ndim:
            return self._predict_one(int(numbers), obs, deterministic, masks)
        actions: list[Any] = [None] * len(numbers)
        for number in np.unique(numbers).tolist():
            rows = np.flatnonzero(numbers == number)
            some = _rows_of(obs, rows)
            given = None if masks is None else np.asarray(masks)[rows]
            for row, action in zip(
                rows, self._predict_one(number, some, deterministic, given), strict=True
            ):
                actions[row] = action
        return np.stack(actions)

    def _predict_one(self, number: int, obs: Any, deterministic: bool, masks: Any) -> Any:
        view, column = self._agents[self._order[number]]

        def nest(batch: Any) -> dict[str, npt.NDArray[Any]]:
            named = (
                {f"obs.{k}": v for k, v in batch.items()}
                if isinstance(batch, dict)
                else {"obs": batch}
            )
            size = len(next(iter(named.values())))
            unseen = self._unseen[view.name]
            more = {name: np.repeat(leaf, size, axis=0) for name, leaf in unseen.items()}
            if "agent" in view.space.spaces:
                more["agent"] = np.full(size, column)
            return {**named, **more}

        return predict(
            self._policies[view.name],
            view.group.observation_space,
            view.group.action_space,
            obs,
            deterministic,
            action_masks=masks,
            preprocess=nest,
            generator=self._generator,
            device=self._device,
        )

    @torch.no_grad()
    def predict_team(self, obs: MultiAgentObs, deterministic: bool = True) -> dict[str, Any]:
        """Return the actions of all agents, by group; see :class:`rlox.envs.playing.TeamPlayer`."""
        parts = []
        n_envs = len(next(iter(obs["active"].values())))
        for view in self._views:
            policy = self._policies[view.name]
            stored = ObservationRows(view.space).stored(view.see(obs["obs"], obs["state"]))
            seen = map_leaves(lambda leaf: torch.from_numpy(leaf).to(self._device), stored)
            masks = ()
            if view.group.name in obs["masks"]:
                taken = np.ascontiguousarray(view.take(obs["masks"]))
                masks = (torch.from_numpy(taken).to(self._device),)  # type: ignore[assignment]
            with drawing_from(self._generator, policy):
                if deterministic:
                    rows = policy.deterministic(seen, *masks)
                else:
                    rows = policy.get_action_and_logprob(seen, *masks)[0]
            actions = ActionRows(view.group.action_space).to_env(rows.cpu().numpy())
            parts.append((view, actions))
        return gather_actions(parts, n_envs)


def _unseen(view: PolicyView) -> dict[str, npt.NDArray[Any]]:
    """Return one row of zeros for the leaves that only the critic sees."""
    rows: Any = ObservationRows(view.space).empty(1)
    return {
        name: np.zeros_like(leaf)
        for name, leaf in rows.items()
        if name == "critic" or name.startswith("critic.")
    }


def _rows_of(obs: Any, rows: npt.NDArray[Any]) -> Any:
    if isinstance(obs, Mapping):
        return {key: _rows_of(leaf, rows) for key, leaf in obs.items()}
    if isinstance(obs, tuple):
        return tuple(_rows_of(leaf, rows) for leaf in obs)
    return np.asarray(obs)[rows]
