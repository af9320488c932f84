"""The conformance suite of replay buffers: ours pass, and every fault is caught."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rlox import testing
from rlox.errors import ConfigError
from rlox.kernels import reference
from rlox.replay.buffers import BufferOptions


class Uniform:
    """A buffer in plain NumPy, as a third party writes it; subclasses have a fault each."""

    def __init__(self, options: BufferOptions) -> None:
        if options.n_step > 1:
            raise ConfigError(f"one step only, got n_step={options.n_step}")
        self.capacity = options.capacity
        self.rng = np.random.default_rng(options.seed)
        self.rows: list[Any] = []

    def __len__(self) -> int:
        return len(self.rows)

    def push_batch(self, *columns: Any) -> None:
        """Keep copies of the rows."""
        self.rows += [tuple(map(np.array, row)) for row in zip(*columns, strict=True)]
        del self.rows[: -self.capacity]

    def sample(self, batch_size: int) -> dict[str, Any]:
        """Draw rows uniformly."""
        chosen = self.rng.integers(len(self.rows), size=batch_size)
        names = ("obs", "actions", "rewards", "terminated", "truncated", "next_obs")
        columns = zip(*(self.rows[i] for i in chosen), strict=True)
        batch = {name: np.stack(each) for name, each in zip(names, columns, strict=True)}
        batch["actions"] = batch["actions"].reshape(batch_size, -1)
        batch["rewards"] = batch["rewards"].astype(np.float32)
        return batch

    def state(self) -> dict[str, Any]:
        """Return the rows, of vectors alone."""
        columns = zip(*self.rows, strict=True)
        state = {f"column {i}": np.stack(column) for i, column in enumerate(columns)}
        return {**state, "rng": np.frombuffer(repr(self.rng.bit_generator.state).encode(), "u1")}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        columns = [state[f"column {i}"] for i in range(6)]
        self.rows = [tuple(map(np.array, row)) for row in zip(*columns, strict=True)]
        self.rng.bit_generator.state = eval(state["rng"].tobytes().decode())


class Upright(Uniform):
    def sample(self, batch_size: int) -> dict[str, Any]:
        batch = super().sample(batch_size)
        return {**batch, "terminated": batch["terminated"][:, None]}


class KeepsViews(Uniform):
    def push_batch(self, *columns: Any) -> None:
        self.rows += list(zip(*columns, strict=True))


class NextOfAnother(Uniform):
    def sample(self, batch_size: int) -> dict[str, Any]:
        batch = super().sample(batch_size)
        return {**batch, "next_obs": np.roll(batch["next_obs"], 1, 0)}


class NeverForgets(Uniform):
    def push_batch(self, *columns: Any) -> None:
        self.capacity = 10**6
        super().push_batch(*columns)


class Unseeded(Uniform):
    def __init__(self, options: BufferOptions) -> None:
        super().__init__(options)
        self.rng = np.random.default_rng()


class IgnoresNStep(Uniform):
    def __init__(self, options: BufferOptions) -> None:
        self.capacity, self.rows = options.capacity, []
        self.rng = np.random.default_rng(options.seed)


class WrongSums(IgnoresNStep):
    def sample(self, batch_size: int) -> dict[str, Any]:
        batch = super().sample(batch_size)
        discounts = np.where(batch["terminated"], 0, 0.5).astype(np.float32)
        return {**batch, "discounts": discounts}


class Forgetful(Uniform):
    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self.rng = np.random.default_rng(9)


class Indifferent(Uniform):
    def sample(self, batch_size: int) -> dict[str, Any]:
        batch = super().sample(batch_size)
        return {**batch, "indices": np.arange(batch_size), "weights": np.ones(batch_size, "f4")}

    def update_priorities(self, indices: Any, priorities: Any) -> None:
        pass

    def set_beta(self, beta: float) -> None:
        pass


class LeavesOutTheOldest(reference.ReplayBuffer):
    """Reports too few rows as changed."""

    def __init__(self, options: BufferOptions) -> None:
        super().__init__(
            options.capacity, options.obs_shape, options.act_shape, obs_dtype=options.obs_dtype,
            act_dtype=options.act_dtype, n_envs=options.n_envs, n_step=options.n_step,
            gamma=options.gamma, seed=options.seed,
        )  # fmt: skip

    def changed_rows(self, since: int) -> tuple[int, int, list[tuple[int, int]]]:
        """Leave out the first row of each range."""
        mark, count, ranges = super().changed_rows(since)
        return mark, count, [(start + 1, stop) for start, stop in ranges]


def test_our_buffers_conform() -> None:
    """All checks apply."""
    assert testing.check_buffer("prioritized") == {}


def test_a_buffer_of_ones_own_conforms() -> None:
    """Its factory may refuse several steps, and its class is the factory."""
    skipped = testing.check_buffer(Uniform)
    unused = {"check_buffer_n_step", "check_buffer_segments", "check_buffer_priorities"}
    assert set(skipped) == unused


@pytest.mark.parametrize(
    ("factory", "name", "reason"),
    [
        (Upright, "batches", r"'terminated', an array \(40,\) .*, got \(40, 1\) of bool"),
        (KeepsViews, "batches", "next_obs is .* got 0"),
        (NextOfAnother, "batches", "next_obs is"),
        (NeverForgets, "batches", "more than fits: expected 1 to 24 stored, got 60"),
        (WrongSums, "n_step", "3 steps from obs"),
        (Unseeded, "seeding", "must fix the draws"),
        (Forgetful, "state", "must go on exactly"),
        (LeavesOutTheOldest, "segments", "left out a changed row"),
        (Indifferent, "priorities", "most of a batch must be of the highest priority"),
    ],
)
def test_check_catches_a_faulty_buffer(factory: Any, name: str, reason: str) -> None:
    """The text begins with the check's name and has the reason."""
    with pytest.raises(AssertionError, match=rf"(?s)^check_buffer_{name}\(.*{reason}"):
        testing.check_buffer(factory)
