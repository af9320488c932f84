"""Conformance checks of :class:`rlox.protocols.SequenceBuffer`.

Every pushed row contains its stream and its number there.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from rlox.replay.buffers import SequenceOptions, make_sequence_buffer

from rlox_testing.probes import check, require, require_same, run_checks

Factory = Callable[[SequenceOptions], Any]

N_ENVS, RING, LENGTH, BATCH_SIZE = 3, 20, 4, 40
SEQUENCE_OPTIONS = SequenceOptions(
    capacity=N_ENVS * RING,
    fields={
        "obs": ((3, 2), np.uint8), "number": ((), np.float32), "env": ((), np.int64),
        "is_first": ((), np.bool_), "memory": ((2,), np.float32),
    },
    declared=("memory",), n_envs=N_ENVS, online_length=None, seed=0,
)  # fmt: skip


class _Filled:
    """A buffer, with the number of rows pushed to each of its streams."""

    def __init__(self, buffer: str | Factory, options: SequenceOptions = SEQUENCE_OPTIONS) -> None:
        if isinstance(buffer, str):
            self.buffer: Any = make_sequence_buffer(buffer, options)
        else:
            self.buffer = buffer(options)
        self.totals = np.zeros(N_ENVS, np.int64)

    def push(self, times: int) -> None:
        """Append rows; the streams get one more, the same and one less in turn.

        The arrays are overwritten afterwards, as an env may with its next step.
        """
        for t in range(times):
            envs = np.flatnonzero((t + np.arange(N_ENVS)) % (N_ENVS + 1) != 0)
            numbers = self.totals[envs]
            rows: dict[str, Any] = {
                "obs": np.broadcast_to(numbers[:, None, None] % 256, (len(envs), 3, 2)),
                "number": numbers, "env": envs, "is_first": numbers % 5 == 0,
                "memory": np.zeros((len(envs), 2)),
            }  # fmt: skip
            rows = {
                key: np.array(row, SEQUENCE_OPTIONS.fields[key][1]) for key, row in rows.items()
            }
            self.buffer.push(rows, envs)
            for row in rows.values():
                row[...] = 0
            self.totals[envs] += 1

    def draw(self, seed: int | None = None) -> dict[str, Any]:
        """Return a batch."""
        return self.buffer.sample(BATCH_SIZE, LENGTH, seed)  # type: ignore[no-any-return]


def _require_batch(batch: dict[str, Any], totals: Any) -> None:
    names = {*SEQUENCE_OPTIONS.fields, "indices"}
    require(set(batch) == names, f"a batch must have {sorted(names)}, got {sorted(batch)}")
    for name, (shape, dtype) in SEQUENCE_OPTIONS.fields.items():
        expected, got = (BATCH_SIZE, LENGTH + 1, *shape), batch[name].shape
        require(got == expected, f"'{name}' must be {expected}, got {got}")
        got = batch[name].dtype
        require(got == np.dtype(dtype), f"'{name}' must be {np.dtype(dtype)}, got {got}")
    numbers, envs = batch["number"].astype(np.int64), batch["env"]
    require((np.diff(numbers) == 1).all(), "rows of a sequence must follow each other")
    require((envs == envs[:, :1]).all(), "rows of a sequence must be of one stream")
    stored = (numbers >= totals[envs] - RING) & (numbers < totals[envs])
    require(stored.all(), "rows must be among the last that fit of their stream")
    same = (batch["obs"] == (numbers % 256)[..., None, None]).all()
    same &= (batch["is_first"] == (numbers % 5 == 0)).all()
    require(same, "the fields of a row are mixed up; a buffer must copy its input")


@check
def check_sequence_buffer_batches(buffer: str | Factory) -> None:
    """Check batches, before the buffer is full and after, and the online queue."""
    filled = _Filled(buffer)
    require(len(filled.buffer) == 0, f"a new buffer must be empty, got {len(filled.buffer)} rows")
    try:
        filled.draw()
    except ValueError:
        pass
    else:
        require(False, "drawing sequences that no stream has must raise ValueError")
    for _ in range(6):
        filled.push(10)
        rows = np.minimum(filled.totals, RING).sum()
        require(len(filled.buffer) == rows, f"expected {rows} rows, got {len(filled.buffer)}")
        for _ in range(3):
            _require_batch(filled.draw(), filled.totals)
    filled = _Filled(buffer, dataclasses.replace(SEQUENCE_OPTIONS, online_length=LENGTH))
    filled.push(10)
    first = filled.draw()
    _require_batch(first, filled.totals)
    new = [(e, k) for e in range(N_ENVS) for k in range(0, int(filled.totals[e]) - LENGTH, LENGTH)]
    starts = list(zip(first["env"][:, 0].tolist(), first["number"][:, 0].tolist(), strict=True))
    expected = f"new sequences must come first, expected (stream, first row) {new}"
    require(sorted(starts[: len(new)]) == new, f"{expected}, got {starts[: len(new)]}")


@check
def check_sequence_buffer_updates(buffer: str | Factory) -> None:
    """Check that declared fields are written to their rows, and to no row that was overwritten."""
    filled = _Filled(buffer)
    filled.push(24)
    batch = filled.draw()
    old = filled.totals.copy()
    filled.push(12)
    marks = np.stack([batch["number"] + 1, batch["env"] + 1], -1)
    filled.buffer.update(batch["indices"], {"memory": marks})
    for seed in range(5):
        after = filled.draw(seed)
        own = np.stack([after["number"] + 1, after["env"] + 1], -1)
        written = after["memory"].any(-1)
        new = after["number"] >= old[after["env"]]
        require(not written[new].any(), "a state was written to a row that has replaced its own")
        require((after["memory"] == own)[written].all(), "a state was written to another row")
    drawn = {tuple(pair) for pair in marks.reshape(-1, 2).tolist()}
    kept = [tuple(m) in drawn for m in own.reshape(-1, 2).tolist()]
    require((written.reshape(-1) == kept).all(), "update() left out rows that are still stored")


@check
def check_sequence_buffer_seeding(buffer: str | Factory) -> None:
    """Check that seeds fix the draws, and that one draw's seed does not affect others."""
    batches = []
    for draws_with_seed in (False, True):
        filled = _Filled(buffer)
        filled.push(30)
        drawn = [filled.draw()]
        if draws_with_seed:
            require_same(filled.draw(7), filled.draw(7), "sample(seed=) must fix the draw")
        batches.append([*drawn, filled.draw()])
    require_same(batches[0], batches[1], "SequenceOptions.seed must fix the draws")


