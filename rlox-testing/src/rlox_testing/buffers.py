"""Conformance checks of :class:`rlox.protocols.ReplayBuffer`.

Every pushed transition differs from all others in each of its parts, so that a draw shows which
transition it is, and whether its parts belong together.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from rlox.errors import ConfigError
from rlox.protocols import PrioritizedBuffer, SegmentedBuffer, StatefulBuffer
from rlox.replay.buffers import BufferOptions, first_batch, make_buffer, pusher, require_transitions
from rlox.seeding import SeedStreams

from rlox_testing.probes import check, require, require_same, run_checks

Factory = Callable[[BufferOptions], Any]

VECTOR_STEPS, N_ENVS, EPISODE = 20, 3, 6
BATCH_SIZE = 40
OPTIONS = BufferOptions(
    capacity=100, obs_shape=(3,), obs_dtype="float32", act_shape=(2,), act_dtype="float32",
    n_envs=N_ENVS, n_step=1, gamma=0.5, seed=0,
)  # fmt: skip
KINDS = {
    "vectors": OPTIONS,
    "images and discrete actions": dataclasses.replace(
        OPTIONS, obs_shape=(2, 4, 5), obs_dtype="uint8", act_shape=(1,), act_dtype="int64"
    ),
    "more than fits": dataclasses.replace(OPTIONS, capacity=24),
}


@dataclass(frozen=True)
class _Step:
    """One vector step; transition i of N has the number ``2 * (t * N + i)`` in obs."""

    obs: npt.NDArray[Any]
    actions: npt.NDArray[Any]
    rewards: npt.NDArray[np.float64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    next_obs: npt.NDArray[Any]


def _steps(options: BufferOptions) -> Iterator[_Step]:
    """Return vector steps whose episodes end in turn by termination and truncation."""
    actions = (N_ENVS,) if options.act_dtype == "int64" else (N_ENVS, *options.act_shape)
    for t in range(VECTOR_STEPS):
        numbers = 2 * (t * N_ENVS + np.arange(N_ENVS))
        ended = (t + np.arange(N_ENVS)) % EPISODE == EPISODE - 1
        terminated = ended & (t % 2 == 0)
        following = np.where(ended, numbers + 1, numbers + 2 * N_ENVS)
        yield _Step(
            _filled(numbers, (N_ENVS, *options.obs_shape), options.obs_dtype),
            _filled(numbers if options.act_dtype == "int64" else numbers / 128, actions,
                    options.act_dtype),
            numbers / 4,
            terminated,
            ended & ~terminated,
            _filled(following, (N_ENVS, *options.obs_shape), options.obs_dtype),
        )  # fmt: skip


def _filled(numbers: npt.NDArray[Any], shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    column = numbers.reshape(-1, *(1,) * (len(shape) - 1))
    return np.broadcast_to(column, shape).astype(dtype)


def _make(buffer: str | Factory, options: BufferOptions) -> Any:
    return make_buffer(buffer if isinstance(buffer, str) else buffer(options), options)


def _fill(buffer: Any, options: BufferOptions) -> None:
    """Push all steps, and overwrite the arrays as an env may with its next step."""
    push = pusher(buffer)
    for step in _steps(options):
        arrays = list(vars(step).values())
        push(*arrays)
        for array in arrays:
            array[...] = 0


def _draws(buffer: Any, options: BufferOptions, n: int = 5) -> list[dict[str, npt.NDArray[Any]]]:
    """Return copies of some batches."""
    first, sample = first_batch(buffer, BATCH_SIZE, options, SeedStreams(options.seed))
    others = (sample(BATCH_SIZE) for _ in range(n - 1))
    return [{k: np.array(v) for k, v in batch.items()} for batch in chain([first], others)]


def _require_batch(batch: dict[str, Any], buffer: Any, options: BufferOptions) -> None:
    require_transitions(batch, buffer, BATCH_SIZE, options)
    rows = len(batch["obs"])
    require(rows == BATCH_SIZE, f"expected {BATCH_SIZE} transitions, as many as asked, got {rows}")
    for key, dtype in {"rewards": "float32", "terminated": "bool", "discounts": "float32",
                       "weights": "float32"}.items():  # fmt: skip
        got = batch[key].dtype if key in batch else dtype
        require(got == np.dtype(dtype), f"'{key}' must be {dtype}, got {got}")
    require("terminated" in batch, f"a batch must have 'terminated', got {sorted(batch)}")
    for key in ("obs", "next_obs", "actions"):
        flat = batch[key].reshape(BATCH_SIZE, -1)
        require((flat == flat[:, :1]).all(), f"the numbers of a row of '{key}' are mixed up")
    for row in range(BATCH_SIZE):
        _require_transition({key: array[row] for key, array in batch.items()}, options)


def _require_transition(row: dict[str, Any], options: BufferOptions) -> None:
    """Check that the parts of a drawn transition come from one pushed transition."""
    steps = list(_steps(options))
    first, obs = int(row["obs"].flat[0]) // 2, float(row["obs"].flat[0])
    t, i = divmod(first, N_ENVS)
    known = obs == 2 * first and t < VECTOR_STEPS
    require(known, f"obs {obs} was never pushed; a buffer must copy its input")
    action, drawn = steps[t].actions[i].flat[0], row["actions"].flat[0]
    require(drawn == action, f"the action of obs {obs} is {action}, got {drawn}")
    reward, k = 0.0, 0
    while True:
        step = steps[t + k]
        reward += options.gamma**k * step.rewards[i]
        k += 1
        ended = step.terminated[i] or step.truncated[i]
        if ended or k == options.n_step or t + k == VECTOR_STEPS:
            break
    got, span = float(row["next_obs"].flat[0]), f"{k} steps from obs {obs}"
    following = step.next_obs[i].flat[0]
    require(got == following, f"next_obs is {following} {span}, got {got}")
    require(np.isclose(row["rewards"], reward), f"Σ γⁱ r is {reward} {span}, got {row['rewards']}")
    for key in ("terminated", "truncated"):
        flag = getattr(step, key)[i]
        require(bool(row.get(key, flag)) == flag, f"'{key}' is {flag} {span}, got {row.get(key)}")
    discount = 0.0 if step.terminated[i] else options.gamma**k
    counts = row.get("discounts", discount)
    require(np.isclose(counts, discount), f"the discount is {discount} {span}, got {counts}")


@check
def check_buffer_batches(buffer: str | Factory) -> None:
    """Check keys, shapes and dtypes of batches, and that they hold pushed transitions."""
    for kind, options in KINDS.items():
        made = _make(buffer, options)
        require(len(made) == 0, f"a new buffer must be empty, got {len(made)} transitions")
        _fill(made, options)
        most = min(options.capacity, VECTOR_STEPS * N_ENVS)
        require(0 < len(made) <= most, f"{kind}: expected 1 to {most} stored, got {len(made)}")
        for batch in _draws(made, options):
            _require_batch(batch, made, options)


@check
def check_buffer_n_step(buffer: str | Factory) -> str | None:
    """Check transitions of three steps, unless the factory refuses them."""
    options = dataclasses.replace(OPTIONS, n_step=3)
    try:
        made = _make(buffer, options)
    except ConfigError as error:
        return f"the factory refuses n_step=3: {error}"
    _fill(made, options)
    for batch in _draws(made, options):
        _require_batch(batch, made, options)
    return None


@check
def check_buffer_seeding(buffer: str | Factory) -> None:
    """Check that two buffers of one seed draw the same batches, bit by bit."""
    batches = []
    for _ in range(2):
        made = _make(buffer, OPTIONS)
        _fill(made, OPTIONS)
        batches.append(_draws(made, OPTIONS))
    require_same(batches[0], batches[1], "BufferOptions.seed must fix the draws")


@check
def check_buffer_state(buffer: str | Factory) -> str | None:
    """Check that a buffer with another's state goes on in the same way."""
    made, other = _make(buffer, OPTIONS), _make(buffer, dataclasses.replace(OPTIONS, seed=1))
    if not isinstance(made, StatefulBuffer):
        return "the buffer does not expose its state (rlox.protocols.StatefulBuffer)"
    _fill(made, OPTIONS)
    state = made.state()
    kept = copy.deepcopy(state)
    straight = _draws(made, OPTIONS)
    _fill(made, OPTIONS)
    require_same(kept, state, "state() must return a copy, but the buffer changed it")
    other.set_state(state)
    require_same(straight, _draws(other, OPTIONS), "set_state() must go on exactly")
    return None


