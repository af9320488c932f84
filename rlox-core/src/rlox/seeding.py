"""One seed, many named independent random streams.

Every random draw of a run comes from a stream named after its use, so adding a draw to one part
does not change any other part's draws. Stream ``name`` of seed ``s`` is the NumPy
``SeedSequence(s, spawn_key=sha256(name))``: neighbouring seeds share nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rlox.errors import MISFITS, CheckpointError, ConfigError, EnvError

if TYPE_CHECKING:
    import torch


def draw_seed() -> int:
    """Return a fresh seed in [0, 2**32) from the operating system's entropy."""
    return int(np.random.SeedSequence().generate_state(1)[0])


@cache
def _count_gpus() -> int:
    """Return the number of CUDA devices, without using one."""
    import torch

    return torch.cuda.device_count()


MAX_SEEDS = 10_000
"""Maximum number of seeds in one text; more are a mistake."""


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds in a text such as ``"5"``, ``"0..4"``, ``"0,3,7"`` or ``"0..2,9"``.

    Args:
        text: number of seeds, starting at 0; or seeds, and ranges that include both ends, separated
            by commas.

    Raises:
        ConfigError: the text has another form, or names a seed twice.
    """
    count = re.fullmatch(r"\s*(\d{1,10})\s*", text)
    listed = f"0..{int(count[1]) - 1}" if count else text
    seeds: list[int] = []
    for part in listed.split(","):
        match = re.fullmatch(r"\s*(\d{1,10})(?:\.\.(\d{1,10}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first or last - first >= MAX_SEEDS:
            raise ConfigError(
                f"seeds must look like 5, 0..4 or 0,3,7 (at most {MAX_SEEDS:,}), got {text!r}"
            )
        seeds += range(first, last + 1)
    if repeated := sorted({seed for seed in seeds if seeds.count(seed) > 1}):
        raise ConfigError(f"each seed may be named once, got {repeated[0]} twice in {text!r}")
    return tuple(seeds)


class SeedStreams:
    """Named random generators derived from one seed; their states are saved in checkpoints.

    Args:
        seed: non-negative integer.
        rank: of the process in its training. Seeds differ by rank from the beginning; generators
            are the same on all ranks until :meth:`spread`, so that all ranks begin with one
            policy.
    """

    def __init__(self, seed: int, rank: int = 0) -> None:
        self.seed = seed
        self._rank = rank
        self.is_spread = False
        """Whether :meth:`spread` was called since the beginning or the last restore."""
        self._key: tuple[int, ...] = ()
        self._numpy: dict[str, np.random.Generator] = {}
        self._torch: dict[str, torch.Generator] = {}

    def _sequence(self, name: str, key: tuple[int, ...] = ()) -> np.random.SeedSequence:
        digest = hashlib.sha256(name.encode()).digest()[:16]
        words = tuple(int(word) for word in np.frombuffer(digest, "<u4"))
        return np.random.SeedSequence(self.seed, spawn_key=(*words, *key))

    def spread(self, steps: int) -> None:
        """Make the generators of ranks above 0 differ from rank 0's.

        Args:
            steps: done so far, so that a continued training does not repeat its draws.
        """
        self.is_spread = True
        if not self._rank:
            return
        self._key = (self._rank, steps)
        for name, rng in self._numpy.items():
            rng.bit_generator.state = np.random.PCG64(self._sequence(name, self._key)).state
        for name, generator in self._torch.items():
            generator.manual_seed(self._torch_seed(name))

    def _torch_seed(self, name: str) -> int:
        return int(self._sequence(name, self._key).generate_state(1, np.uint64)[0]) >> 1

    def seeds(self, name: str, count: int, *, shared: bool = False) -> list[int]:
        """Return ``count`` seeds in [0, 2**32) of the stream ``name``; the same at every call.

        Args:
            name: of the stream.
            count: number of seeds.
            shared: whether they are the same on all ranks.
        """
        key = (self._rank,) if self._rank and not shared else ()
        return [int(word) for word in self._sequence(name, key).generate_state(count)]

    def numpy(self, name: str) -> np.random.Generator:
        """Return the NumPy generator of the stream ``name``; one object per name."""
        if name not in self._numpy:
            bits = np.random.PCG64(self._sequence(name, self._key))
            self._numpy[name] = np.random.Generator(bits)
        return self._numpy[name]

    def torch(self, name: str, device: torch.device | None = None) -> torch.Generator:
        """Return the torch generator of the stream ``name``; one object per name.

        By default it draws on the CPU, so that a seed gives the same draws for every learning
        device.
        """
        import torch

        if name not in self._torch:
            generator = torch.Generator(device or "cpu")
            generator.manual_seed(self._torch_seed(name))
            self._torch[name] = generator
        return self._torch[name]

    @contextmanager
    def as_global(self, name: str) -> Iterator[None]:
        """Let code that draws from torch's global generator draw from the stream ``name``.

        Examples are dropout, ``torch.multinomial`` without a generator, and a user's env on the
        device. After the block the caller's generators are as before. CUDA devices are seeded from
        a stream of their own, so that draws on the CPU do not depend on the presence or earlier use
        of such devices.
        """
        import torch

        stream, count = self.torch(name), _count_gpus()
        used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        unused = torch.initial_seed()  # torch's seed for devices on their first use
        with torch.random.fork_rng(devices=list(range(count)) if used else []):
            if count:
                of_devices = self.torch(f"{name}, on CUDA")
                torch.cuda.manual_seed_all(int(torch.randint(2**62, (), generator=of_devices)))
            torch.set_rng_state(stream.get_state())
            try:
                yield
            finally:
                stream.set_state(torch.get_rng_state())
                if count and not used:
                    torch.cuda.manual_seed_all(unused)

    def state_dict(self) -> dict[str, Any]:
        """Return the seed and the state of every stream used so far."""
        return {
            "seed": self.seed,
            # for streams that are used later
            **({"key": list(self._key)} if self.is_spread else {}),
            "numpy": {name: rng.bit_generator.state for name, rng in self._numpy.items()},
            "torch": {name: rng.get_state().numpy() for name, rng in self._torch.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any], *, own: bool = False) -> None:
        """Restore every stream from :meth:`state_dict`'s result.

        Args:
            state: the result of :meth:`state_dict`.
            own: whether it is this rank's own, so that streams that were spread are restored as
                such; otherwise ranks above 0 are spread later.

        Raises:
            CheckpointError: a stream's state has the wrong form.
        """
        self.is_spread = own and "key" in state
        try:
            self.seed = int(state["seed"])
            self._key = tuple(map(int, state["key"])) if self.is_spread else ()
            for name, numpy_state in state["numpy"].items():
                self.numpy(name).bit_generator.state = numpy_state
            for name, torch_state in state["torch"].items():
                restore_generator(self.torch(name), torch_state)
        except MISFITS as error:
            raise CheckpointError(f"random stream cannot be restored: {error}") from None


GPU_STATE = 16
"""Bytes of the state of a generator on a GPU; a CPU's has thousands."""


