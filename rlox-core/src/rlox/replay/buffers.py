"""Replay buffers by name, and their options.

The first batch that a buffer returns is checked. A batch of other shapes would be broadcast against
the networks' outputs, and silently destroy the learning. One batch is enough, because all batches
come from the same code.
"""

from __future__ import annotations

import inspect
import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from rlox import kernels
from rlox.config.model import Config, choice, count, option, probability
from rlox.errors import ConfigError
from rlox.files import require_memory_for
from rlox.protocols import ReplayBuffer, ReplayBufferProtocol, SequenceBuffer
from rlox.registry.table import get_registry
from rlox.seeding import SeedStreams
from rlox.spaces.rows import channels_first

ANDRYCHOWICZ = "Andrychowicz et al. 2017"
SCHAUL = "Schaul et al. 2016"


class PrioritizedOptions(Config):
    """Options of the buffer ``prioritized``."""

    priority_alpha: float = probability(
        0.6, help="exponent α of the priorities", source=f"{SCHAUL}, table 3"
    )


class HindsightOptions(Config):
    """Options of the buffer ``her``."""

    n_sampled_goal: int = count(
        4, unit="transitions", source=f"{ANDRYCHOWICZ}, sec. 4.5",
        help="transitions that get another goal, for each that keeps its own",
    )  # fmt: skip
    goal_selection_strategy: Literal["future", "final", "episode"] = choice(
        "future", help="which goal that its episode reached a transition gets",
        source=f"{ANDRYCHOWICZ}, sec. 4.5",
    )  # fmt: skip


class MmapOptions(Config):
    """Options of the buffer ``mmap``."""

    hot_capacity: int = count(
        100_000, unit="transitions", help="transitions that lie in memory", source="rlox"
    )
    buffer_folder: str | None = option(
        None, help="where the file is; None: the folder of temporary files", unit="path",
        source="rlox",
    )  # fmt: skip


@dataclass(frozen=True)
class GoalOptions:
    """Goals as parts of flat observations, and the rewards for reaching them.

    The functions are those of gymnasium-robotics' ``GoalEnv``, for M transitions at once: their
    arguments are achieved goals (M, size), desired goals (M, size) and an empty dict.
    """

    size: int
    """Length of a goal."""
    achieved: int
    """Index of the first component of the achieved goal in an observation."""
    desired: int
    """Index of the first component of the desired goal."""
    compute_reward: Callable[..., Any]
    """Returns rewards (M,)."""
    compute_terminated: Callable[..., Any] | None = None
    """Returns whether the task has ended, (M,); ``None``: goals do not affect that."""


@dataclass(frozen=True)
class BufferOptions:
    """An algorithm's request for a replay buffer.

    A factory uses the options that apply to it, and refuses an ``n_step`` that it does not support.
    Options of a single kind of buffer are in that buffer's own model; see :class:`rlox.BufferSpec`.
    """

    capacity: int
    """Capacity in transitions."""
    obs_shape: tuple[int, ...]
    """Shape of one observation."""
    obs_dtype: str
    """``"float32"``; ``"uint8"`` for images and for nested observations of several dtypes, see
    :mod:`rlox.replay.codecs`; ``"int64"`` for discrete ones."""
    act_shape: tuple[int, ...]
    """Shape of one action; (1,) for a discrete one."""
    act_dtype: str
    """``"float32"``, or ``"int64"`` for discrete actions."""
    n_envs: int
    """Number of rows in every ``push_batch``: row i belongs to env i."""
    n_step: int
    """Steps of its env that a drawn transition spans, or fewer if the buffer has fewer; above 1,
    batches must have ``discounts``."""
    gamma: float
    """Discount γ per step."""
    seed: int
    """Seed of the buffer's draws."""
    goals: GoalOptions | None = None
    """Goals of the env, whose observations are then flat, for a buffer whose spec asks for them;
    see :class:`rlox.BufferSpec`."""

    @property
    def rows(self) -> dict[str, Any]:
        """Arguments shared by all buffers of rlox: dtypes of the rows, and the seed."""
        return {"obs_dtype": self.obs_dtype, "act_dtype": self.act_dtype, "seed": self.seed}

    @property
    def steps(self) -> dict[str, Any]:
        """More arguments, for buffers whose transitions may span several steps.

        Frames of images are stored once; the channels may be a stack of frames.
        """
        images = self.obs_dtype == "uint8" and channels_first(self.obs_shape)
        spans = {"n_envs": self.n_envs, "n_step": self.n_step, "gamma": self.gamma}
        return spans | ({"share_frames": True} if images else {})


