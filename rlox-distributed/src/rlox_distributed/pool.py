"""Vector envs whose envs are stepped by workers on other machines."""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Mapping, Sequence
from operator import setitem
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
import rlox
from gymnasium.vector.utils import batch_space
from rlox.envs.action_batches import batch_of_actions
from rlox.envs.workers import Supervisor
from rlox.errors import EnvError, WorkerLostError
from rlox.protocols import VecEnvStep
from rlox.spaces.nested import map_leaves, split

from rlox_distributed.link import Link, NewSessionError
from rlox_distributed.protocol import workers_pb2 as pb
from rlox_distributed.security import Credentials
from rlox_distributed.spaces import Leaves, arguments_to_json, space_from_json
from rlox_distributed.worker import PROTOCOL_VERSION

__all__ = ["RemoteEnvPool"]


class RemoteEnvPool:
    """The envs of all workers, stepped together; a :class:`rlox.protocols.VecEnv`.

    A stream that breaks is opened again and the request repeated under its number: the worker
    answers it from memory if it has done it. The envs of a worker that was restarted begin new
    episodes, and their rows of the step are ``lost``.

    Args:
        addresses: ``host:port`` of each worker.
        timeout: seconds for each answer, attempts to connect again included.
        env_id: what the workers must serve; ``None``: whatever they do, all the same.
        env_kwargs: arguments that they must have made the env with; ``None``: any.
        reset_timeout: seconds for a reset, and for the first connection.
        max_restarts: how often each worker may come back with envs that begin again.
        token_file: file with the token; ``None``: the variable ``RLOX_WORKER_TOKEN``.
        tls_ca: file of certificates that the workers' must be signed by. TLS and the token are
            needed on every address but this machine's own.
        tls_cert: file with a certificate of one's own, for workers that ask for it.
        tls_key: its private key.

    Raises:
        ConfigError: TLS or the token is missing.
        EnvError: there is no address.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        timeout: float = 30.0,
        *,
        env_id: str | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        reset_timeout: float = 120.0,
        max_restarts: int = 3,
        token_file: str | Path | None = None,
        tls_ca: str | Path | None = None,
        tls_cert: str | Path | None = None,
        tls_key: str | Path | None = None,
    ) -> None:
        if isinstance(addresses, str) or not addresses:
            raise EnvError(f"addresses must be a list of 'host:port', got {addresses!r}")
        credentials = Credentials(token_file, tls_ca, tls_cert, tls_key)
        learner = secrets.token_hex(16)
        self._timeout, self._reset_timeout = timeout, reset_timeout
        hello = pb.Hello(
            protocol_version=PROTOCOL_VERSION,
            library_version=rlox.__version__,
            learner=learner,
            env_id=env_id or "",
            env_kwargs="" if env_kwargs is None else arguments_to_json(env_kwargs),
        )
        self._links = [Link(each, hello, credentials) for each in addresses]
        self.supervisor = Supervisor(max_restarts)
        """Which workers began again, and why."""
        self._connected = False
        self._seeds: list[int] | None = None
        self._obs: Any = None
        self._masks: npt.NDArray[np.bool_] | None = None
        self.close = weakref.finalize(self, _close, self._links)
        """Ends the streams; the workers wait for the next learner."""

    def connect(self) -> None:
        """Connect to all workers; done at the first use, if not before.

        Raises:
            EnvError: a worker refuses, or their envs differ.
            WorkerLostError: one cannot be reached.
        """
        if self._connected:
            return
        for link in self._links:
            link.connect(self._reset_timeout)
        welcomes = [link.welcome for link in self._links]
        first = welcomes[0]
        for link, welcome in zip(self._links, welcomes, strict=True):
            for name in ("env_id", "observation_space", "action_space"):
                if getattr(welcome, name) != getattr(first, name):
                    raise EnvError(
                        f"all workers must serve one env: {link.address} has the {name} "
                        f"{getattr(welcome, name)}, {self._links[0].address} "
                        f"{getattr(first, name)}"
                    )
        self._counts = [welcome.n_envs for welcome in welcomes]
        ends = np.cumsum(self._counts).tolist()
        self._rows = [slice(end - n, end) for end, n in zip(ends, self._counts, strict=True)]
        self._spaces = [
            space_from_json(text) for text in (first.observation_space, first.action_space)
        ]
        self._leaves = [Leaves(self._spaces[0], count) for count in self._counts]
        self._actions = [Leaves(self._spaces[1], count) for count in self._counts]
        self._action_batch: gymnasium.Space[Any] = batch_space(self._spaces[1], sum(self._counts))
        self._connected = True

    @property
    def n_envs(self) -> int:
        """Number of envs N, of all workers."""
        self.connect()
        return sum(self._counts)

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of envs by the workers' addresses."""
        self.connect()
        addresses = [link.address for link in self._links]
        return dict(zip(addresses, self._counts, strict=True))

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """Space of one env's observation."""
        self.connect()
        return self._spaces[0]

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """Space of one env's action."""
        self.connect()
        return self._spaces[1]

    def action_masks(self) -> npt.NDArray[np.bool_] | None:
        """Return the masks of the next actions; see :class:`rlox.protocols.MaskingVecEnv`."""
        return self._masks

    def reset_all(self, seed: int | Sequence[int] | None = None) -> Any:
        """Reset all envs and return N observations; see ``rlox.protocols.VecEnv``."""
        self.connect()
        self._seeds = None
        if isinstance(seed, (int, np.integer)):
            self._seeds = [int(seed) + i for i in range(self.n_envs)]
        elif seed is not None:
            self._seeds = [int(each) for each in seed]
        for worker in range(len(self._links)):
            self._send_reset(worker, 0)
        parts = [self._observe_reset(worker) for worker in range(len(self._links))]
        return self._take(parts)

    def step_all(self, actions: Any) -> VecEnvStep:
        """Step all envs with (N, ...) actions; see :class:`rlox.protocols.VecEnvStep`."""
        leaves = split(self._spaces[1], batch_of_actions(actions, self._action_batch))
        for link, encode, rows in zip(self._links, self._actions, self._rows, strict=True):
            part = map_leaves(lambda leaf, rows=rows: np.asarray(leaf)[rows], leaves)
            link.send(pb.Request(step=pb.Step(actions=encode.to_bytes(part))))
        parts = [self._observe_step(worker) for worker in range(len(self._links))]
        obs = self._take(parts)
        step: VecEnvStep = {
            "obs": obs,
            "rewards": _concatenate([part.rewards for part in parts]),
            "terminated": _concatenate([part.terminated for part in parts]),
            "truncated": _concatenate([part.truncated for part in parts]),
            "final_obs": obs,
        }
        if step["terminated"].any() or step["truncated"].any():
            step["final_obs"] = _concatenate([part.final_obs for part in parts])
        if any(part.lost for part in parts):
            step["lost"] = np.repeat([part.lost for part in parts], self._counts)
        return step

    def _observe_reset(self, worker: int) -> _Part:
        try:
            reply = self._links[worker].receive(self._reset_timeout)
        except NewSessionError:
            return self._begin_again(worker)
        return self._begun(worker, reply.observations)

    def _observe_step(self, worker: int) -> _Part:
        """Return a worker's part of the step under way; the envs may be lost."""
        try:
            outcome = self._links[worker].receive(self._timeout).outcome
        except NewSessionError:
            rows = self._rows[worker]
            before = map_leaves(lambda leaf: leaf[rows].copy(), self._obs)
            cut = np.ones(self._counts[worker], np.bool_)
            return self._begin_again(worker)._replace(truncated=cut, final_obs=before, lost=True)
        try:
            return self._decode(worker, outcome)
        except (ValueError, IndexError) as error:
            raise EnvError(f"the worker {self._links[worker].address} sent {error}") from None

    def _decode(self, worker: int, outcome: Any) -> _Part:
        count, leaves = self._counts[worker], self._leaves[worker]
        obs, masks = self._observed(worker, outcome.next)
        final_obs = obs
        if outcome.ended:
            ended = np.array(outcome.ended, np.int64)
            final_obs = map_leaves(np.copy, obs)
            true = leaves.from_bytes(outcome.final_obs, len(ended))
            map_leaves(lambda leaf, new: setitem(leaf, ended, new), final_obs, true)
        return _Part(
            obs,
            masks,
            rewards=np.frombuffer(outcome.rewards, "<f8").astype(np.float64).reshape(count),
            terminated=_flags(outcome.terminated).reshape(count),
            truncated=_flags(outcome.truncated).reshape(count),
            final_obs=final_obs,
        )

    def _send_reset(self, worker: int, attempt: int) -> None:
        seeds: list[int] = []
        if self._seeds is not None:
            seeds = self._seeds[self._rows[worker]]
            if attempt:
                drawn = np.random.SeedSequence((*seeds, attempt)).generate_state(len(seeds))
                seeds = drawn.tolist()
        self._links[worker].send(pb.Request(reset=pb.Reset(seeds=seeds)))

    def _begin_again(self, worker: int) -> _Part:
        """Return the first observations of the envs of a worker that was restarted."""
        address = self._links[worker].address
        error = WorkerLostError(f"the worker {address} was restarted")
        self._send_reset(worker, self.supervisor.lost(f"worker {address}", error))
        return self._observe_reset(worker)

    def _begun(self, worker: int, given: Any) -> _Part:
        """Return a part with observations and masks alone."""
        obs, masks = self._observed(worker, given)
        count = self._counts[worker]
        none = np.zeros(count, np.bool_)
        return _Part(obs, masks, np.zeros(count), none, none, obs)

    def _observed(self, worker: int, given: Any) -> tuple[Any, npt.NDArray[np.bool_] | None]:
        """Return observations and masks."""
        try:
            obs = self._leaves[worker].from_bytes(given.obs)
            masks = given.masks
            return obs, _flags(masks).reshape(self._counts[worker], -1) if masks else None
        except ValueError as error:
            raise EnvError(f"the worker {self._links[worker].address} sent {error}") from None

    def _take(self, parts: Sequence[_Part]) -> Any:
        """Keep and return the observations of all workers."""
        self._obs = _concatenate([part.obs for part in parts])
        masks = [part.masks for part in parts if part.masks is not None]
        self._masks = np.concatenate(masks) if masks else None
        return self._obs


class _Part(NamedTuple):
    """The rows of one worker's envs."""

    obs: Any
    masks: npt.NDArray[np.bool_] | None
    rewards: npt.NDArray[np.float64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    final_obs: Any
    lost: bool = False


def _flags(data: bytes) -> npt.NDArray[np.bool_]:
    flags: npt.NDArray[np.bool_] = np.frombuffer(data, np.uint8) != 0
    return flags


def _concatenate(parts: Sequence[Any]) -> Any:
    """Return the rows of all parts; those of one as they are."""
    if len(parts) == 1:
        return parts[0]
    return map_leaves(lambda *leaves: np.concatenate(leaves), *parts)


def _close(links: Sequence[Link]) -> None:
    for link in links:
        link.close()
