"""Unrolls: joining, cutting, arrays; advantages, rollout batches and minibatches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from operator import itemgetter, methodcaller
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlox import kernels
from rlox.batches.transitions import cut_into_sequences, sequence_fields, split_sequences
from rlox.errors import EnvError
from rlox.spaces.rows import map_leaves

BEFORE_THE_LAST = itemgetter(slice(-1))


@dataclass(frozen=True)
class Unroll:
    """T steps of N envs, time-major, as collected; without advantages.

    The policy's inputs and outputs are tensors on its device, the envs' answers NumPy arrays.
    """

    obs: Any
    """(T + 1, N, *shape) observations acted on, the last of them to act on next; dtypes and nesting
    as in :class:`RolloutBatch`."""
    actions: Tensor
    """(T, N) or (T, N, columns) as the policy sampled them, before clipping."""
    log_probs: Tensor
    """(T, N) log-probabilities under the policy that acted."""
    rewards: npt.NDArray[np.float32]
    """(T, N) rewards of the envs."""
    terminated: npt.NDArray[np.bool_]
    """(T, N), the task ended after the step."""
    truncated: npt.NDArray[np.bool_]
    """(T, N), the episode was cut after the step."""
    final_obs: Any = None
    """(K, *shape) the true final observations of the K truncated steps, in the order of
    ``truncated.nonzero()``; ``None`` without truncation, or if only :attr:`final_values` is
    known."""
    scaled_rewards: npt.NDArray[np.float32] | None = None
    """(T, N) to estimate advantages from; ``None``: the rewards."""
    action_masks: Tensor | None = None
    """(T, N, mask_size) bool, True for the choices that the env allowed; ``None``: all."""
    episode_starts: Tensor | None = None
    """(T, N) bool, whether an episode began with the observation; ``None`` without a memory."""
    initial_state: Tensor | None = None
    """(K*N, state_size) memory of the policy before each of K equal parts of the steps, part 0 of
    all envs first; ``None`` without a memory."""
    values: Tensor | None = None
    """(T + 1, N) value estimates of the acting policy, if it makes them as it acts."""
    final_values: npt.NDArray[np.float32] | None = None
    """(T, N) its values of the true final observations of truncated steps, 0 elsewhere; given
    together with :attr:`values`."""
    weights_version: int = 0
    """Version of the weights that acted."""
    actor: int = 0
    """Number of the actor that collected it."""
    sequence: int = 0
    """Number of unrolls that the actor had collected before."""
    resets: bool = False
    """Whether all envs were reset before step 0, even within an episode."""
    envs: npt.NDArray[np.int64] | None = None
    """(N,) numbers of these envs in the collector, if some were lost; ``None``: all."""
    life_lost: npt.NDArray[np.bool_] | None = None
    """(T, N), ``terminated`` means a lost life, and the game went on; ``None``: nowhere."""
    moments: Mapping[str, Mapping[str, Any]] | None = None
    """Mean, variance and count of the raw observations, by leaf, from an actor that normalises;
    ``None`` if nothing is normalised, or the actor keeps the moments itself."""

    @property
    def n_steps(self) -> int:
        """T."""
        return len(self.rewards)

    @property
    def n_envs(self) -> int:
        """N."""
        return int(self.rewards.shape[1])


@dataclass(frozen=True)
class RolloutMinibatch:
    """B steps of a rollout in random order; fields as in :class:`RolloutBatch`.

    For a policy with a memory, T steps of each of some envs, as in the batch.
    """

    obs: Any
    actions: Tensor
    log_probs: Tensor
    values: Tensor
    advantages: Tensor
    returns: Tensor
    action_masks: Tensor | None = None
    episode_starts: Tensor | None = None
    initial_state: Tensor | None = None
    active: Tensor | None = None


@dataclass(frozen=True)
class RolloutBatch:
    """T steps of N envs, flattened to T*N rows: step 0 of all envs, then step 1, and so on.

    With a memory and K parts of L steps, each part counts as an env: L steps of K*N.
    """

    obs: Any
    """(T*N, *shape) observations acted on; for a nested space a dict of them by leaf name. uint8
    stays uint8, integers of discrete spaces are int64, everything else is float32."""
    actions: Tensor
    """(T*N,) or (T*N, columns) as the policy sampled them, before clipping; int64, or float32 if
    there is a ``Box`` among them. See :mod:`rlox.spaces.rows`."""
    log_probs: Tensor
    """(T*N,) log-probabilities under the policy that acted."""
    values: Tensor
    """(T*N,) value estimates of that policy."""
    rewards: Tensor
    """(T*N,) rewards of the envs."""
    terminated: Tensor
    """(T*N,) bool, the task ended after the step."""
    truncated: Tensor
    """(T*N,) bool, the episode was cut after the step."""
    advantages: Tensor
    """(T*N,) generalised advantage estimates."""
    returns: Tensor
    """(T*N,) advantages + values, the value function's targets."""
    n_steps: int
    """T."""
    n_envs: int
    """N."""
    action_masks: Tensor | None = None
    """(T*N, mask_size) bool, True for the choices that the env allowed; ``None``: all."""
    episode_starts: Tensor | None = None
    """(T*N,) bool, whether an episode began with the observation; ``None`` without a memory."""
    initial_state: Tensor | None = None
    """(N, state_size) memory of the policy before step 0; ``None`` without a memory."""
    active: Tensor | None = None
    """(T*N,) bool, the rows of ``obs``, ``actions``, ``action_masks`` and ``episode_starts`` to
    learn from, for a policy with a memory and sequences of different lengths; the other fields
    have only those rows. ``None``: all rows."""

    @property
    def dones(self) -> Tensor:
        """(T*N,) bool, the episode ended after the step: terminated or truncated."""
        return self.terminated | self.truncated

    def explained_variance(self) -> float:
        """Return 1 - Var(returns - values) / Var(returns); 0 for constant returns, or one."""
        if len(self.returns) < 2 or not (variance := self.returns.var()) > 0:
            return 0.0
        return float(1 - (self.returns - self.values).var() / variance)

    def sample_minibatches(
        self, batch_size: int, shuffle: bool = True, generator: torch.Generator | None = None
    ) -> Iterator[RolloutMinibatch]:
        """Yield minibatches that together hold every row exactly once.

        Args:
            batch_size: rows per minibatch; the last has the remainder. With a memory, rounded down
                to whole sequences of T steps.
            shuffle: random order, else the rollout's.
            generator: source of the order; ``None`` uses torch's global one.

        Raises:
            ValueError: ``batch_size`` is not in [1, T*N], or not in [T, T*N] with a memory.
        """
        size = len(self.returns)
        least = 1 if self.initial_state is None else self.n_steps
        if not least <= batch_size <= size:
            raise ValueError(f"batch_size must lie in [{least}, {size}], got {batch_size}")
        units = size if self.initial_state is None else self.n_envs
        order = torch.randperm(units, generator=generator) if shuffle else None
        return self.minibatches(batch_size, order)

    def minibatches(self, batch_size: int, order: Tensor | None) -> Iterator[RolloutMinibatch]:
        """Yield minibatches in an order; see :meth:`sample_minibatches`.

        Args:
            batch_size: rows per minibatch.
            order: (T*N,) rows, or (N,) sequences with a memory; ``None``: the rollout's.
        """
        device = self.returns.device
        if self.initial_state is None:
            order = None if order is None else order.to(device)
            columns = (_parts(field, order, batch_size) for field in self._fields())
            for rows in zip(*columns, strict=False):
                yield RolloutMinibatch(*rows)
            return
        sequences = torch.arange(self.n_envs) if order is None else order
        for some in split_sequences(self, sequences, batch_size // self.n_steps):
            yield RolloutMinibatch(**sequence_fields(self, some))

    def _fields(self) -> tuple[Any, ...]:
        """Return the fields of a minibatch's rows in its order."""
        return (
            self.obs, self.actions, self.log_probs, self.values, self.advantages, self.returns,
            self.action_masks,
        )  # fmt: skip


@torch.no_grad()
def estimate_advantages(
    unroll: Unroll | RolloutBatch,
    policy: Any,
    gamma: float,
    gae_lambda: float,
    gae: Callable[..., Any] | None = None,
) -> RolloutBatch:
    """Return the unroll's steps with values and generalised advantage estimates.

        δ_t = r_t + γ V(s_{t+1}) - V(s_t)
        A_t = δ_t + γλ A_{t+1}

    V(s_{t+1}) is 0 after a termination and the value of the true final observation after a
    truncation; A_{t+1} counts after neither.

    Args:
        unroll: T steps of N envs; a batch, which has advantages, is returned as it is.
        policy: estimates values with ``get_value(obs)``, unless the unroll has them.
        gamma: discount γ in [0, 1].
        gae_lambda: trace decay λ in [0, 1].
        gae: the kernel ``compute_gae_time_major``; ``None`` takes that of
            :func:`rlox.kernels.kernel`.

    Returns:
        A batch of T*N rows.

    Source:
        Schulman et al. 2016, "High-dimensional continuous control using generalized advantage
        estimation", eq. 16; truncated as in Schulman et al. 2017, eq. 11 and 12.
    """
    if isinstance(unroll, RolloutBatch):
        return unroll
    if unroll.values is None:
        unroll = add_values(unroll, policy.get_value)
    assert unroll.values is not None
    assert unroll.final_values is not None
    values, device = unroll.values, unroll.log_probs.device
    advantages, returns = (gae or kernels.kernel("compute_gae_time_major"))(
        unroll.rewards if unroll.scaled_rewards is None else unroll.scaled_rewards,
        values[:-1].cpu().numpy(),
        unroll.terminated,
        unroll.truncated,
        unroll.final_values,
        values[-1].cpu().numpy(),
        gamma,
        gae_lambda,
    )

    def rows(array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).flatten().to(device)

    rollout = RolloutBatch(
        obs=_rows(map_leaves(BEFORE_THE_LAST, unroll.obs)),
        actions=_rows(unroll.actions),
        log_probs=_rows(unroll.log_probs),
        values=_rows(values[:-1]),
        rewards=rows(unroll.rewards),
        terminated=rows(unroll.terminated),
        truncated=rows(unroll.truncated),
        advantages=rows(advantages),
        returns=rows(returns),
        n_steps=unroll.n_steps,
        n_envs=unroll.n_envs,
        action_masks=_rows(unroll.action_masks),
        episode_starts=_rows(unroll.episode_starts),
        initial_state=unroll.initial_state,
    )
    return rollout if rollout.initial_state is None else cut_into_sequences(rollout)


@torch.no_grad()
def add_values(unroll: Unroll, value: Callable[[Any], Tensor]) -> Unroll:
    """Return the unroll with the values of its observations.

    Args:
        unroll: T steps of N envs.
        value: from B observations to their values (B,).
    """
    final_values = np.zeros(unroll.rewards.shape, np.float32)
    if unroll.final_obs is not None:
        final_values[unroll.truncated] = value(unroll.final_obs).cpu().numpy()
    obs = _rows(map_leaves(BEFORE_THE_LAST, unroll.obs))
    next_obs = map_leaves(itemgetter(-1), unroll.obs)
    values = torch.cat([value(obs), value(next_obs)]).view(unroll.n_steps + 1, unroll.n_envs)
    return replace(unroll, values=values, final_values=final_values)


def _rows(steps: Any) -> Any:
    """Return (T, N, ...) tensors as (T*N, ...)."""
    return None if steps is None else map_leaves(methodcaller("flatten", 0, 1), steps)


def _parts(field: Any, order: Tensor | None, size: int) -> Iterable[Any]:
    """Return a field's rows in ``order``, ``size`` at a time."""
    if field is None:
        return repeat(None)
    if isinstance(field, dict):
        leaves = zip(*(_parts(leaf, order, size) for leaf in field.values()), strict=True)
        return (dict(zip(field, parts, strict=True)) for parts in leaves)
    return torch.split(field if order is None else field.index_select(0, order), size)


Arrays = dict[str, npt.NDArray[Any]]

NUMBERS = ("weights_version", "actor", "sequence", "resets")
ON_DEVICE = ("actions", "log_probs", "action_masks", "episode_starts", "initial_state", "values")
IN_NUMPY = (
    "rewards", "terminated", "truncated", "scaled_rewards", "final_values", "envs", "life_lost",
)  # fmt: skip
STEPS = ("rewards", "terminated", "truncated")
NESTED = ("obs", "final_obs")
MOMENTS = "moments"


@dataclass(frozen=True)
class StepRows:
    """T*N steps as input of :func:`rlox.losses.evaluate_actions`, step 0 first."""

    obs: Any
    actions: Tensor
    action_masks: Tensor | None = None
    episode_starts: Tensor | None = None
    initial_state: Tensor | None = None


def step_rows(unroll: Unroll) -> StepRows:
    """Return the steps of an unroll as rows, without the observation to act on next."""
    return StepRows(
        obs=_rows(map_leaves(BEFORE_THE_LAST, unroll.obs)),
        actions=_rows(unroll.actions),
        action_masks=_rows(unroll.action_masks),
        episode_starts=_rows(unroll.episode_starts),
        initial_state=unroll.initial_state,
    )


def join_unrolls(unrolls: Sequence[Unroll]) -> Unroll:
    """Return one unroll with the envs of several.

    Args:
        unrolls: of equal T and from one policy. Version, actor and sequence number are those of
            the first.

    Returns:
        The unroll of ΣN envs; without values, which the acting policies estimate.

    Raises:
        ValueError: the sequence is empty, or the lengths differ.
    """
    lengths = {unroll.n_steps for unroll in unrolls}
    if len(lengths) != 1:
        raise ValueError(f"unrolls of one length must be joined, got the lengths {sorted(lengths)}")
    first = unrolls[0]
    if len(unrolls) == 1:
        return first
    names = ("obs", "actions", "log_probs", *STEPS, "action_masks", "episode_starts")
    joined = {name: _cat([getattr(unroll, name) for unroll in unrolls], 1) for name in names}
    return Unroll(
        **joined,
        final_obs=_join_final_obs(unrolls, joined["truncated"]),
        initial_state=_cat([u.initial_state for u in unrolls], 0),
        weights_version=first.weights_version,
        actor=first.actor,
        sequence=first.sequence,
        life_lost=_join_lives(unrolls),
    )


def keep_envs(unroll: Unroll, kept: npt.NDArray[np.bool_]) -> Unroll:
    """Return the unroll of some of its envs.

    Args:
        unroll: of N envs.
        kept: (N,) whether the env is kept.

    Raises:
        EnvError: no env is kept.
    """
    if not kept.any():
        raise EnvError("all envs were lost in one rollout, and nothing is left to learn from")
    columns = torch.from_numpy(kept)
    fields: dict[str, Any] = {"envs": np.flatnonzero(kept)}
    for name in (*STEPS, "scaled_rewards", "final_values", "life_lost"):
        if getattr(unroll, name) is not None:
            fields[name] = getattr(unroll, name)[:, kept]
    for name in ("obs", "actions", "log_probs", "action_masks", "episode_starts", "values"):
        value = getattr(unroll, name)
        if value is not None:
            fields[name] = map_leaves(lambda leaf: leaf[:, columns.to(leaf.device)], value)
    if unroll.initial_state is not None:
        parts = unroll.initial_state.view(-1, unroll.n_envs, unroll.initial_state.shape[1])
        fields["initial_state"] = parts[:, columns.to(parts.device)].flatten(0, 1)
    if unroll.final_obs is not None:
        rows = columns[torch.from_numpy(np.nonzero(unroll.truncated)[1])]
        final_obs = map_leaves(lambda leaf: leaf[rows.to(leaf.device)], unroll.final_obs)
        fields["final_obs"] = final_obs if rows.any() else None
    return replace(unroll, **fields)


def _join_final_obs(unrolls: Sequence[Unroll], truncated: npt.NDArray[np.bool_]) -> Any:
    """Return the final observations in the order of the joined ``truncated.nonzero()``."""
    with_some = [u.final_obs for u in unrolls if u.final_obs is not None]
    if not with_some:
        return None
    rows: npt.NDArray[np.int64] = np.zeros(truncated.shape, np.int64)
    column = found = 0
    for unroll in unrolls:
        part = rows[:, column : column + unroll.n_envs]
        count = int(unroll.truncated.sum())
        part[unroll.truncated] = np.arange(found, found + count)
        column, found = column + unroll.n_envs, found + count
    order = torch.from_numpy(rows[truncated])
    return map_leaves(lambda *leaves: torch.cat(leaves)[order.to(leaves[0].device)], *with_some)


def _join_lives(unrolls: Sequence[Unroll]) -> npt.NDArray[np.bool_] | None:
    lives = [np.zeros_like(u.terminated) if u.life_lost is None else u.life_lost for u in unrolls]
    joined = np.concatenate(lives, 1)
    return joined if joined.any() else None


def on_device(unroll: Unroll, device: torch.device) -> Unroll:
    """Return the unroll with its tensors on a device."""
    found = {name: getattr(unroll, name) for name in (*ON_DEVICE, *NESTED)}
    given = {name: value for name, value in found.items() if value is not None}
    moved = {name: map_leaves(methodcaller("to", device), value) for name, value in given.items()}
    return replace(unroll, **moved)


def unroll_to_arrays(unroll: Unroll) -> Arrays:
    """Return the contents of an unroll as NumPy arrays by name; see :func:`unroll_from_arrays`."""
    arrays: Arrays = {name: np.asarray(getattr(unroll, name), np.int64) for name in NUMBERS}
    for name in (*IN_NUMPY, *ON_DEVICE):
        if (value := getattr(unroll, name)) is not None:
            arrays[name] = value.cpu().numpy() if isinstance(value, Tensor) else value
    for name in NESTED:
        value = getattr(unroll, name)
        leaves = value if isinstance(value, dict) else {"": value}
        for leaf, tensor in leaves.items():
            if tensor is not None:
                arrays[f"{name}:{leaf}" if isinstance(value, dict) else name] = tensor.cpu().numpy()
    return arrays | moments_to_arrays(unroll.moments)


def unroll_from_arrays(arrays: Mapping[str, Any]) -> Unroll:
    """Return the unroll from the arrays of :func:`unroll_to_arrays`.

    Args:
        arrays: by name; they are not copied.
    """
    fields: dict[str, Any] = {name: int(arrays[name]) for name in NUMBERS}
    fields["resets"] = bool(fields["resets"])
    fields |= {name: arrays[name] for name in IN_NUMPY if name in arrays}
    fields |= {name: _tensor(arrays[name]) for name in ON_DEVICE if name in arrays}
    for key, array in arrays.items():
        name, colon, leaf = key.partition(":")
        if name in NESTED and colon:
            fields.setdefault(name, {})[leaf] = _tensor(array)
        elif name in NESTED:
            fields[name] = _tensor(array)
    return Unroll(**fields, moments=moments_from_arrays(arrays))


def moments_to_arrays(moments: Mapping[str, Mapping[str, Any]] | None) -> Arrays:
    """Return moments by leaf as arrays by name; see :func:`moments_from_arrays`."""
    return {
        f"{MOMENTS}:{part}:{leaf}": np.asarray(number, np.float64)
        for leaf, of_leaf in (moments or {}).items()
        for part, number in of_leaf.items()
    }


def moments_from_arrays(arrays: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
    """Return the moments among arrays by name; ``None`` if there are none."""
    moments: dict[str, dict[str, Any]] = {}
    for key, array in arrays.items():
        if key.startswith(f"{MOMENTS}:"):
            _, part, leaf = key.split(":", 2)
            moments.setdefault(leaf, {})[part] = array
    return moments or None


def _tensor(array: Any) -> Tensor:
    return torch.from_numpy(np.asarray(array))


def _cat(parts: Sequence[Any], dim: int) -> Any:
    if parts[0] is None:
        return None
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts, dim)
    return map_leaves(lambda *leaves: torch.cat(leaves, dim), *parts)
