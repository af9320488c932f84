"""Ends of episodes in a storage of steps, and their returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from rlox.envs import EpisodeStatistics
from tensordict import TensorDict
from torch import Tensor

from rlox_rl8._specs import Composite, Unbounded

FLAGS = ("terminated", "truncated")


def begin_episodes(policy: Any, states: TensorDict, begins: Tensor) -> TensorDict:
    """Return states (B), the policy's initial ones where an episode begins, by bools (B)."""

    def choose(fresh: Tensor, old: Tensor) -> Tensor:
        return torch.where(begins.view(-1, *[1] * (old.dim() - 1)), fresh, old)

    return policy.init_states(len(states)).to(begins.device).apply(choose, states)


class Ends:
    """Ends of episodes in a storage (T + 1, B) with the entries of :meth:`spec`.

    ``value`` maps the final observations (n, 1) of truncated episodes, and a mask of their envs
    (B), to their values (n, 1).
    """

    def __init__(self, storage: TensorDict, value: Callable[[TensorDict, Tensor], Tensor]) -> None:
        self._storage, self._value = storage, value
        self._horizon = len(storage) - 1
        self.statistics = EpisodeStatistics(storage.shape[1])

    @staticmethod
    def spec(policy: Any, device: torch.device) -> Composite:
        """Return the spec of one transition's entries.

        Raises:
            ValueError: the policy cannot learn from envs whose episodes end.
        """
        views = getattr(policy.model, "view_requirements", {})
        past = [key for key, view in views.items() if view.shift]
        if past:
            raise ValueError(
                f"the model's view of {past[0]!r} has shift {views[past[0]].shift}, and its "
                "windows would reach from one episode into the next; use envs whose episodes do "
                "not end, or stack observations in the env"
            )
        one = torch.Size([1])
        flags = {name: Unbounded(one, device=device, dtype=torch.bool) for name in FLAGS}
        return Composite(**flags, final_values=Unbounded(one, device=device))

    def store(self, t: int, out: TensorDict) -> None:
        """Store the ends that step ``t`` of all envs returned."""
        store = self._storage
        for name in FLAGS:
            store[name][t] = out[name]
        cut = out["truncated"].flatten()
        if cut.any():
            final = TensorDict({"obs": out["final_obs"][cut][:, None]}, [int(cut.sum()), 1])
            store["final_values"][t][cut] = self._value(final, cut)

    def ended(self, t: int | slice) -> Tensor:
        """Return whether step ``t`` ended an episode, (..., B, 1)."""
        return torch.logical_or(*(self._storage[name][t] for name in FLAGS))

    def count(self, resets: bool) -> None:
        """Add a horizon's steps to the statistics; a reset before it ended no episode."""
        if resets:
            self.statistics.forget(slice(None))
        past = slice(0, self._horizon)
        steps = (self._storage["rewards"][past], self.ended(past))
        rewards, ended = (x[..., 0].cpu().numpy() for x in steps)
        self.statistics.add(rewards, ended)

    def of_horizon(self) -> dict[str, Tensor]:
        """Return flags and final values (T, B, 1) for the estimation of advantages."""
        return {name: self._storage[name][:-1] for name in (*FLAGS, "final_values")}
