"""Ends of episodes in a storage of steps, and their returns."""

from __future__ import annotations

from typing import Any

import torch
from rlox.envs import EpisodeStatistics
from tensordict import TensorDict
from torch import Tensor

from rlox_rl8._specs import Composite, Unbounded

__all__ = ["Ends"]

FLAGS = ("terminated", "truncated")


class Ends:
    """Which steps of a storage (T + 1, B) ended an episode, and what a cut episode was worth.

    Args:
        storage: with the entries of :meth:`spec`.
        policy: values the final observations of cut episodes.
    """

    def __init__(self, storage: TensorDict, policy: Any) -> None:
        self._storage, self._policy = storage, policy
        self._horizon = len(storage) - 1
        self.statistics = EpisodeStatistics(storage.shape[1])

    @staticmethod
    def spec(device: torch.device) -> Composite:
        """Return the spec of one transition's entries."""
        one = torch.Size([1])
        flags = {name: Unbounded(one, device=device, dtype=torch.bool) for name in FLAGS}
        return Composite(**flags, final_values=Unbounded(one, device=device))

    def store(self, t: int, out: TensorDict) -> None:
        """Keep what step ``t`` of all envs returned."""
        store = self._storage
        for name in FLAGS:
            store[name][t] = out[name]
        cut = out["truncated"].flatten()
        if cut.any():
            final = TensorDict({"obs": out["final_obs"][cut][:, None]}, [int(cut.sum()), 1])
            valued = self._policy.sample(
                final, return_actions=False, return_logp=False, return_values=True
            )
            store["final_values"][t][cut] = valued["values"]

    def _ended(self, t: int | slice) -> Tensor:
        ended: Tensor = self._storage["terminated"][t] | self._storage["truncated"][t]
        return ended

    def begun(self, carried: Tensor, t: int, resets: bool) -> Tensor:
        """Return what discounted returns (B, 1) go on with at step ``t``: 0 in new episodes.

        Args:
            carried: of the step before.
            t: in the horizon.
            resets: whether the horizon began with a reset.
        """
        if t == 0 and resets:
            return carried
        return carried.masked_fill(self._ended(t - 1 if t else self._horizon - 1), 0.0)

    def count(self, resets: bool) -> None:
        """Add the horizon's steps to the statistics.

        Args:
            resets: whether the horizon began with a reset, before which no episode ended.
        """
        if resets:
            self.statistics.forget(slice(None))
        past = slice(0, self._horizon)
        steps = (self._storage["rewards"][past], self._ended(past))
        rewards, ended = (x[..., 0].cpu().numpy() for x in steps)
        self.statistics.add(rewards, ended)

    def of_horizon(self) -> dict[str, Tensor]:
        """Return flags and final values (T, B, 1), as advantages are estimated with."""
        return {name: self._storage[name][:-1] for name in (*FLAGS, "final_values")}