def restore_generator(generator: torch.Generator, state: Any) -> None:
    """Set a torch generator's state; one of the other kind of device is left out.

    Args:
        generator: continues where the state was taken.
        state: bytes, the result of ``get_state``.
    """
    import torch

    saved = torch.from_numpy(np.array(state))
    if (len(saved) == GPU_STATE) == (generator.device.type != "cpu"):
        generator.set_state(saved)


def env_seeds(seed: int | Sequence[int] | None, n_envs: int) -> list[Any]:
    """Return one seed per env for :meth:`rlox.protocols.VecEnv.reset_all`.

    Args:
        seed: an integer s seeds env i with s + i; a sequence has one seed per env; ``None`` seeds
            none.
        n_envs: number of envs N.

    Raises:
        EnvError: the sequence's length is not N, or a seed is not an integer of 64 bits.
    """
    if seed is None:
        return [None] * n_envs
    seeds = list(seed) if isinstance(seed, Iterable) else [seed + i for i in range(n_envs)]
    if len(seeds) != n_envs:
        raise EnvError(f"seed has {len(seeds)} seeds for {n_envs} envs; give one per env")
    for one in seeds:
        if not isinstance(one, (int, np.integer)) or not 0 <= one < 1 << 64:
            raise EnvError(f"seed must be integers from 0 to 2**64 - 1, got {one!r}")
    return [int(one) for one in seeds]


class ResetSeeds:
    """Seeds of N envs for each reset of a run, so that no reset repeats another's episodes.

    Args:
        seed: of the first reset.
        n_envs: number of envs N.
    """

    def __init__(self, seed: int, n_envs: int) -> None:
        self._n_envs = n_envs
        self._first = SeedStreams(seed).seeds("envs", n_envs)
        self.resets = 0
        """Number of successful resets so far, counted by the owner."""
        self._goes_on = False

    @property
    def begun(self) -> bool:
        """Whether episodes have begun, here or in the run that this one continues."""
        return self.resets > 0 or self._goes_on

    def next(self) -> list[int]:
        """Return the seeds (N,) of the next reset."""
        return self._after(f"{self.resets} resets") if self.resets else self._first

    def go_on_after(self, episodes: int) -> None:
        """Switch to other seeds than the run's first ones, to continue after ``episodes``."""
        self._first, self._goes_on = self._after(f"{episodes} episodes"), True

    def _after(self, what: str) -> list[int]:
        return SeedStreams(self._first[0]).seeds(f"envs after {what}", self._n_envs)
