"""Plans of actors, and their protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy.typing as npt

from rlox.batches.rollout import Unroll
from rlox.batches.unrolls import moments_from_arrays, moments_to_arrays
from rlox.config.composition import Selection
from rlox.envs.gymnasium import Vectorization
from rlox.seeding import SeedStreams

__all__ = ["Actor", "ActorPlan", "Weights", "backend_of_actor"]

PARAMETERS, BUFFER = "", "buffer:"
"""How weights are named where they are sent."""


def backend_of_actor(backend: str | Selection, index: int, n_actors: int) -> str | Selection:
    """Return the env backend of one of several actors; see :class:`rlox.EnvBackendSpec`."""
    if not isinstance(backend, Selection) or not hasattr(backend.options, "for_actor"):
        return backend
    options: Any = backend.options
    return Selection(backend.name, options.for_actor(index, n_actors))


@dataclass(frozen=True)
class Weights:
    """What an actor acts with; whoever made it changes it no more."""

    version: int
    """How many updates the learner had taken."""
    parameters: npt.NDArray[Any]
    """(P,) the optimiser's flat parameters."""
    moments: Mapping[str, Mapping[str, Any]] | None = None
    """Moments of all observations by leaf, if they are normalised."""
    buffers: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    """The policy's buffers by name, as those of batch normalisation."""

    @cached_property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All of them by name, to send: of one version always the same object."""
        given = {PARAMETERS: self.parameters}
        given |= {f"{BUFFER}{name}": buffer for name, buffer in self.buffers.items()}
        return given | moments_to_arrays(self.moments)

    @staticmethod
    def of_arrays(version: int, arrays: Mapping[str, npt.NDArray[Any]]) -> Weights:
        """Return the weights whose :attr:`arrays` these are."""
        given = {name: array for name, array in arrays.items() if name.startswith(BUFFER)}
        buffers = {name.removeprefix(BUFFER): array for name, array in given.items()}
        return Weights(version, arrays[PARAMETERS], moments_from_arrays(arrays), buffers)


class Actor(Protocol):
    """Steps envs of its own with a copy of the policy; one call at a time, from any thread."""

    @property
    def restarts(self) -> int:
        """How often it had to begin again."""

    def collect(self, weights: Weights) -> Unroll:
        """Return the next unroll of newly allocated arrays, acted with ``weights``."""

    def state_dict(self) -> dict[str, Any]:
        """Return what decides how its envs and its draws go on."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""

    def interrupt(self) -> None:
        """Let a :meth:`collect` under way end soon, if need be by failing; there is no other."""

    def close(self) -> None:
        """Free envs and processes."""


@dataclass(frozen=True)
class ActorPlan:
    """What every actor of a training is built from."""

    env: Any
    """An id, a callable that makes an env, or a sequence of vector envs, one for each actor."""
    policy: Any
    """Copied by each actor; on the CPU, and without a generator."""
    n_actors: int
    n_envs: int
    """Envs of each actor N."""
    n_steps: int
    """Steps of an unroll T."""
    seed: int
    """Fixes the streams of all actors."""
    backend: str = "auto"
    """Learner backend whose way of acting is taken."""
    env_backend: str | Selection = "auto"
    """With its options; those of workers are divided among the actors."""
    vectorization: Vectorization = "sync"
    env_kwargs: Mapping[str, Any] | None = None
    normalize_observations: bool = False
    frame_stack: int = 1
    torch_threads: int | None = 1
    deadline: float = 60.0
    """Seconds an actor elsewhere may take for one step of its envs."""
    max_restarts: int = 3
    """How often each actor elsewhere may begin again."""

    def streams(self, index: int, attempt: int = 0) -> SeedStreams:
        """Return the random streams of actor ``index`` when it begins for the n-th time."""
        name = f"actors, attempt {attempt}" if attempt else "actors"
        return SeedStreams(SeedStreams(self.seed).seeds(name, self.n_actors)[index])

    def env_backend_of(self, index: int) -> str | Selection:
        """Return the env backend of actor ``index``."""
        return backend_of_actor(self.env_backend, index, self.n_actors)

    def env_of(self, index: int) -> Any:
        """Return what actor ``index`` steps."""
        return self.env[index] if isinstance(self.env, (list, tuple)) else self.env