@check
def check_buffer_segments(buffer: str | Factory) -> str | None:
    """Check that a buffer reports its changed rows, and that its rows make up its state."""
    options = KINDS["more than fits"]
    made, other = _make(buffer, options), _make(buffer, options)
    if not isinstance(made, SegmentedBuffer):
        return "the buffer is not saved in segments (rlox.protocols.SegmentedBuffer)"
    push = pusher(made)
    mark, kept, overwritten = 0, _rows(made, 0), 0
    for step in _steps(options):
        push(*vars(step).values())
        mark, count, changed = made.changed_rows(mark)
        slots = {slot for start, stop in changed for slot in range(start, stop)}
        now = _rows(made, count)
        require_same(
            {slot: row for slot, row in kept.items() if slot not in slots},
            {slot: row for slot, row in now.items() if slot not in slots},
            "changed_rows() left out a changed row",
        )
        overwritten, kept = overwritten + len(slots), now
    most = VECTOR_STEPS * options.capacity
    require(overwritten < most, "changed_rows() must leave out rows that have not changed")
    whole = {**made.rest(), **made.rows(0, count)}
    require_same(made.state(), whole, "state() must be rest() and all rows()")
    mark = other.changed_rows(0)[0]
    other.set_state(whole)
    _, count, changed = other.changed_rows(mark)
    covered = sum(stop - start for start, stop in changed)
    require(covered == count, f"set_state() changes all {count} rows, changed_rows() has {covered}")
    return None