def uniform_buffer(asked: BufferOptions) -> ReplayBuffer:
    """Return a ``rlox.ReplayBuffer``."""
    return _make("ReplayBuffer", asked, **asked.steps)


def prioritized_buffer(asked: BufferOptions, *, options: PrioritizedOptions) -> ReplayBuffer:
    """Return a ``rlox.PrioritizedReplayBuffer``."""
    return _make("PrioritizedReplayBuffer", asked, options.priority_alpha, **asked.steps)


def _make(kind: str, asked: BufferOptions, *more: Any, **options: Any) -> ReplayBuffer:
    make = getattr(kernels.backend(), kind)
    sizes = asked.capacity, asked.obs_shape, asked.act_shape
    return cast("ReplayBuffer", make(*sizes, *more, **asked.rows, **options))


def her_buffer(asked: BufferOptions, *, options: HindsightOptions) -> ReplayBuffer:
    """Return a ``rlox.HerReplayBuffer``.

    Raises:
        ConfigError: transitions are to span several steps.
    """
    goals: Any = asked.goals
    if asked.n_step != 1:
        raise ConfigError(
            f"buffer 'her' gives transitions of one step other goals, got n_step={asked.n_step}; "
            "set n_step=1"
        )
    made = kernels.backend().HerReplayBuffer(
        asked.capacity,
        asked.obs_shape[0],
        asked.act_shape,
        goals.size,
        goals.compute_reward,
        compute_terminated=goals.compute_terminated,
        n_sampled_goal=options.n_sampled_goal,
        goal_selection_strategy=options.goal_selection_strategy,
        achieved_goal=goals.achieved,
        desired_goal=goals.desired,
        n_envs=asked.n_envs,
        **asked.rows,
    )
    return cast("ReplayBuffer", made)


def mmap_buffer(asked: BufferOptions, *, options: MmapOptions) -> ReplayBuffer:
    """Return a ``rlox.MmapReplayBuffer`` over a new file, which goes when the buffer is closed.

    Raises:
        ConfigError: transitions are to span several steps, or the folder cannot be written to.
    """
    if asked.n_step != 1:
        raise ConfigError(
            f"buffer 'mmap' keeps transitions of one step, got n_step={asked.n_step}; set n_step=1"
        )
    import rlox

    try:
        folder = options.buffer_folder
        descriptor, path = tempfile.mkstemp(prefix="replay-", suffix=".rlox", dir=folder)
    except OSError as error:
        raise ConfigError(
            f"buffer 'mmap' needs a folder to write to, got {folder!r}: {error}"
        ) from None
    os.close(descriptor)
    made = rlox.MmapReplayBuffer(
        min(options.hot_capacity, asked.capacity),
        asked.capacity,
        asked.obs_shape,
        asked.act_shape,
        path,
        **asked.rows,
    )
    return cast("ReplayBuffer", made)


