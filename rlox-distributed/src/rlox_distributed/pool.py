"""Vector envs stepped by workers on other machines: the env backend ``grpc``."""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import rlox
from gymnasium.vector.utils import batch_space
from rlox.envs import Supervisor
from rlox.errors import EnvError, WorkerLostError
from rlox.protocols import VecEnvStep
from rlox.seeding import env_seeds
from rlox.spaces.rows import batch_of_actions, map_leaves, split

from rlox_distributed.link import PROTOCOL_VERSION, Link, NewSessionError, require_same_envs
from rlox_distributed.options import GrpcOptions
from rlox_distributed.parts import (
    Masks,
    begun,
    concatenate,
    joined,
    joined_masks,
    seeds_of_attempt,
)
from rlox_distributed.protocol import workers_pb2 as pb
from rlox_distributed.security import Credentials, require_workers
from rlox_distributed.spaces import arguments_to_json, space_from_json
from rlox_distributed.state import fetch_state, send_state


class RemoteEnvPool:
    """The envs of all workers, stepped together; a :class:`rlox.protocols.VecEnv`.

    A broken stream is opened again and the request repeated under its number: the worker answers
    from memory if it has completed it. The envs of a restarted worker begin new episodes, and their
    rows of the step are ``lost``.

    Args:
        addresses: ``host:port`` of each worker.
        timeout: seconds for each answer, including attempts to reconnect.
        env_id: the env that the workers must serve; ``None``: any, the same for all.
        env_kwargs: arguments that their env must have been made with; ``None``: any.
        reset_timeout: seconds for a reset, and for the first connection.
        max_restarts: how often each worker may restart its envs.
        token_file: file with the token; ``None``: the variable ``RLOX_WORKER_TOKEN``.
        tls_ca: file of certificates that must have signed the workers'. TLS and the token are
            required for every address except this machine's own.
        tls_cert: file with the learner's certificate, for workers that require one.
        tls_key: its private key.

    Raises:
        ConfigError: an address is not ``host:port``, or TLS or the token is missing.
        EnvError: there is no address, or one twice.
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
        require_workers(addresses)
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
        """The restarted workers and the reasons."""
        self._connected = False
        self._seeds: list[int] | None = None
        self._gone: set[int] = set()
        """Workers restarted while no step was under way; the next step reports them."""
        self._obs: Any = None
        self._masks: Masks = None
        self.close = weakref.finalize(self, _close, self._links)
        """End the streams; the workers wait for the next learner."""

    def connect(self) -> None:
        """Connect to all workers; done on first use, if not before.

        Raises:
            EnvError: a worker refuses, their envs differ, or the pool is closed.
            WorkerLostError: one cannot be reached.
        """
        if self._connected:
            return
        self._require_open()
        for link in self._links:
            link.connect(self._reset_timeout)
        require_same_envs(self._links)
        welcomes = [link.welcome for link in self._links]
        first = welcomes[0]
        self._counts = [welcome.n_envs for welcome in welcomes]
        ends = np.cumsum(self._counts).tolist()
        self._rows = [slice(end - n, end) for end, n in zip(ends, self._counts, strict=True)]
        self._spaces = [
            space_from_json(text) for text in (first.observation_space, first.action_space)
        ]
        self._action_batch: gymnasium.Space[Any] = batch_space(self._spaces[1], sum(self._counts))
        self._has_state = all(welcome.has_state for welcome in welcomes)
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

    @property
    def state_kind(self) -> str:
        """Kind of :meth:`state`: the state of another division among workers does not fit."""
        self.connect()
        return f"envs of workers, {self._counts}"

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the state of all workers' envs and their observations; empty if one has none.

        It is also empty if a worker has been restarted, which the next step reports.
        """
        self.connect()
        if self._obs is None or self._gone or not self._has_state:
            return {}
        state: dict[str, npt.NDArray[Any]] = {}
        for worker, link in enumerate(self._links):
            try:
                data = fetch_state(link, self._timeout)
            except NewSessionError:
                self._gone.add(worker)
                return {}
            state[f"worker {worker}"] = np.frombuffer(data, np.uint8)
        shown = self._obs if isinstance(self._obs, dict) else {"": self._obs}
        state |= {f"obs {leaf}": array.copy() for leaf, array in shown.items()}
        if self._masks is not None:
            state["masks"] = self._masks.copy()
        if self._seeds is not None:
            state["seeds"] = np.array(self._seeds, np.uint64)
        return state

    def set_state(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore a state of :meth:`state`.

        Raises:
            EnvError: it is not from workers with the same numbers of envs.
        """
        self.connect()
        parts = {name: array for name, array in state.items() if name.startswith("worker ")}
        if not self._has_state or len(parts) != len(self._links):
            raise EnvError(f"expected the state of {self.state_kind}, got {sorted(state)}")
        for worker in range(len(self._links)):
            self._restore(worker, state[f"worker {worker}"].tobytes())
        shown = {name[4:]: np.array(a) for name, a in state.items() if name.startswith("obs ")}
        self._obs = shown if set(shown) != {""} else shown[""]
        self._masks = np.array(state["masks"]) if "masks" in state else None
        self._seeds = state["seeds"].tolist() if "seeds" in state else None
        self._gone.clear()

    def _restore(self, worker: int, data: bytes) -> None:
        try:
            send_state(self._links[worker], data, self._timeout)
        except NewSessionError:
            self._note_restart(worker)
            self._restore(worker, data)

    def reset_all(self, seed: int | Sequence[int] | None = None) -> Any:
        """Reset all envs and return N observations; see ``rlox.protocols.VecEnv``."""
        self._require_open()
        self.connect()
        self._seeds = None if seed is None else env_seeds(seed, self.n_envs)
        self._gone.clear()
        for worker in range(len(self._links)):
            self._send_reset(worker, 0)
        parts = [self._observe_reset(worker) for worker in range(len(self._links))]
        self._obs = concatenate([obs for obs, _ in parts])
        self._take_masks([masks for _, masks in parts])
        return self._obs

    def step_all(self, actions: Any) -> VecEnvStep:
        """Step all envs with (N, ...) actions; see :class:`rlox.protocols.VecEnvStep`."""
        self._require_open()
        if self._obs is None:
            raise EnvError("step_all was called before reset_all; reset the envs first")
        leaves = split(self._spaces[1], batch_of_actions(actions, self._action_batch))
        for worker, link in enumerate(self._links):
            if worker not in self._gone:
                rows = self._rows[worker]
                link.send_actions(leaves, rows.start, self._rows[-1].stop)
        parts = [self._observe_step(worker) for worker in range(len(self._links))]
        step = joined([step for step, _ in parts])
        self._obs = step["obs"]
        self._take_masks([masks for _, masks in parts])
        return step

    def _observe_reset(self, worker: int) -> tuple[Any, Masks]:
        """Return the first observations of a worker's envs, and the masks."""
        link = self._links[worker]
        try:
            step, masks = link.receive(self._reset_timeout, link.codec.decode_observations)
        except NewSessionError:
            return self._begin_again(worker)
        return step["obs"], masks

    def _observe_step(self, worker: int) -> tuple[VecEnvStep, Masks]:
        """Return a worker's part of the step under way, and masks; the envs may be lost."""
        link = self._links[worker]
        try:
            if worker in self._gone:
                raise NewSessionError
            part: tuple[VecEnvStep, Masks] = link.receive(self._timeout, link.codec.decode_outcome)
            return part
        except NewSessionError:
            self._gone.discard(worker)
            rows = self._rows[worker]
            before = map_leaves(lambda leaf: leaf[rows].copy(), self._obs)
            obs, masks = self._begin_again(worker)
            return begun(obs, before, self._counts[worker]), masks

    def _send_reset(self, worker: int, attempt: int) -> None:
        given = [] if self._seeds is None else self._seeds[self._rows[worker]]
        reset = pb.Reset(seeds=seeds_of_attempt(given, attempt))
        self._links[worker].send(pb.Request(reset=reset))

    def _begin_again(self, worker: int) -> tuple[Any, Masks]:
        """Return the first observations and masks of a restarted worker's envs."""
        self._send_reset(worker, self._note_restart(worker))
        return self._observe_reset(worker)

    def _note_restart(self, worker: int) -> int:
        """Return the number of a worker's restarts.

        Raises:
            WorkerLostError: it was restarted too often.
        """
        address = self._links[worker].address
        error = WorkerLostError(f"the worker {address} was restarted")
        return self.supervisor.lost(f"worker {address}", error)

    def _take_masks(self, parts: Sequence[Masks]) -> None:
        self._masks = joined_masks(parts, [link.address for link in self._links])

    def _require_open(self) -> None:
        if not self.close.alive:
            raise EnvError("the pool is closed; make another")


def _close(links: Sequence[Link]) -> None:
    for link in links:
        link.close()


def connect_envs(
    env_id: str, *, n_envs: int, env_kwargs: Mapping[str, Any] | None, options: GrpcOptions
) -> RemoteEnvPool:
    """Return the envs of workers, connected.

    Args:
        env_id: the env that they must serve.
        n_envs: their required total number of envs.
        env_kwargs: the required arguments of their env.
        options: options of the backend.

    Raises:
        ConfigError: TLS or the token is missing.
        EnvError: they serve another env, arguments or number of envs.
        WorkerLostError: one cannot be reached.
    """
    pool = RemoteEnvPool(
        options.worker_addresses,
        options.step_timeout,
        env_id=env_id,
        env_kwargs=env_kwargs or {},
        reset_timeout=options.reset_timeout,
        max_restarts=options.worker_restarts,
        token_file=options.token_file,
        tls_ca=options.tls_ca,
        tls_cert=options.tls_cert,
        tls_key=options.tls_key,
    )
    try:
        if pool.n_envs != n_envs:
            counts = ", ".join(f"{where} has {count}" for where, count in pool.counts.items())
            raise EnvError(
                f"n_envs is {n_envs}, but the workers serve {pool.n_envs} envs ({counts}); pass "
                f"n_envs={pool.n_envs}, or start them with other --n-envs"
            )
    except BaseException:
        pool.close()
        raise
    return pool
