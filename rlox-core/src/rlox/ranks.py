"""Ranks: one training in several processes, by torch.distributed.

Each rank steps envs of its own. Between ``backward`` and ``apply`` of
:class:`rlox.protocols.Optimizer` the gradients are averaged, so that all ranks take the same step
and keep the same parameters. Other numbers that must be equal on all ranks, such as counts of env
steps and the wish to stop, are agreed on here.
"""

from __future__ import annotations

import atexit
import hashlib
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from rlox.errors import ConfigError, WorkerLostError

if TYPE_CHECKING:
    from torch import Tensor

ResultT = TypeVar("ResultT")

TIMEOUT = 600.0
"""Seconds that a rank waits for the others."""


class Ranks:
    """This process as one rank of its training.

    All ranks must call every method, in the same order, and get the same result.

    Args:
        distributed: the module ``torch.distributed``, with its process group.
    """

    def __init__(self, distributed: Any) -> None:
        self._dist = distributed
        self.rank: int = distributed.get_rank()
        """Number of this process; rank 0 logs and saves."""
        self.size: int = distributed.get_world_size()
        """Number of ranks."""
        self.captures = "nccl" in str(distributed.get_backend_config())
        """Whether a CUDA graph may have its agreements; Gloo's pass through the host."""
        self.saving: str = "together"
        """Ranks that take part when rank 0 saves: ``"together"``: all, which call ``save`` too;
        ``"asked"``: all, at an iteration's end; ``"alone"``: no others."""
        # a separate group, so that a save without all ranks is not mistaken for another call
        self._texts = distributed.new_group()

    def let_go(self) -> None:
        """Drop its own process group, so that it ends with the others; call nothing afterwards."""
        self._texts = None

    def _together(self, what: str, call: Callable[[], ResultT]) -> ResultT:
        try:
            return call()
        except RuntimeError as error:
            raise WorkerLostError(
                f"rank {self.rank} of {self.size} lost another rank while it agreed on {what}: "
                f"{str(error).splitlines()[0]}"
            ) from error

    def average(self, tensor: Tensor, what: str = "gradients") -> None:
        """Replace a tensor by its mean over ranks, in place.

        Args:
            tensor: of the same shape on all ranks.
            what: its name in errors.

        Raises:
            WorkerLostError: another rank has gone, or does not answer.
        """
        self.add(tensor, what)
        tensor.div_(self.size)

    def add(self, tensor: Tensor, what: str) -> None:
        """Replace a tensor by its sum over ranks, in place; see :meth:`average`."""
        self._together(what, lambda: self._dist.all_reduce(tensor))

    def total(self, value: float, what: str) -> float:
        """Return the sum of a number over ranks, exact for whole numbers up to 2**53."""
        import torch

        sum_ = torch.tensor([value], dtype=torch.float64)
        self.add(sum_, what)
        return float(sum_)

    def gather(self, array: npt.NDArray[Any], what: str) -> list[npt.NDArray[np.float64]]:
        """Return the arrays of all ranks, of equal shape, in the order of ranks."""
        import torch

        own = torch.from_numpy(np.array(array, np.float64, ndmin=1))
        found = [torch.empty_like(own) for _ in range(self.size)]
        self._together(what, lambda: self._dist.all_gather(found, own))
        return [each.numpy() for each in found]

    def gather_text(self, text: str, what: str) -> list[str]:
        """Return the texts of all ranks, in their order."""
        import torch

        own = torch.frombuffer(bytearray(text.encode() or b" "), dtype=torch.uint8)
        group = self._texts

        def gathered(tensor: Tensor) -> list[Tensor]:
            found = [torch.empty_like(tensor) for _ in range(self.size)]
            self._together(what, lambda: self._dist.all_gather(found, tensor, group=group))
            return found

        sizes = [int(each) for each in gathered(torch.tensor([len(own)]))]
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(own)] = own
        found = zip(gathered(padded), sizes, strict=True)
        return [bytes(each[:size].tolist()).decode().strip() for each, size in found]

    def standardize(self, values: Tensor) -> Tensor:
        """Standardise (B,) values by the mean and standard deviation of all ranks' rows."""
        import torch

        sums = torch.stack([values.sum(), torch.full_like(values[0], len(values))])
        self.add(sums, "a mean over rows")
        centred = values - sums[0] / sums[1]
        squares = centred.square().sum()
        self.add(squares, "a deviation over rows")
        return centred / ((squares / (sums[1] - 1).clamp(min=1)).sqrt() + 1e-8)

    def require_equal(self, value: int, what: str) -> None:
        """Check that a whole number below 2**53 is the same on all ranks.

        Raises:
            ConfigError: it is not.
        """
        values = [int(each.item()) for each in self.gather(np.array(value), what)]
        if len(set(values)) > 1:
            raise ConfigError(
                f"all {self.size} ranks must have the same {what}, got {values} by rank"
            )

    def require_one_policy(self, optimizers: Mapping[str, Any]) -> None:
        """Check that all ranks have the same parameters, bit for bit.

        Args:
            optimizers: of the training, by name.

        Raises:
            ConfigError: they differ, which may happen with networks of the user's own.
        """
        for name, optimizer in optimizers.items():
            digest = hashlib.sha256(optimizer.parameters.detach().cpu().numpy().tobytes()).digest()
            self.require_equal(int.from_bytes(digest[:6], "big"), f"initial parameters of '{name}'")


RANKS: list[Ranks] = []
"""This process as one rank of its training; empty if it is the only process."""


def own_rank() -> int:
    """Return this process's rank; 0 if it is the only process."""
    return RANKS[0].rank if RANKS else 0


def agreed_seed(seed: int) -> int:
    """Return rank 0's seed."""
    if not RANKS:
        return seed
    return int(RANKS[0].total(0 if own_rank() else seed, "the seed"))


def join_ranks(timeout: float = TIMEOUT) -> Ranks | None:
    """Join the ranks that ``torchrun`` has started, before an algorithm is made.

    If the machine has a GPU for each of its ranks, ``device="cuda"`` is then the rank's own, and
    NCCL adds tensors there. Otherwise Gloo does, on the host.

    Args:
        timeout: seconds to wait for the others, now and at every agreement.

    Returns:
        This process as one of them; ``None`` if ``torchrun`` started only one, or is not used.

    Raises:
        ConfigError: the others cannot be reached.
    """
    if RANKS:
        return RANKS[0]
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return None
    # if imported later, its functions would keep the group as a default argument
    import torch.distributed.nn
    from torch import distributed

    if not distributed.is_initialized():
        backend, here = "gloo", int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        if torch.cuda.device_count() >= here and distributed.is_nccl_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            backend = "cpu:gloo,cuda:nccl"
        try:
            distributed.init_process_group(backend, timeout=timedelta(seconds=timeout))
        except (RuntimeError, ValueError) as error:
            raise ConfigError(
                f"rank {os.environ.get('RANK', '?')} of {os.environ['WORLD_SIZE']} cannot reach "
                f"the others: {str(error).splitlines()[0]}; start all with torchrun"
            ) from error
    RANKS.append(Ranks(distributed))
    atexit.register(leave_ranks)
    return RANKS[0]


def leave_ranks() -> None:
    """End the connection to the other ranks, if there is one; also done when Python exits.

    Gloo's threads end with the groups. A thread that outlived the interpreter would abort the
    process when dropping its last tensors.
    """
    if RANKS:
        from torch import distributed

        RANKS.pop().let_go()
        if distributed.is_initialized():
            distributed.destroy_process_group()