def cut_episodes(state: dict[str, Any], n_envs: int) -> dict[str, Any]:
    """Return a saved buffer with its running episodes truncated at their newest steps.

    Args:
        state: state of a rlox buffer, or of one with the same keys; any other state is returned
            unchanged.
        n_envs: number of envs that were pushed in turn.
    """
    if not {"terminated", "truncated", "position"} <= state.keys() or not len(state["truncated"]):
        return state
    count = len(state["truncated"])
    newest = (int(state["position"][0]) - 1 - np.arange(min(n_envs, count))) % count
    truncated = np.array(state["truncated"], np.bool_)
    truncated[newest] |= ~np.asarray(state["terminated"], np.bool_)[newest]
    return {**state, "truncated": truncated}


def make_buffer(
    buffer: Any, asked: BufferOptions, options: Any = None
) -> ReplayBuffer | ReplayBufferProtocol:
    """Return a replay buffer.

    Args:
        buffer: a registered name, or a buffer, which is returned unchanged.
        asked: requirements, if the buffer is made here.
        options: an instance of the model of the buffer's own options, if it is made here; ``None``:
            the defaults.

    Raises:
        UnknownNameError: no buffer is registered under the name.
        ConfigError: an object has the methods of neither :class:`rlox.protocols.ReplayBuffer` nor
            :class:`rlox.protocols.ReplayBufferProtocol`, or draws from several steps of an env
            and was made for another number of envs or another ``gamma``; or a named buffer has
            another ``n_step`` or stores sequences.
    """
    if isinstance(buffer, str):
        name = buffer
        registration = get_registry().get("rlox_buffers", name)
        if registration.spec.sequences:
            raise ConfigError(
                f"buffer '{name}' stores sequences of rows, and this algorithm draws transitions; "
                "take buffer='uniform'"
            )
        if registration.spec.in_memory:
            _require_memory(asked)
        buffer = registration.build(asked, options=options)
        n_step = getattr(buffer, "n_step", asked.n_step)
        if n_step != asked.n_step:
            raise ConfigError(
                f"buffer '{name}' made a {type(buffer).__name__} with n_step={n_step}, and "
                f"n_step={asked.n_step} was asked for; set n_step={n_step} or take "
                "buffer='uniform'"
            )
    needed = ("push_batch or push", "sample", "__len__")
    missing = [m for m in needed if not any(hasattr(buffer, name) for name in m.split(" or "))]
    if missing:
        raise ConfigError(
            "buffer must be a registered name or an object with push_batch or push, sample and "
            f"__len__, got {type(buffer).__name__} without {', '.join(missing)}"
        )
    relabels = hasattr(buffer, "truncate_episodes") and not hasattr(buffer, "n_step")
    looks_ahead = relabels or getattr(buffer, "n_step", 1) > 1
    made_for = getattr(buffer, "n_envs", asked.n_envs)
    if looks_ahead and made_for != asked.n_envs:
        raise ConfigError(
            f"{type(buffer).__name__} was made with n_envs={made_for} and gets the steps of "
            f"{asked.n_envs} envs, which it would take for those of others; make it with "
            f"n_envs={asked.n_envs}"
        )
    gamma = getattr(buffer, "gamma", asked.gamma)
    if getattr(buffer, "n_step", 1) > 1 and gamma != asked.gamma:
        raise ConfigError(
            f"{type(buffer).__name__} discounts its steps by gamma={gamma}, and gamma="
            f"{asked.gamma} was asked for; make both the same"
        )
    return cast("ReplayBuffer", buffer)


def _require_memory(asked: BufferOptions) -> None:
    """Refuse a buffer that exceeds the memory, whatever its kind.

    Observations and next observations are two arrays, except for images, which may share frames.
    """
    obs = int(np.prod(asked.obs_shape[1:] if "share_frames" in asked.steps else asked.obs_shape))
    copies = 1 if "share_frames" in asked.steps else 2
    actions = int(np.prod(asked.act_shape)) * np.dtype(asked.act_dtype).itemsize
    row = copies * obs * np.dtype(asked.obs_dtype).itemsize + actions + 6
    require_memory_for(
        "buffer_size", asked.capacity, asked.capacity * row, "keep fewer transitions"
    )


