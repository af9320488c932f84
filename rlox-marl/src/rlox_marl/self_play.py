"""Self-play against a pool of frozen policies, with Elo ratings.

In each episode of a two-player game, the learner plays both sides, or one side against a member of
the pool: an earlier copy of its own policy. Members keep their rating from when they were frozen.
After a game against a member, the learner's rating moves by

    R ← R + K (S - E),    E = 1 / (1 + 10^((R_member - R) / 400))

where S is 1 for a higher return than the opponent's, ½ for an equal one and 0 for a lower one.

Sources:
    Elo 1978, "The rating of chessplayers", sec. 1.5; Vinyals et al. 2019, "Grandmaster level in
    StarCraft II", methods, for opponents drawn by their chance to win.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from rlox.networks.predict import drawing_from
from rlox.nn import load_module_state, module_state
from rlox.spaces import map_leaves
from torch import Tensor, nn

FIRST_RATING = 1_000.0
"""Rating of an untrained policy."""
STEP = 16.0
"""K, in points: the most that one game can move a rating."""


def expected_score(rating: float, other: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the expected share E of points against opponents.

    Args:
        rating: the player's, in points.
        other: the opponents' ratings.
    """
    return np.asarray(1.0 / (1.0 + 10.0 ** ((np.asarray(other, np.float64) - rating) / 400.0)))


class OpponentPool:
    """Frozen policies, their pairings with the learner in N envs, and ratings.

    Args:
        policy: the learner's, copied before it gets an optimiser.
        n_envs: number of envs N.
        size: most members; a full pool drops its second-oldest member and keeps the oldest.
        drawn: ``"even"``: uniformly; ``"rating"``: in proportion to a member's chance to win.
        share: share of the episodes in which the learner plays a member, not itself.
        interval: env steps from one frozen policy to the next.
        rng: source of the draws of opponents and sides.
        generator: source of the members' actions.
    """

    def __init__(
        self,
        policy: Any,
        n_envs: int,
        *,
        size: int,
        drawn: Literal["even", "rating"],
        share: float,
        interval: int,
        rng: np.random.Generator,
        generator: torch.Generator,
    ) -> None:
        self.rating = FIRST_RATING
        """The learner's rating, in points."""
        self.games = 0
        """Finished games between the learner and members."""
        self.members: list[tuple[float, nn.Module]] = []
        """Rating and policy of each member, the oldest first."""
        self._template = _frozen(policy)
        self._size, self._drawn, self._share, self._interval = size, drawn, share, interval
        self._rng, self._generator = rng, generator
        self._next = 0
        self._member = np.full(n_envs, -1)
        self._side = np.zeros(n_envs, np.int64)
        self._returns = np.zeros((n_envs, 2))

    @property
    def learning(self) -> npt.NDArray[np.bool_]:
        """(N, 2) bool, True for the sides that the learner plays."""
        rival = self._member[:, None] >= 0
        learner: npt.NDArray[np.bool_] = ~(rival & (np.arange(2) == self._side[:, None]))
        return learner

    def freeze(self, policy: Any, env_steps: int) -> None:
        """Add a copy of the learner's policy to the pool if the interval has passed.

        Args:
            policy: the learner's.
            env_steps: env steps done so far.
        """
        if env_steps < self._next:
            return
        self._next = (env_steps // self._interval + 1) * self._interval
        while len(self.members) >= self._size:  # more if a checkpoint had a larger pool
            self._leave(1 if self._size > 1 else 0)
        self._add(self.rating, module_state(policy))

    def _add(self, rating: float, state: Mapping[str, Any]) -> None:
        member = _frozen(self._template)
        load_module_state(member, state)
        self.members.append((rating, member))

    def _leave(self, index: int) -> None:
        """Remove a member; the next younger one takes over its games."""
        del self.members[index]
        self._member[self._member > index] -= 1
        self._member = np.minimum(self._member, len(self.members) - 1)

    def begin(self, envs: npt.NDArray[np.bool_]) -> None:
        """Draw opponents and sides for new episodes.

        Args:
            envs: (N,) bool, True where an episode begins.
        """
        ratings = [rating for rating, _ in self.members]
        for i in np.flatnonzero(envs).tolist():
            self._returns[i] = 0.0
            self._member[i] = -1
            if not ratings or self._rng.random() >= self._share:
                continue
            chances = np.ones(len(ratings))
            if self._drawn == "rating":
                chances = 1.0 - expected_score(self.rating, ratings)
            self._member[i] = self._rng.choice(len(ratings), p=chances / chances.sum())
            self._side[i] = self._rng.integers(2)

    @torch.no_grad()
    def act(self, obs: Any, masks: Tensor | None, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the actions of all 2 N sides, replacing the learner's where a member plays.

        Args:
            obs: leaves (2 N, *shape), the sides of env 0 first.
            masks: (2 N, mask_size) bool, or ``None``.
            rows: (2 N, ...) the learner's actions.
        """
        acted = np.array(rows)
        for k in np.unique(self._member[self._member >= 0]).tolist():
            envs = np.flatnonzero(self._member == k)
            own = torch.from_numpy(2 * envs + self._side[envs])
            seen = map_leaves(lambda leaf, own=own: leaf[own.to(leaf.device)], obs)
            possible = () if masks is None else (masks[own.to(masks.device)],)
            member: Any = self.members[k][1]
            with drawing_from(self._generator, member):
                actions, _ = member.get_action_and_logprob(seen, *possible)
            acted[own.numpy()] = actions.cpu().numpy()
        return acted

    def add(self, rewards: npt.NDArray[Any], ended: npt.NDArray[np.bool_]) -> None:
        """Add a step's rewards; where a game ended, update the rating and draw the next opponent.

        Args:
            rewards: (N, 2) by side.
            ended: (N,) bool, True where the game ended.
        """
        self._returns += rewards
        for i in np.flatnonzero(ended & (self._member >= 0)).tolist():
            side = self._side[i]
            difference = self._returns[i, 1 - side] - self._returns[i, side]
            score = (np.sign(difference) + 1) / 2
            other = self.members[self._member[i]][0]
            self.rating += STEP * float(score - expected_score(self.rating, other))
            self.games += 1
        self.begin(ended)

    def metrics(self) -> dict[str, float]:
        """Return an iteration's metrics: the learner's rating and the pool's size."""
        return {"elo": self.rating, "pool_policies": float(len(self.members))}

    def state_dict(self) -> dict[str, Any]:
        """Return members, ratings and pairings."""
        return {
            "rating": self.rating,
            "games": self.games,
            "next": self._next,
            "ratings": [rating for rating, _ in self.members],
            "members": {str(k): module_state(one) for k, (_, one) in enumerate(self.members)},
            "member": self._member.copy(),
            "side": self._side.copy(),
            "returns": self._returns.copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any], *, keep_games: bool) -> None:
        """Restore members and ratings and, with ``keep_games``, the running games."""
        self.members = []
        for k, rating in enumerate(state["ratings"]):
            self._add(float(rating), state["members"][str(k)])
        self.rating, self.games = float(state["rating"]), int(state["games"])
        self._next = int(state["next"])
        if keep_games:
            self._member = np.array(state["member"])
            self._side = np.array(state["side"])
            self._returns = np.array(state["returns"])
        else:
            self.begin(np.ones(len(self._member), np.bool_))


def _frozen(policy: Any) -> nn.Module:
    """Return a copy without generator and gradients."""
    before, policy.generator = getattr(policy, "generator", None), None
    try:
        return copy.deepcopy(policy).requires_grad_(False)  # type: ignore[no-any-return]
    finally:
        policy.generator = before