@check
def check_sequence_buffer_state(buffer: str | Factory) -> None:
    """Check that a buffer with another's state goes on in the same way."""
    options = dataclasses.replace(SEQUENCE_OPTIONS, online_length=LENGTH)
    one, two = _Filled(buffer, options), _Filled(buffer, dataclasses.replace(options, seed=1))
    one.push(33)
    state = one.buffer.state()
    kept = copy.deepcopy(state)
    two.buffer.set_state(state)
    two.totals[:] = one.totals
    for _ in range(3):
        require_same(one.draw(), two.draw(), "set_state() must go on exactly")
        one.push(7)
        two.push(7)
    require_same(kept, state, "state() must return a copy, but the buffer changed it")


SEQUENCE_BUFFER_CHECKS = (
    check_sequence_buffer_batches,
    check_sequence_buffer_updates,
    check_sequence_buffer_seeding,
    check_sequence_buffer_state,
)
"""All checks of a buffer of sequences, in the order in which they are run."""


def check_sequence_buffer(buffer: str | Factory) -> dict[str, str]:
    """Run every check of a buffer of sequences.

    Args:
        buffer: a registered name, or a function that makes the buffer from a
            :class:`rlox.replay.buffers.SequenceOptions`.

    Returns:
        The checks that did not apply, with the reason.

    Raises:
        AssertionError: a check failed; the text begins with its name.
    """
    return run_checks(SEQUENCE_BUFFER_CHECKS, buffer)