def pusher(buffer: Any) -> Callable[..., None]:
    """Return ``push_batch`` of a buffer, or a loop over its ``push`` if it has nothing else."""
    if hasattr(buffer, "push_batch"):
        return cast("Callable[..., None]", buffer.push_batch)

    def push_rows(obs: Any, actions: Any, *columns: Any) -> None:
        rewards, terminated, truncated, next_obs = columns
        flags = (column.tolist() for column in (rewards, terminated, truncated))
        for row in zip(obs, actions, *flags, next_obs, strict=True):
            buffer.push(*row)

    return push_rows


Conversion = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]

Sample = Callable[[int], Mapping[str, Any]]
"""Maps a number of transitions B to a batch of them."""


def first_batch(
    buffer: Any, batch_size: int, options: BufferOptions, streams: SeedStreams
) -> tuple[Mapping[str, Any], Sample]:
    """Return a checked batch, and a function that draws the next ones without a check.

    Numbers of other types are converted, discrete actions only if they are whole (else a
    ValueError), and single actions (B,) become (B, 1).

    Args:
        buffer: result of :func:`rlox.replay.buffers.make_buffer`.
        batch_size: transitions B.
        options: requirements that the buffer was made for.
        streams: the run's random streams, for the seeds of a buffer that has only ``push``.

    Raises:
        ConfigError: see :func:`require_transitions`.
    """
    draw: Sample = buffer.sample
    if not hasattr(buffer, "push_batch") and "seed" in inspect.signature(draw).parameters:
        seeds = streams.numpy("replay draws")
        draw = lambda batch_size: buffer.sample(batch_size, seed=int(seeds.integers(2**32)))  # noqa: E731
    drawn = draw(batch_size)
    conversions = require_transitions(drawn, buffer, batch_size, options)
    if not conversions:
        return drawn, draw

    def converted(drawn: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**drawn, **{key: convert(drawn[key]) for key, convert in conversions.items()}}

    return converted(drawn), lambda batch_size: converted(draw(batch_size))


def require_transitions(
    drawn: Any, buffer: object, batch_size: int, options: BufferOptions
) -> dict[str, Conversion]:
    """Check the keys, shapes and dtypes of a batch.

    Args:
        drawn: result of the buffer's ``sample``; see
            :meth:`rlox.protocols.ReplayBuffer.sample`.
        buffer: the buffer.
        batch_size: number of transitions B requested.
        options: requirements that the buffer was made for.

    Returns:
        By key, a function that converts the array to the expected type and shape; only for arrays
        that need it.

    Raises:
        ConfigError: the batch does not match; the text names the buffer's class, the key, the
            expected and the actual array.
    """
    called = f"{type(buffer).__name__}.sample({batch_size})"
    if not isinstance(drawn, Mapping):
        raise ConfigError(f"{called} must return arrays by key, got {type(drawn).__name__}")
    n_step = max(options.n_step, getattr(buffer, "n_step", 1))
    if n_step > 1 and drawn.get("discounts") is None:
        raise ConfigError(
            f"{called} returns no 'discounts', which say how many steps its transitions span, "
            f"where n_step={n_step}; set n_step=1 or take buffer='uniform'"
        )
    # a buffer with fewer transitions than requested may return all it has
    rows = getattr(drawn.get("obs"), "shape", (batch_size,))[:1]
    expected: dict[str, tuple[tuple[int, ...], str]] = {
        "obs": ((*rows, *options.obs_shape), options.obs_dtype),
        "actions": ((*rows, *options.act_shape), options.act_dtype),
        "rewards": (rows, "float32"),
        "next_obs": ((*rows, *options.obs_shape), options.obs_dtype),
    }
    if drawn.get("discounts") is None:
        expected["terminated"] = rows, "bool"
    optional = {"terminated": "bool", "truncated": "bool", "discounts": "float32"}
    optional["weights"] = "float32"
    expected |= {key: (rows, dtype) for key, dtype in optional.items() if key in drawn}
    conversions: dict[str, Conversion] = {}
    for key, (shape, dtype) in expected.items():
        asked = f"{called} must return '{key}', an array {shape} of {dtype}"
        try:
            got = drawn[key]
        except KeyError as error:
            raise ConfigError(f"{asked}, got the keys {sorted(drawn)}: {error}") from None
        if not isinstance(got, np.ndarray):
            raise ConfigError(f"{asked}, got {type(got).__name__}")
        single = key == "actions" and got.shape == rows and shape == (*rows, 1)
        other = got.dtype != dtype
        # networks recognise images by their dtype
        numbers = got.dtype.kind in "biuf" and dtype != "uint8"
        if (got.shape != shape and not single) or (other and not numbers):
            raise ConfigError(f"{asked}, got {got.shape} of {got.dtype}")
        if single or (other and dtype != "bool"):
            whole = key == "actions" and dtype == "int64"
            conversions[key] = partial(_convert, dtype=dtype, single=single, whole=whole)
    return conversions