def _rows(buffer: SegmentedBuffer, count: int) -> dict[int, Any]:
    return {slot: buffer.rows(slot, slot + 1) for slot in range(count)}


@check
def check_buffer_priorities(buffer: str | Factory) -> str | None:
    """Check that a transition with nearly all of the priority makes up nearly all draws."""
    made = _make(buffer, OPTIONS)
    if not isinstance(made, PrioritizedBuffer):
        return "the buffer has no priorities (rlox.protocols.PrioritizedBuffer)"
    _fill(made, OPTIONS)
    made.set_beta(1.0)
    _, sample = first_batch(made, BATCH_SIZE, OPTIONS, SeedStreams(OPTIONS.seed))
    # enough draws to update every transition's first priority
    for _ in range(20):
        batch = sample(BATCH_SIZE)
        for key in ("indices", "weights"):
            require(key in batch, f"a batch must have '{key}', got {sorted(batch)}")
            shape = np.shape(batch[key])
            require(shape == (BATCH_SIZE,), f"'{key}' must be ({BATCH_SIZE},), got {shape}")
        favourite = batch["obs"][:, 0] == 0
        made.update_priorities(batch["indices"], np.where(favourite, 1e12, 1e-6))
    share = (sample(BATCH_SIZE)["obs"][:, 0] == 0).mean()
    require(share > 0.5, f"most of a batch must be of the highest priority, got {share:.0%}")
    return None


BUFFER_CHECKS = (
    check_buffer_batches,
    check_buffer_n_step,
    check_buffer_seeding,
    check_buffer_state,
    check_buffer_segments,
    check_buffer_priorities,
)
"""All checks of a replay buffer, in the order in which :func:`check_buffer` runs them."""


def check_buffer(buffer: str | Factory) -> dict[str, str]:
    """Run every check of a replay buffer, on vectors, images, and more rows than its capacity.

    Not for buffers that change transitions, as hindsight experience replay does.

    Args:
        buffer: a registered name, or a function that makes the buffer from a
            :class:`rlox.replay.buffers.BufferOptions`.

    Returns:
        The checks that did not apply, with the reason.

    Raises:
        AssertionError: a check failed; the text begins with its name.
    """
    return run_checks(BUFFER_CHECKS, buffer)