def _convert(array: npt.NDArray[Any], *, dtype: str, single: bool, whole: bool) -> npt.NDArray[Any]:
    with np.errstate(invalid="ignore"):  # NaN is not a whole number
        converted = array.astype(dtype, copy=False)
    if whole and len(wrong := array[array != converted]):
        raise ValueError(
            "discrete actions must be whole numbers, the replay buffer gave "
            f"{wrong[0].item():.6g}; make it with act_dtype='int64'"
        )
    return converted[:, None] if single else converted


@dataclass(frozen=True)
class SequenceOptions:
    """An algorithm's request for a replay buffer of sequences."""

    capacity: int
    """Capacity in rows, over all streams."""
    fields: Mapping[str, tuple[Sequence[int], npt.DTypeLike]]
    """Shape and dtype of a row's fields by name."""
    n_envs: int
    """Number of streams."""
    seed: int
    """Seed of the buffer's draws."""
    declared: tuple[str, ...] = ()
    """Fields that are written back."""
    online_length: int | None = None
    """Rows of the sequences that are drawn once, when they are new, before any other; ``None``
    draws uniformly only."""


def sequence_buffer(asked: SequenceOptions) -> SequenceBuffer:
    """Return a ``rlox.SequenceReplayBuffer``."""
    made = kernels.backend().SequenceReplayBuffer(**vars(asked))
    return cast("SequenceBuffer", made)


def make_sequence_buffer(
    buffer: Any, asked: SequenceOptions, options: Any = None
) -> SequenceBuffer:
    """Return a buffer of sequences.

    Args:
        buffer: a registered name, or a buffer, which is returned unchanged.
        asked: requirements, if the buffer is made here.
        options: an instance of the model of the buffer's own options; ``None`` takes the defaults.

    Raises:
        UnknownNameError: no buffer is registered under the name.
        ConfigError: the buffer stores transitions, or lacks a method of
            :class:`rlox.protocols.SequenceBuffer`.
        MemoryLimitError: the rows exceed the memory.
    """
    if isinstance(buffer, str):
        registration = get_registry().get("rlox_buffers", buffer)
        if not registration.spec.sequences:
            raise ConfigError(
                f"buffer '{buffer}' stores transitions, and this algorithm draws sequences of "
                "rows; take buffer='sequence'"
            )
        fields = asked.fields.values()
        row = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in fields)
        require_memory_for("buffer_size", asked.capacity, asked.capacity * row, "keep fewer rows")
        buffer = registration.build(asked, options=options)
    if not isinstance(buffer, SequenceBuffer):
        raise ConfigError(
            "buffer must be a registered name or have the methods of "
            f"rlox.protocols.SequenceBuffer, got {type(buffer).__name__}"
        )
    return buffer
