from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike
from typing import (
    Any,
    Final,
    Literal,
    SupportsFloat,
    SupportsIndex,
    TypedDict,
    final,
    type_check_only,
)

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = [
    "ActorCriticLearner",
    "CartPole",
    "ContinuousLearner",
    "HerReplayBuffer",
    "ImplicitLearner",
    "MmapReplayBuffer",
    "OfflineDatasetBuffer",
    "PackedSequences",
    "PrioritizedReplayBuffer",
    "QLearner",
    "ReplayBuffer",
    "RunningMeanStd",
    "VecEnv",
    "__version__",
    "compute_batch_group_advantages",
    "compute_batch_token_kl",
    "compute_batch_token_kl_schulman",
    "compute_discounted_returns",
    "compute_gae",
    "compute_gae_batched",
    "compute_gae_batched_f32",
    "compute_gae_time_major",
    "compute_group_advantages",
    "compute_lambda_returns",
    "compute_n_step_returns",
    "compute_token_kl",
    "compute_token_kl_schulman",
    "compute_vtrace",
    "native_env_ids",
    "normalize_advantages",
    "pack_sequences",
]

__version__: Final[str]

@type_check_only
class Step(TypedDict):
    """What :meth:`CartPole.step` returns."""

    obs: NDArray[np.float32]
    reward: float
    terminated: bool
    truncated: bool

@type_check_only
class VecStep(TypedDict):
    """What :meth:`VecEnv.step_all` returns."""

    obs: NDArray[np.float32]
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    final_obs: NDArray[np.float32]

def native_env_ids() -> list[str]:
    """Return the ids that :class:`VecEnv` builds."""

def compute_gae(
    rewards: ArrayLike,
    values: ArrayLike,
    dones: ArrayLike,
    last_value: float,
    gamma: float,
    lam: float,
    *,
    out: tuple[NDArray[Any], NDArray[Any]] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Estimate advantages and returns of one trajectory.

    δ_t = r_t + γ V(s_{t+1}) - V(s_t),  A_t = δ_t + γλ A_{t+1},  returns_t = A_t + V(s_t)

    Args:
        rewards: r_t, shape ``(T,)``; real numbers of any type, as all arrays here.
        values: V(s_t), shape ``(T,)``.
        dones: whether the episode ended after step t, shape ``(T,)``; non-zero is true. The
            bootstrap and the trace both stop there.
        last_value: V of the observation after the last step; not read where the last step is done.
        gamma: discount γ, in [0, 1].
        lam: trace decay λ, in [0, 1].
        out: arrays for advantages and returns, of the results' shape and type, to write into.

    Returns:
        Advantages and returns, each shape ``(T,)``, float64.

    Raises:
        ValueError: a length or number of dimensions is wrong, or a factor lies outside [0, 1].
        TypeError: an array holds something other than real numbers.

    Source:
        Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage
        Estimation", ICLR 2016, equations 11 to 16.
    """

def compute_gae_batched(
    rewards: ArrayLike,
    values: ArrayLike,
    dones: ArrayLike,
    last_values: ArrayLike,
    n_steps: SupportsIndex,
    gamma: float,
    lam: float,
    *,
    out: tuple[NDArray[Any], NDArray[Any]] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Estimate advantages and returns of several trajectories of equal length.

    The trajectories lie one after the other: element (env, t) is at ``env * n_steps + t``. Each is
    treated as by :func:`compute_gae`.

    Args:
        rewards: r_t, shape ``(n_envs * n_steps,)``.
        values: V(s_t), shape ``(n_envs * n_steps,)``.
        dones: whether the episode ended after step t, shape ``(n_envs * n_steps,)``.
        last_values: V of the observation after the last step, shape ``(n_envs,)``.
        n_steps: steps of each trajectory, at least 1.
        gamma: discount γ, in [0, 1].
        lam: trace decay λ, in [0, 1].
        out: arrays for advantages and returns, of the results' shape and type, to write into.

    Returns:
        Advantages and returns, each shape ``(n_envs * n_steps,)``, float64.

    Raises:
        ValueError: a length or number of dimensions is wrong, or a number is out of its range.
        TypeError: an array holds something other than real numbers.
    """

def compute_gae_batched_f32(
    rewards: ArrayLike,
    values: ArrayLike,
    dones: ArrayLike,
    last_values: ArrayLike,
    n_steps: SupportsIndex,
    gamma: float,
    lam: float,
    *,
    out: tuple[NDArray[Any], NDArray[Any]] | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Do what :func:`compute_gae_batched` does, in single precision throughout.

    Returns:
        Advantages and returns, each shape ``(n_envs * n_steps,)``, float32.
    """

def compute_gae_time_major(
    rewards: ArrayLike,
    values: ArrayLike,
    terminated: ArrayLike,
    truncated: ArrayLike,
    final_values: ArrayLike,
    last_values: ArrayLike,
    gamma: float,
    lam: float,
    *,
    out: tuple[NDArray[Any], NDArray[Any]] | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Estimate advantages and returns of a rollout that knows ends from cuts.

    The equations of :func:`compute_gae`, where V(s_{t+1}) is 0 after a termination,
    ``final_values[t]`` after a truncation that is no termination, and ``values[t + 1]`` otherwise
    (``last_values`` after the last row). The trace stops at both.

    Args:
        rewards: r_t, shape ``(T, N)``. A float32 array makes the computation single precision;
            every other type makes it double.
        values: V(s_t), shape ``(T, N)``.
        terminated: whether step t reached a terminal state, shape ``(T, N)``; non-zero is true.
        truncated: whether the episode was cut after step t, shape ``(T, N)``.
        final_values: V of the true last observation of an episode, shape ``(T, N)``; read only
            where truncated and not terminated.
        last_values: V of the observation after the last step, shape ``(N,)``.
        gamma: discount γ, in [0, 1].
        lam: trace decay λ, in [0, 1].
        out: arrays for advantages and returns, of the results' shape and type, to write into.

    Returns:
        Advantages and returns, each shape ``(T, N)``, float32 or float64.

    Raises:
        ValueError: a shape is wrong, or a factor lies outside [0, 1].
        TypeError: an array holds something other than real numbers.
    """

def compute_batch_group_advantages(
    rewards: ArrayLike,
    group_size: SupportsIndex,
    *,
    ddof: int = 0,
    eps: float = 0.0,
    scale: Literal["group", "batch", "none"] = "group",
) -> NDArray[Any]:
    """Compute the advantages of P groups of G completions, one group after the other.

    Args:
        rewards: (P * G,).
        group_size: G, at least 1; a group of one has an advantage of 0.
        ddof: see :func:`compute_group_advantages`.
        eps: see :func:`compute_group_advantages`.
        scale: see :func:`compute_group_advantages`.

    Returns:
        Advantages (P * G,); zeros for groups of equal rewards.

    Raises:
        ValueError: an option is out of its range, or the last group is incomplete.
        TypeError: ``rewards`` holds something other than real numbers.
    """

def compute_batch_token_kl(
    log_p: ArrayLike,
    log_q: ArrayLike,
    seq_len: SupportsIndex,
) -> NDArray[Any]:
    """Compute :func:`compute_token_kl` of B sequences, one after the other.

    Args:
        log_p: (B * seq_len,); float32 makes the results single precision.
        log_q: (B * seq_len,). A place with the same finite value in both arrays, such as 0 in
            padding, adds nothing.
        seq_len: tokens per sequence, at least 1.

    Returns:
        Sums (B,), in nats.

    Raises:
        ValueError: the lengths differ or hold an incomplete sequence, or ``seq_len`` is below 1.
        TypeError: an array holds something other than real numbers.
    """

def compute_batch_token_kl_schulman(
    log_p: ArrayLike,
    log_q: ArrayLike,
    seq_len: SupportsIndex,
) -> NDArray[Any]:
    """Compute :func:`compute_token_kl_schulman` of B sequences, one after the other.

    Args:
        log_p: see :func:`compute_batch_token_kl`.
        log_q: see :func:`compute_batch_token_kl`.
        seq_len: tokens per sequence, at least 1.

    Returns:
        Sums (B,), in nats.

    Raises:
        ValueError: the lengths differ or hold an incomplete sequence, or ``seq_len`` is below 1.
        TypeError: an array holds something other than real numbers.
    """

def compute_discounted_returns(
    rewards: ArrayLike,
    dones: ArrayLike,
    last_value: ArrayLike,
    gamma: float,
    *,
    truncated: ArrayLike | None = None,
    final_values: ArrayLike | None = None,
) -> NDArray[Any]:
    """Compute discounted returns, G_t = r_t + γ G_{t+1}, of one env or of N.

    Args:
        rewards: (T,) or (T, N); float32 makes the computation single precision.
        dones: (T,) or (T, N) nonzero where the task ended after step t.
        last_value: () or (N,) value of the observation after the last step, 0 for none.
        gamma: discount in [0, 1].
        truncated: (T,) or (T, N) nonzero where the episode was cut after step t.
        final_values: (T,) or (T, N) value of the true final observation; read only where truncated.

    Returns:
        Returns like ``rewards``.

    Raises:
        ValueError: shapes disagree, gamma lies outside [0, 1], or only one of ``truncated`` and
            ``final_values`` is given.
        TypeError: an array holds something other than real numbers.

    Example:
        >>> compute_discounted_returns([1.0, 1.0, 1.0], [0, 0, 0], 8.0, 0.5).tolist()
        [2.75, 3.5, 5.0]
    """

def compute_group_advantages(
    rewards: ArrayLike,
    *,
    ddof: int = 0,
    eps: float = 0.0,
    scale: Literal["group", "batch", "none"] = "group",
) -> NDArray[Any]:
    """Compute the advantages of one group.

    Args:
        rewards: (G,); float32 makes the results single precision.
        ddof: delta degrees of freedom of the standard deviation: 0 for the population's, 1 for the
            sample's, which TRL has.
        eps: added to the standard deviation; TRL has 1e-4.
        scale: what deviations from the mean are divided by: the standard deviation of the group or
            of the whole batch, or nothing (Liu et al. 2025, Dr. GRPO).

    Returns:
        Advantages (G,); zeros for equal rewards.

    Raises:
        ValueError: an option is out of its range, or ``rewards`` has not one dimension.
        TypeError: ``rewards`` holds something other than real numbers.

    Example:
        >>> compute_group_advantages([0.9, 0.3, 0.7, 0.1]).round(4).tolist()
        [1.2649, -0.6325, 0.6325, -1.2649]
    """

def compute_lambda_returns(
    rewards: ArrayLike,
    values: ArrayLike,
    dones: ArrayLike,
    last_value: ArrayLike,
    gamma: float,
    lam: float,
    *,
    truncated: ArrayLike | None = None,
    final_values: ArrayLike | None = None,
) -> NDArray[Any]:
    """Compute λ-returns, G_t = r_t + γ ((1 - λ) V_{t+1} + λ G_{t+1}), of one env or of N.

    They are the advantages of GAE plus the values.

    Args:
        rewards: (T,) or (T, N); float32 makes the computation single precision.
        values: (T,) or (T, N) V(s_t).
        dones: (T,) or (T, N) nonzero where the task ended after step t.
        last_value: () or (N,) value of the observation after the last step.
        gamma: discount in [0, 1].
        lam: λ in [0, 1]; 0: one-step returns, 1: discounted returns.
        truncated: (T,) or (T, N) nonzero where the episode was cut after step t.
        final_values: (T,) or (T, N) value of the true final observation; read only where truncated.

    Returns:
        Returns like ``rewards``.

    Raises:
        ValueError: shapes disagree, a factor lies outside [0, 1], or only one of ``truncated`` and
            ``final_values`` is given.
        TypeError: an array holds something other than real numbers.
    """

def compute_n_step_returns(
    rewards: ArrayLike,
    values: ArrayLike,
    dones: ArrayLike,
    last_value: ArrayLike,
    gamma: float,
    n: SupportsIndex,
    *,
    truncated: ArrayLike | None = None,
    final_values: ArrayLike | None = None,
) -> NDArray[Any]:
    """Compute n-step returns, γ^0 r_t + … + γ^{m-1} r_{t+m-1} + γ^m V'_{t+m-1}, of one env or of N.

    m is n, or less where the episode or the rollout ends before.

    Args:
        rewards: (T,) or (T, N); float32 makes the computation single precision.
        values: (T,) or (T, N) V(s_t).
        dones: (T,) or (T, N) nonzero where the task ended after step t.
        last_value: () or (N,) value of the observation after the last step.
        gamma: discount in [0, 1].
        n: number of rewards, at least 1.
        truncated: (T,) or (T, N) nonzero where the episode was cut after step t.
        final_values: (T,) or (T, N) value of the true final observation; read only where truncated.

    Returns:
        Returns like ``rewards``.

    Raises:
        ValueError: shapes disagree, a number is out of its range, or only one of ``truncated`` and
            ``final_values`` is given.
        TypeError: an array holds something other than real numbers.

    Example:
        >>> compute_n_step_returns([1, 1, 1], [0, 4, 8], [0, 0, 0], 16, gamma=0.5, n=2).tolist()
        [3.5, 5.5, 9.0]
    """

def compute_token_kl(log_p: ArrayLike, log_q: ArrayLike) -> float:
    """Sum exp(log p) (log p - log q).

    This is KL(p ‖ q) where the tokens are a whole vocabulary. Over sampled tokens it is neither
    that nor an estimate of it: there, take :func:`compute_token_kl_schulman`.

    Args:
        log_p: (L,) log-probabilities under the policy; -inf adds nothing.
        log_q: (L,) under the reference.

    Returns:
        The sum, in nats, computed in double precision.

    Raises:
        ValueError: the lengths differ, or there is not one dimension.
        TypeError: an array holds something other than real numbers.

    Example:
        >>> round(compute_token_kl(np.log([0.5, 0.5]), np.log([0.9, 0.1])), 4)
        0.5108
    """

def compute_token_kl_schulman(log_p: ArrayLike, log_q: ArrayLike) -> float:
    """Sum k3 = exp(r) - r - 1 with r = log q - log p, over tokens sampled from p.

    Unbiased for KL(p ‖ q), and no term is negative.

    Args:
        log_p: (L,) log-probabilities of the sampled tokens under the policy.
        log_q: (L,) under the reference.

    Returns:
        The sum, in nats, computed in double precision; divide by L for the mean per token.

    Raises:
        ValueError: the lengths differ, or there is not one dimension.
        TypeError: an array holds something other than real numbers.

    Example:
        >>> round(compute_token_kl_schulman([-1.2, -0.8, -1.5, -0.3], [-1.0, -0.9, -1.4, -0.5]), 4)
        0.0501
    """

def compute_vtrace(
    log_rhos: ArrayLike,
    rewards: ArrayLike,
    values: ArrayLike,
    dones: ArrayLike,
    bootstrap_value: ArrayLike,
    gamma: float,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    *,
    truncated: ArrayLike | None = None,
    final_values: ArrayLike | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Compute V-trace targets and policy-gradient advantages of one env or of N.

    Args:
        log_rhos: (T,) or (T, N) log π(a|s) - log μ(a|s), of the policy that learns and the one
            that acted.
        rewards: (T,) or (T, N); float32 makes the computation single precision.
        values: (T,) or (T, N) V(s_t) of the policy that learns.
        dones: (T,) or (T, N) nonzero where the task ended after step t.
        bootstrap_value: () or (N,) value of the observation after the last step.
        gamma: discount in [0, 1].
        rho_bar: ρ̄, at least 0; decides which policy the value function belongs to.
        c_bar: c̄, at least 0 and in the paper at most ρ̄; decides how fast it is learned.
        truncated: (T,) or (T, N) nonzero where the episode was cut after step t.
        final_values: (T,) or (T, N) value of the true final observation; read only where truncated.

    Returns:
        vs, the value function's targets, and the advantages, each like ``rewards``.

    Raises:
        ValueError: shapes disagree, a number is out of its range, or only one of ``truncated`` and
            ``final_values`` is given.
        TypeError: an array holds something other than real numbers.

    Example:
        >>> vs, _ = compute_vtrace([0.0, 0.0], [1.0, 1.0], [0.5, 0.5], [0, 1], 9.0, gamma=1.0)
        >>> vs.tolist()  # with ρ = 1 the targets are n-step returns
        [2.0, 1.0]
    """

def normalize_advantages(
    advantages: ArrayLike,
    *,
    ddof: int = 1,
    eps: float = 1e-08,
) -> NDArray[Any]:
    """Standardise advantages to mean 0 and standard deviation 1.

    Args:
        advantages: any shape; float32 makes the results single precision.
        ddof: delta degrees of freedom of the standard deviation; 1 is what torch's ``std`` has.
        eps: added to the standard deviation.

    Returns:
        (A - mean) / (std + eps), the same shape; zeros where all are equal, as one alone is.

    Raises:
        ValueError: ``eps`` is negative or not finite, or ``ddof`` leaves no degree of freedom.
        TypeError: ``advantages`` holds something other than real numbers.

    Example:
        >>> normalize_advantages([1.0, 2.0, 3.0]).round(6).tolist()
        [-1.0, 0.0, 1.0]
    """

def pack_sequences(sequences: Iterable[Any], max_len: SupportsIndex) -> PackedSequences:
    """Pack sequences into rows by first-fit decreasing.

    The longest goes first, each into the first row with room for it, equal ones in their order;
    that takes at most 11/9 of the fewest possible rows, and one more.

    Args:
        sequences: lengths, or arrays (L,) of integer tokens.
        max_len: places per row.

    Raises:
        ValueError: a length lies outside [1, max_len], or a token does not fit int64.
        TypeError: tokens or lengths are no integers; a bool is no length.

    Example:
        >>> packed, masks, positions = pack_sequences([3, 2, 2], 5)
        >>> packed.tolist()
        [[0, 1, 2, 3, 4], [5, 6, -1, -1, -1]]
        >>> positions.tolist()
        [[0, 1, 2, 0, 1], [0, 1, 0, 0, 0]]
    """

@final
class PackedSequences:
    """Sequences packed into R rows; unpacks as ``packed, masks, positions``.

    The object never changes, so that threads may share it; its arrays are the caller's.
    """

    @property
    def packed(self) -> NDArray[np.int64]:
        """(R, max_len) tokens or 0; or places in the sequences laid end to end or -1."""

    @property
    def masks(self) -> NDArray[np.bool_]:
        """(R, max_len) true where there is a token."""

    @property
    def positions(self) -> NDArray[np.int64]:
        """(R, max_len) position within its own sequence; 0 in padding."""

    @property
    def indices(self) -> NDArray[np.int64]:
        """(S,) the sequences in the order in which the rows hold them."""

    @property
    def rows(self) -> NDArray[np.int64]:
        """(S,) the row of each entry of ``indices``."""

    @property
    def cu_seqlens(self) -> NDArray[np.int32]:
        """(S + 1,) where each sequence begins, and the last ends, when the padding is left out."""

    def __iter__(self) -> Iterator[NDArray[Any]]: ...

@final
class RunningMeanStd:
    """Mean and variance of all arrays of ``shape`` seen so far.

    What was seen decides the result, up to rounding, and not how it was divided into batches or
    among objects that were merged. A call releases the interpreter lock; calls from several threads
    are done one after the other.

    Args:
        shape: of one element; an integer is one dimension, none is a number.

    Raises:
        ValueError: a size of ``shape`` is less than 1.

    Example:
        >>> running = RunningMeanStd(2)
        >>> running.update([[1.0, 10.0], [3.0, 30.0]])
        >>> running.mean.tolist(), running.var.tolist(), running.count
        ([2.0, 20.0], [1.0, 100.0], 2)
    """

    def __new__(
        cls, shape: SupportsIndex | Sequence[SupportsIndex] | None = None
    ) -> RunningMeanStd: ...
    @property
    def count(self) -> int:
        """How many elements were seen."""
    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean, ``shape``; 0 before the first element."""
    @property
    def var(self) -> NDArray[np.float64]:
        """The population variance, ``shape``; 1 before the first element."""
    def update(self, batch: ArrayLike) -> None:
        """Take in a batch.

        Args:
            batch: (B, *shape), finite.

        Raises:
            ValueError: the shape is wrong, a number is not finite, or they lie so far apart that
                the variance is not; nothing is taken in then.
            TypeError: ``batch`` holds something other than real numbers.
        """
    def merge(self, other: RunningMeanStd) -> None:
        """Take in all that ``other`` has seen.

        Raises:
            ValueError: the shapes differ, or the variance would not be finite; nothing is taken in
                then.
        """
    def state(self) -> dict[str, Any]:
        """Return all that was seen: ``count``, ``mean`` and ``squares``, summed deviations²."""
    def set_state(self, state: dict[str, Any]) -> None:
        """Go on exactly from a :meth:`state`.

        Raises:
            ValueError: it is not the state of one of this shape; nothing has changed then.
        """

@final
class CartPole:
    """gymnasium's ``CartPole-v1``, bit for bit: the same seed gives the same episode.

    Observation: cart position (m) and velocity (m/s), pole angle (rad) and angular velocity
    (rad/s), float32. Reward: 1 a step. The episode terminates where the cart leaves ±2.4 m or the
    pole ±12 degrees, and is truncated after 500 steps of 0.02 s. An object may be used from several
    threads at once: calls are done one after the other.

    Args:
        seed: seed of the random stream, an integer in [0, 2**64), or ``None`` for one from the
            operating system.

    Raises:
        ValueError: ``seed`` is out of range.
        TypeError: ``seed`` is no integer; a bool is none.

    Example:
        >>> env = CartPole(seed=42)
        >>> env.reset()
        array([ 0.0273956 , -0.00611216,  0.03585979,  0.0197368 ], dtype=float32)
        >>> env.step(1)["terminated"]
        False
    """

    def __new__(cls, seed: SupportsIndex | None = None) -> CartPole: ...
    def reset(self, seed: SupportsIndex | None = None) -> NDArray[np.float32]:
        """Begin an episode and return its first observation, shape ``(4,)``.

        Args:
            seed: starts the random stream anew; ``None`` goes on with the present one.
        """

    def step(self, action: SupportsIndex) -> Step:
        """Push left (0) or right (1) and return ``obs``, ``reward``, ``terminated``, ``truncated``.

        ``truncated`` is true at the 500th step whether or not ``terminated`` is.

        Raises:
            RuntimeError: the episode has ended or none has begun; call :meth:`reset`.
            ValueError: ``action`` is neither 0 nor 1.
            TypeError: ``action`` is no integer.
        """

@final
class VecEnv:
    """``n`` native envs stepped together, with same-step autoreset.

    Env ``i`` is bit-identical to gymnasium's env of the same id and seed. An object may be used
    from several threads at once: calls are done one after the other.

    ============================  ======================  ===========  ==========
    ``env_id``                    actions                 ``obs_dim``  time limit
    ============================  ======================  ===========  ==========
    ``CartPole-v1``               0, 1                    4            500
    ``MountainCar-v0``            0, 1, 2                 2            200
    ``MountainCarContinuous-v0``  force in [-1, 1]        2            999
    ``Pendulum-v1``               torque in [-2, 2], N m  3            200
    ``Acrobot-v1``                0, 1, 2                 6            500
    ============================  ======================  ===========  ==========

    Args:
        n: how many envs, in [1, 2**24].
        seed: an integer ``s`` gives env ``i`` the seed ``s + i``, as gymnasium does; a sequence
            gives each env its own; ``None`` takes seeds from the operating system. The first
            :meth:`reset_all` without a seed starts from it.
        env_id: one of :func:`native_env_ids`.

    Raises:
        ValueError: ``n`` or a seed is out of range, or ``env_id`` is unknown.
        TypeError: ``n`` or a seed is no integer.

    Example:
        >>> envs = VecEnv(8, seed=0)
        >>> obs = envs.reset_all()
        >>> step = envs.step_all([0, 1] * 4)
        >>> step["obs"].shape, step["rewards"].sum()
        ((8, 4), np.float64(8.0))
        >>> envs = VecEnv(2, seed=0, env_id="Pendulum-v1")
        >>> obs = envs.reset_all()
        >>> envs.step_all([[0.5], [-2.0]])["obs"].shape
        (2, 3)
    """

    def __new__(
        cls,
        n: SupportsIndex,
        seed: SupportsIndex | Sequence[SupportsIndex] | NDArray[np.integer[Any]] | None = None,
        env_id: str = "CartPole-v1",
    ) -> VecEnv: ...
    @property
    def n_envs(self) -> int:
        """How many envs there are."""

    @property
    def env_id(self) -> str:
        """The id of each env."""

    @property
    def observation_space(self) -> Space[Any]:
        """The space of one env's observations; importing it needs gymnasium."""

    @property
    def action_space(self) -> Space[Any]:
        """The space of one env's actions; importing it needs gymnasium."""

    def reset_all(
        self,
        seed: SupportsIndex | Sequence[SupportsIndex] | NDArray[np.integer[Any]] | None = None,
    ) -> NDArray[np.float32]:
        """Begin an episode in every env and return the first observations, ``(n, obs_dim)``.

        Args:
            seed: starts the random streams anew, read as the constructor's; ``None`` goes on with
                the present ones.

        Raises:
            ValueError: a seed is out of range, or there is not one for each env.
            TypeError: a seed is no integer.
        """

    def step_all(self, actions: ArrayLike) -> VecStep:
        """Advance every env by one step and begin an episode where one ended.

        Args:
            actions: one action per env. Discrete ones: shape ``(n,)``, a list or an array of
                integers; an int64 array is read in place. Continuous ones: shape
                ``(n, action_dim)``, or ``(n,)`` where ``action_dim`` is 1, real numbers of any
                type; a float32 array is read in place and everything else rounded to float32.
                Beyond the bounds they count as in gymnasium, which clips the torque or the force.

        Returns:
            ``obs`` ``(n, obs_dim)`` float32: what to act on next, the first observation of the new
            episode where one ended. ``rewards`` ``(n,)`` float64. ``terminated`` and ``truncated``
            ``(n,)`` bool, both of which may be true. ``final_obs`` ``(n, obs_dim)`` float32: what
            the step itself led to, equal to ``obs`` where the episode goes on.

        Raises:
            RuntimeError: :meth:`reset_all` has not been called.
            ValueError: there is not one action per env, or one does not exist or is not finite; no
                env has moved.
            TypeError: an action is no integer, or no real number; a bool is neither.
        """

    def step_into(
        self,
        actions: ArrayLike,
        obs: NDArray[np.float32],
        rewards: NDArray[np.float64],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        final_obs: NDArray[np.float32],
    ) -> None:
        """Do what :meth:`step_all` does, into arrays that are there already.

        Args:
            actions: as in :meth:`step_all`.
            obs: C-contiguous and writeable, like all arrays here; ``(n, obs_dim)``.
            rewards: ``(n,)``.
            terminated: ``(n,)``.
            truncated: ``(n,)``.
            final_obs: ``(n, obs_dim)``.

        Raises:
            RuntimeError: :meth:`reset_all` has not been called.
            ValueError: an array has another shape, is not contiguous or not writeable, or shares
                memory with another; or what :meth:`step_all` raises. No env has moved.
            TypeError: an argument is no array or has another dtype; or what :meth:`step_all`
                raises.
        """

    def state(self) -> dict[str, NDArray[Any]]:
        """Return a copy of all that decides how the envs go on.

        Returns:
            ``physics`` ``(n, state_dim)`` float64, gymnasium's ``state``, and for
            MountainCarContinuous-v0 and Acrobot-v1, which begin an episode in another precision
            than they go on with, 1 before its first step and 0 after; ``elapsed`` ``(n,)`` uint32,
            steps since the episode began; ``rng`` ``(n, 4)`` uint64, the PCG64 state and increment,
            high words first; ``started`` ``(1,)`` bool, whether :meth:`reset_all` has been called;
            ``env_id`` uint8, the bytes of the id.
        """

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on exactly from a :meth:`state`.

        Raises:
            ValueError: a part is missing, unknown, of the wrong type or shape, holds what no env
                can be in, or is of other envs; the envs stay as they were.
            TypeError: ``state`` is no dict.
        """

    def close(self) -> None:
        """Do nothing: the envs hold no resource but memory."""

@final
class MmapReplayBuffer:
    """The last ``total_capacity`` transitions: the newest in memory, the others in a file.

    Draws are those of a :class:`ReplayBuffer` of ``total_capacity``, and so is all that is not said
    here. A transition is in the file before its place in memory is taken, so a full disk loses
    none: what there is no room for is refused with an OSError. Every transition in the file has a
    checksum, which is compared whenever it is read. The file is locked while the buffer is open.

    With ``keep`` the file is a store: :meth:`flush` makes durable what is stored, together with the
    random stream, and a buffer of the same sizes over the same path goes on from the last flush,
    however the process before ended. Opening reads the file once and checks all of it. The buffer
    also flushes of itself, at least every ``2 * hot_capacity`` pushes, and when it is closed.

    A call releases the interpreter lock; calls from several threads are done one after the other.
    It is a context manager, which closes it.

    Args:
        hot_capacity: how many transitions lie in memory, at least 1.
        total_capacity: how many transitions fit, at least ``hot_capacity``.
        obs_dim: the shape of an observation; an integer is the length of a vector.
        act_dim: the shape of an action.
        cold_path: the file. It must be new, empty, or one that a buffer with the same ``keep`` left
            behind. A relative path is one of the working directory at the time of this call.
        keep: whether the file stays when the buffer is closed, to be opened again; otherwise it is
            deleted by :meth:`close`, and when the buffer goes. Only the process that opened it
            deletes it, and no other file that has taken its place.
        obs_dtype: uint8, int32, int64, float32 or float64.
        act_dtype: float32 or int64.
        seed: seed of the buffer's own random stream, or ``None`` for one from the operating system;
            a buffer that is opened again goes on with the stream it had.

    Raises:
        ValueError: a size, type or seed is out of range, or no file can be as long.
        TypeError: an argument has the wrong type.
        MemoryError: the machine has less memory available than ``hot_capacity`` transitions take.
        OSError: the file cannot be written, is another buffer's or none's, holds other sizes or
            types, or is damaged.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/cold.bin"
        >>> with MmapReplayBuffer(10, 1000, obs_dim=2, act_dim=1, cold_path=path) as buffer:
        ...     for k in range(50):
        ...         buffer.push([k, k], 0.5, 1.0, False, False, [k, k])
        ...     buffer.sample(batch_size=32, seed=0)["obs"].shape
        (32, 2)
    """

    def __new__(
        cls,
        hot_capacity: SupportsIndex,
        total_capacity: SupportsIndex,
        obs_dim: SupportsIndex | Sequence[SupportsIndex],
        act_dim: SupportsIndex | Sequence[SupportsIndex],
        cold_path: str | PathLike[str],
        keep: bool = False,
        *,
        obs_dtype: DTypeLike = "float32",
        act_dtype: DTypeLike = "float32",
        seed: SupportsIndex | None = None,
    ) -> MmapReplayBuffer: ...
    @staticmethod
    def memory_bytes(
        hot_capacity: SupportsIndex,
        obs_dim: SupportsIndex | Sequence[SupportsIndex],
        act_dim: SupportsIndex | Sequence[SupportsIndex],
        *,
        obs_dtype: DTypeLike = "float32",
        act_dtype: DTypeLike = "float32",
    ) -> int:
        """Return the bytes of memory that such a buffer takes when it is full, without the file.

        Raises:
            MemoryError: no address space could hold it.
        """

    @property
    def capacity(self) -> int:
        """How many transitions fit, in memory and in the file."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the buffer takes when it is full, without the file."""

    def __len__(self) -> int:
        """Return how many transitions are stored."""

    def push(
        self,
        obs: ArrayLike,
        action: ArrayLike,
        reward: SupportsFloat | Sequence[SupportsFloat],
        terminated: SupportsFloat | Sequence[SupportsFloat],
        truncated: SupportsFloat | Sequence[SupportsFloat],
        next_obs: ArrayLike | None = None,
    ) -> None:
        """Store one transition, as :meth:`ReplayBuffer.push` does.

        Args:
            obs: shape ``obs_dim``.
            action: shape ``act_dim``.
            reward: stored as float32.
            terminated: whether the task ended.
            truncated: whether the episode was cut.
            next_obs: what the step led to, shape ``obs_dim``.

        Raises:
            OSError: the file cannot take an older transition; nothing is stored.
            ValueError: as there.
            TypeError: as there.
            RuntimeError: the buffer is closed.
        """

    def push_batch(
        self,
        obs: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        terminated: ArrayLike,
        truncated: ArrayLike,
        next_obs: ArrayLike | None = None,
    ) -> None:
        """Store n transitions, as :meth:`ReplayBuffer.push_batch` does.

        Args:
            obs: shape ``(n, *obs_dim)``.
            actions: shape ``(n, *act_dim)``, or ``(n,)`` where an action is one number.
            rewards: shape ``(n,)``.
            terminated: shape ``(n,)``.
            truncated: shape ``(n,)``.
            next_obs: shape ``(n, *obs_dim)``.

        Raises:
            OSError: the file cannot take older transitions. Where n is at most ``hot_capacity``
                nothing is stored, otherwise a multiple of it.
            ValueError: as there; nothing is stored.
            TypeError: as there.
            RuntimeError: the buffer is closed.
        """

    def sample(
        self,
        batch_size: SupportsIndex,
        seed: SupportsIndex | None = None,
        *,
        out: dict[str, NDArray[Any]] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Draw transitions uniformly with replacement, as :meth:`ReplayBuffer.sample` does.

        Args:
            batch_size: how many, B; at least 1, and as many as you like.
            seed: makes the call reproducible; ``None`` goes on with the buffer's own stream.
            out: C-contiguous arrays to write into, with the keys, shapes and types of the result.

        Returns:
            What :meth:`ReplayBuffer.sample` returns.

        Raises:
            OSError: the file cannot be read, or a transition in it is damaged.
            RuntimeError: as there, or the buffer is closed.
            ValueError: as there.
            TypeError: as there.
            MemoryError: as there.
        """

    def flush(self) -> None:
        """Make durable what is stored, and the random stream; without ``keep``, do nothing.

        Raises:
            OSError: the disk cannot take it; what was durable stays so, and nothing is lost.
            RuntimeError: the buffer is closed.
        """

    def close(self) -> None:
        """Flush where the file is to be kept, delete it where it is not, and let go of it.

        Closing a closed buffer does nothing.

        Raises:
            OSError: as :meth:`flush`; the buffer stays open.
        """

    def __enter__(self) -> MmapReplayBuffer:
        """Return the buffer.

        Raises:
            RuntimeError: it is closed.
        """

    def __exit__(self, *_exception: object) -> None: ...

@final
class OfflineDatasetBuffer:
    """Recorded transitions, drawn from uniformly, one by one or in pieces of trajectories.

    The episodes lie one after the other, in the order of their steps; each ends with a termination
    or a truncation. The data is copied, and never changes.

    A call releases the interpreter lock; calls from several threads are done one after the other.

    Args:
        obs: N observations, ``(N, *obs_dim)`` or flat ``(N * obs_dim,)``; real numbers of any type.
        next_obs: what the steps led to, likewise, also where an episode ends.
        actions: ``(N, *act_dim)`` or flat ``(N * act_dim,)``.
        rewards: ``(N,)``, stored as float32.
        terminated: ``(N,)``, whether the task ended; any number but zero is true.
        truncated: ``(N,)``, whether the episode was cut.
        normalize: give observations out as (obs - ``obs_mean``) / ``obs_std``.
        obs_dim: the shape of an observation; ``None`` is the shape of a row, or the length that the
            size of a flat array leaves.
        act_dim: the shape of an action, likewise.
        obs_dtype: uint8, int32, int64, float32 or float64; ``None`` is uint8 for uint8 and float32
            for all other types.
        act_dtype: float32 or int64; ``None`` is int64 for integers and float32 otherwise.
        seed: seed of the dataset's own random stream, or ``None`` for one from the operating
            system.

    Raises:
        ValueError: a shape is wrong, a number is not finite or does not fit its type, the last
            transition ends no episode, or integers are to be normalised.
        TypeError: an argument holds no real numbers.
        MemoryError: the machine has less memory available than the copy takes.

    Source:
        Fujimoto and Gu, "A Minimalist Approach to Offline Reinforcement Learning", 2021, eq. 6,
        for the normalisation.

    Example:
        >>> ends, cuts = [False, False, True], [False] * 3
        >>> data = OfflineDatasetBuffer([0, 1, 2], [1, 2, 3], [0, 1, 0], [1, 1, 1], ends, cuts)
        >>> data.sample_trajectories(batch_size=8, seq_len=5, seed=0)["obs"].shape
        (8, 5, 1)
    """

    def __new__(
        cls,
        obs: ArrayLike,
        next_obs: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        terminated: ArrayLike,
        truncated: ArrayLike,
        normalize: bool = False,
        *,
        obs_dim: SupportsIndex | Sequence[SupportsIndex] | None = None,
        act_dim: SupportsIndex | Sequence[SupportsIndex] | None = None,
        obs_dtype: DTypeLike | None = None,
        act_dtype: DTypeLike | None = None,
        seed: SupportsIndex | None = None,
    ) -> OfflineDatasetBuffer: ...
    def __len__(self) -> int:
        """Return how many transitions there are."""

    def n_episodes(self) -> int:
        """Return how many episodes there are."""

    def stats(self) -> dict[str, float]:
        """Return the sizes of the dataset and statistics of its episodes.

        Returns:
            ``n_transitions``, ``n_episodes``, ``obs_dim`` and ``act_dim``, which count numbers; of
            the undiscounted returns ``mean_return``, ``std_return`` (population), ``min_return``
            and ``max_return``; of the numbers of steps ``mean_episode_length``,
            ``std_episode_length``, ``min_episode_length`` and ``max_episode_length``.
        """

    @property
    def obs_mean(self) -> NDArray[np.float64] | None:
        """Mean of ``obs`` over the dataset, shape ``obs_dim``; ``None`` without ``normalize``."""

    @property
    def obs_std(self) -> NDArray[np.float64] | None:
        """Standard deviation of ``obs`` plus 0.001, likewise."""

    def sample(
        self,
        batch_size: SupportsIndex,
        seed: SupportsIndex | None = None,
        *,
        out: dict[str, NDArray[Any]] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Draw transitions uniformly with replacement, as :meth:`ReplayBuffer.sample` does.

        Args:
            batch_size: how many, B; at least 1, and as many as you like.
            seed: makes the call reproducible; ``None`` goes on with the dataset's own stream.
            out: C-contiguous arrays to write into, with the keys, shapes and types of the result.

        Returns:
            ``obs`` and ``next_obs`` ``(B, *obs_dim)``, ``actions`` ``(B, *act_dim)``, ``rewards``
            ``(B,)`` float32, ``terminated`` and ``truncated`` ``(B,)`` bool.

        Raises:
            ValueError: ``batch_size`` or ``seed`` is out of range, or ``out`` does not fit.
            TypeError: ``batch_size`` or ``seed`` is no integer, or ``out`` holds other types.
            MemoryError: there is no room for such a batch.
        """

    def sample_trajectories(
        self, batch_size: SupportsIndex, seq_len: SupportsIndex, seed: SupportsIndex | None = None
    ) -> dict[str, NDArray[Any]]:
        """Draw pieces of trajectories: every transition begins one with equal probability.

        Args:
            batch_size: how many pieces, B; at least 1.
            seq_len: how many steps of each, T; at least 1. A piece ends with its episode, and what
                is missing is zeros.
            seed: makes the call reproducible: the first transitions are those of
                ``numpy.random.default_rng(seed).integers(len(buffer), size=B)``. ``None`` goes on
                with the dataset's own stream.

        Returns:
            ``obs`` ``(B, T, *obs_dim)``, ``actions`` ``(B, T, *act_dim)``, ``rewards`` ``(B, T)``
            float32, ``terminated`` and ``truncated`` ``(B, T)`` bool; ``returns_to_go`` ``(B, T)``
            float32, the sum of the rewards from a step to the end of its episode, beyond the piece
            too; ``timesteps`` ``(B, T)`` int64, the number of a step in its episode, from 0;
            ``mask`` ``(B, T)`` bool, whether there is a step.

        Raises:
            ValueError: a size or ``seed`` is out of range.
            TypeError: a size or ``seed`` is no integer.
            MemoryError: there is no room for such a batch.
        """

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what changes: ``rng`` ``(6,)`` uint64, as in :meth:`ReplayBuffer.state`."""

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on exactly from a :meth:`state` over the same dataset.

        Raises:
            ValueError: ``rng`` is missing or no stream's.
            TypeError: ``state`` is no dict.
        """

@final
class ReplayBuffer:
    """The last ``capacity`` transitions, drawn from uniformly with replacement.

    All numbers that are stored must be finite and fit their type; others are refused, whatever type
    they come in. A call releases the interpreter lock; calls from several threads are done one
    after the other.

    Memory is reserved at construction and taken as the buffer fills.

    With ``n_step`` > 1 the rows of :meth:`push_batch` are steps of ``n_envs`` envs in turn: row i
    is of env i mod ``n_envs``. A drawn transition then spans k steps of its env: ``n_step``, or
    fewer where its episode ends or nothing newer is stored. Its reward is Σ γ^i r_i, and γ^k the
    factor of what follows. Only a termination or a truncation tells one episode from the next.

    Args:
        capacity: how many transitions fit, at least 1.
        obs_dim: the shape of an observation; an integer is the length of a vector.
        act_dim: the shape of an action.
        obs_dtype: uint8, int32, int64, float32 or float64.
        act_dtype: float32 or int64.
        n_envs: how many envs are pushed in turn, as :meth:`push_batch` gets their steps.
        n_step: how many steps of its env a drawn transition spans, where there are as many.
        gamma: γ, the discount factor of a step, for ``n_step`` > 1.
        share_frames: whether observations are stacks of frames along their first axis, each frame
            of which is stored once, however many observations it is in. What is drawn is the same
            for any observations; only stacks of consecutive frames save memory.
        seed: seed of the buffer's own random stream, an integer in [0, 2**64), or ``None`` for one
            from the operating system.

    Raises:
        ValueError: a size, type or seed is out of range.
        TypeError: a size or seed is no integer.
        MemoryError: the machine has less memory available than the full buffer takes.

    Source:
        Hessel et al., "Rainbow", 2018, section "Multi-step learning", for ``n_step``.

    Example:
        >>> buffer = ReplayBuffer(capacity=100, obs_dim=2, act_dim=1)
        >>> buffer.push([0.0, 1.0], 0.5, 1.0, False, False, [1.0, 2.0])
        >>> batch = buffer.sample(batch_size=32, seed=0)
        >>> batch["next_obs"].shape, batch["actions"].shape
        ((32, 2), (32, 1))
    """

    def __new__(
        cls,
        capacity: SupportsIndex,
        obs_dim: SupportsIndex | Sequence[SupportsIndex],
        act_dim: SupportsIndex | Sequence[SupportsIndex],
        *,
        obs_dtype: DTypeLike = "float32",
        act_dtype: DTypeLike = "float32",
        n_envs: SupportsIndex = 1,
        n_step: SupportsIndex = 1,
        gamma: float = 0.99,
        share_frames: bool = False,
        seed: SupportsIndex | None = None,
    ) -> ReplayBuffer: ...
    @staticmethod
    def memory_bytes(
        capacity: SupportsIndex,
        obs_dim: SupportsIndex | Sequence[SupportsIndex],
        act_dim: SupportsIndex | Sequence[SupportsIndex],
        *,
        obs_dtype: DTypeLike = "float32",
        act_dtype: DTypeLike = "float32",
        share_frames: bool = False,
    ) -> int:
        """Return the bytes of memory that such a buffer takes when it is full.

        With ``share_frames`` where every transition brings one new frame; the first of an episode
        brings more.

        Raises:
            MemoryError: no address space could hold it.
        """

    @property
    def capacity(self) -> int:
        """How many transitions fit."""

    @property
    def n_envs(self) -> int:
        """How many envs are stored in turn."""

    @property
    def n_step(self) -> int:
        """How many steps of its env a drawn transition spans."""

    @property
    def gamma(self) -> float:
        """The discount of the rewards within those steps, and of the value after them."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the buffer takes when it is full."""

    def __len__(self) -> int:
        """Return how many transitions are stored."""

    def push(
        self,
        obs: ArrayLike,
        action: ArrayLike,
        reward: SupportsFloat | Sequence[SupportsFloat],
        terminated: SupportsFloat | Sequence[SupportsFloat],
        truncated: SupportsFloat | Sequence[SupportsFloat],
        next_obs: ArrayLike | None = None,
    ) -> None:
        """Store one transition, in the place of the oldest where the buffer is full.

        Args:
            obs: shape ``obs_dim``; real numbers of any type. A number stands for an array of one.
            action: shape ``act_dim``, likewise.
            reward: stored as float32; a list or an array of one number will do, as for the next
                two.
            terminated: whether the task ended; any number but zero is true.
            truncated: whether the episode was cut.
            next_obs: what the step led to, never the first observation of another episode. Where it
                is not given, the buffer gives no next observations as long as it holds the
                transition: there is nothing to bootstrap from.

        Raises:
            ValueError: a shape is wrong, or a number is not finite or does not fit its type;
                nothing is stored.
            TypeError: an argument is no real number or array of such.
        """

    def push_batch(
        self,
        obs: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        terminated: ArrayLike,
        truncated: ArrayLike,
        next_obs: ArrayLike | None = None,
    ) -> None:
        """Store n transitions, the rows of arrays, in their order.

        Args:
            obs: shape ``(n, *obs_dim)``; like all, of any real type, and converted.
            actions: shape ``(n, *act_dim)``, or ``(n,)`` where an action is one number.
            rewards: shape ``(n,)``.
            terminated: shape ``(n,)``; any number but zero is true.
            truncated: shape ``(n,)``.
            next_obs: shape ``(n, *obs_dim)``, or ``None`` as in :meth:`push`.

        Raises:
            ValueError: as :meth:`push`, or n is no multiple of ``n_envs``; nothing is stored.
            TypeError: as :meth:`push`.
        """

    def sample(
        self,
        batch_size: SupportsIndex,
        seed: SupportsIndex | None = None,
        *,
        out: dict[str, NDArray[Any]] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Draw transitions uniformly with replacement.

        Args:
            batch_size: how many, B; at least 1, and as many as you like.
            seed: makes the call reproducible: the rows are those of
                ``numpy.random.default_rng(seed).integers(len(buffer), size=B)``. ``None`` goes on
                with the buffer's own stream.
            out: C-contiguous arrays to write into, with the keys, shapes and types of the result.

        Returns:
            ``obs`` and ``next_obs`` ``(B, *obs_dim)``, ``actions`` ``(B, *act_dim)``, ``rewards``
            ``(B,)`` float32, ``terminated`` and ``truncated`` ``(B,)`` bool; ``out`` where it is
            given. While the buffer holds a transition without its next observation there is no
            ``next_obs``, and asking for it is a KeyError that says why. With ``n_step`` > 1
            ``rewards`` are Σ γ^i r_i over k steps, ``next_obs`` and the flags those of the last of
            them, and ``discounts`` ``(B,)`` float32 are γ^k, or 0 after a termination.

        Raises:
            RuntimeError: the buffer is empty, or ``out`` has a ``next_obs`` that is not known.
            ValueError: ``batch_size`` or ``seed`` is out of range, or ``out`` does not fit.
            TypeError: ``batch_size`` or ``seed`` is no integer, or ``out`` holds other types.
            MemoryError: there is no room for such a batch.
        """

    def sample_sequences(
        self,
        batch_size: SupportsIndex,
        seq_len: SupportsIndex,
        seed: SupportsIndex | None = None,
        *,
        cross_episodes: bool = False,
    ) -> dict[str, NDArray[Any]]:
        """Draw sequences of steps, each of one env.

        Args:
            batch_size: how many sequences, B; at least 1.
            seq_len: how many steps of each, T; at least 1.
            seed: makes the call reproducible: the first transitions are the
                ``numpy.random.default_rng(seed).integers(n, size=B)``-th oldest, n being how many
                can be first. ``None`` goes on with the buffer's own stream.
            cross_episodes: whether a sequence goes on with the env's next episode. It is then
                whole, and does not begin with a transition that too few follow; otherwise it ends
                with its episode or with what is stored, and what is missing is zeros.

        Returns:
            The arrays of :meth:`sample` with two axes ``(B, T)`` in front, of one step per
            transition also with ``n_step`` > 1; ``is_first`` ``(B, T)`` bool, whether a step is the
            first of its episode, or the oldest of it that is stored; ``mask`` ``(B, T)`` bool,
            whether there is a step.

        Raises:
            RuntimeError: the buffer is empty, or too few transitions are stored.
            ValueError: a size or ``seed`` is out of range.
            TypeError: a size or ``seed`` is no integer.
            MemoryError: there is no room for such a batch.
        """

    def state(self) -> dict[str, NDArray[Any]]:
        """Return a copy of all that decides how the buffer goes on.

        Returns:
            The arrays of a batch with all transitions in the order of their slots, zeros where a
            ``next_obs`` is unknown; ``has_next_obs`` ``(len,)`` bool; ``position`` ``(1,)`` uint64,
            the slot that is written next; ``n_envs`` ``(1,)`` uint64; ``rng`` ``(6,)`` uint64, the
            PCG64 state and increment, high words first, whether half a word is left over, and that
            half.
        """

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on exactly from a :meth:`state`.

        Raises:
            ValueError: a part is missing, unknown, of the wrong shape, or holds what no buffer of
                this capacity and ``n_envs`` can; the buffer stays as it was.
            TypeError: ``state`` is no dict, or a part holds no real numbers.
        """

@final
class PrioritizedReplayBuffer:
    """The last ``capacity`` transitions, drawn from in proportion to priorities.

    P(i) = p_i^α / Σ p_k^α. A batch of B takes one transition from each B-th of the sum: stratified.
    The weights that correct for it are w_i = (N·P(i))^-β / max_k w_k, the maximum over all stored
    transitions, so that a transition's weight does not depend on the rest of its batch.

    Everything else is as in :class:`ReplayBuffer`.

    Args:
        capacity: how many transitions fit, at least 1.
        obs_dim: the shape of an observation; an integer is the length of a vector.
        act_dim: the shape of an action.
        alpha: α in [0, 1]; 0 draws uniformly.
        beta: β in [0, 1]; 1 corrects in full.
        obs_dtype: uint8, int32, int64, float32 or float64.
        act_dtype: float32 or int64.
        n_envs: how many envs are pushed in turn, as :meth:`push_batch` gets their steps.
        n_step: how many steps of its env a drawn transition spans, where there are as many. It has
            one priority, in the slot of its first step.
        gamma: γ, the discount factor of a step, for ``n_step`` > 1.
        share_frames: as in :class:`ReplayBuffer`.
        seed: seed of the buffer's own random stream, or ``None`` for one from the operating system.

    Raises:
        ValueError: a size, type, exponent or seed is out of range.
        TypeError: an argument has the wrong type.
        MemoryError: the machine has less memory available than the full buffer takes.

    Source:
        Schaul et al., "Prioritized Experience Replay", ICLR 2016: equation 1, algorithm 1, section
        3.4 and appendix B.2.1, for proportional priorities. The paper leaves open which weights the
        maximum is over; all stored ones is what OpenAI Baselines takes.

    Example:
        >>> buffer = PrioritizedReplayBuffer(capacity=100, obs_dim=2, act_dim=1)
        >>> buffer.push([0.0, 1.0], 0.5, 1.0, False, False, [1.0, 2.0])
        >>> batch = buffer.sample(batch_size=32, seed=0)
        >>> buffer.update_priorities(batch["indices"], [0.1] * 32)
    """

    def __new__(
        cls,
        capacity: SupportsIndex,
        obs_dim: SupportsIndex | Sequence[SupportsIndex],
        act_dim: SupportsIndex | Sequence[SupportsIndex],
        alpha: float = 0.6,
        beta: float = 0.4,
        *,
        obs_dtype: DTypeLike = "float32",
        act_dtype: DTypeLike = "float32",
        n_envs: SupportsIndex = 1,
        n_step: SupportsIndex = 1,
        gamma: float = 0.99,
        share_frames: bool = False,
        seed: SupportsIndex | None = None,
    ) -> PrioritizedReplayBuffer: ...
    @staticmethod
    def memory_bytes(
        capacity: SupportsIndex,
        obs_dim: SupportsIndex | Sequence[SupportsIndex],
        act_dim: SupportsIndex | Sequence[SupportsIndex],
        *,
        obs_dtype: DTypeLike = "float32",
        act_dtype: DTypeLike = "float32",
        share_frames: bool = False,
    ) -> int:
        """Return the bytes of memory that such a buffer takes when it is full.

        Raises:
            MemoryError: no address space could hold it.
        """

    @property
    def capacity(self) -> int:
        """How many transitions fit."""

    @property
    def alpha(self) -> float:
        """The exponent α of the priorities."""

    @property
    def beta(self) -> float:
        """The exponent β of the weights."""

    @property
    def n_envs(self) -> int:
        """How many envs are stored in turn."""

    @property
    def n_step(self) -> int:
        """How many steps of its env a drawn transition spans."""

    @property
    def gamma(self) -> float:
        """The discount of the rewards within those steps, and of the value after them."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the buffer takes when it is full."""

    def __len__(self) -> int:
        """Return how many transitions are stored."""

    def push(
        self,
        obs: ArrayLike,
        action: ArrayLike,
        reward: SupportsFloat | Sequence[SupportsFloat],
        terminated: SupportsFloat | Sequence[SupportsFloat],
        truncated: SupportsFloat | Sequence[SupportsFloat],
        next_obs: ArrayLike | None = None,
        priority: SupportsFloat | None = None,
    ) -> None:
        """Store one transition, as :meth:`ReplayBuffer.push` does.

        Args:
            obs: shape ``obs_dim``.
            action: shape ``act_dim``.
            reward: stored as float32.
            terminated: whether the task ended.
            truncated: whether the episode was cut.
            next_obs: what the step led to, shape ``obs_dim``.
            priority: as in :meth:`update_priorities`; ``None`` is the largest so far, and at least
                1 (algorithm 1), so that every transition is likely to be seen once.

        Raises:
            ValueError: as there, or ``priority`` is not finite or beyond float32.
            TypeError: as there.
        """

    def push_batch(
        self,
        obs: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        terminated: ArrayLike,
        truncated: ArrayLike,
        next_obs: ArrayLike | None = None,
        priorities: ArrayLike | None = None,
    ) -> None:
        """Store n transitions, as :meth:`ReplayBuffer.push_batch` does.

        Args:
            obs: shape ``(n, *obs_dim)``.
            actions: shape ``(n, *act_dim)``, or ``(n,)`` where an action is one number.
            rewards: shape ``(n,)``.
            terminated: shape ``(n,)``.
            truncated: shape ``(n,)``.
            next_obs: shape ``(n, *obs_dim)``.
            priorities: shape ``(n,)``, or ``None`` as in :meth:`push`.

        Raises:
            ValueError: as :meth:`push`; nothing is stored.
            TypeError: as :meth:`push`.
        """

    def sample(
        self,
        batch_size: SupportsIndex,
        seed: SupportsIndex | None = None,
        *,
        out: dict[str, NDArray[Any]] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Draw transitions in proportion to their priorities.

        Args:
            batch_size: how many, B; at least 1, and as many as you like.
            seed: makes the call reproducible; ``None`` goes on with the buffer's own stream.
            out: arrays to write into, with the keys, shapes and types of the result.

        Returns:
            What :meth:`ReplayBuffer.sample` returns, ``weights`` ``(B,)`` float32 in [0, 1], and
            ``indices`` ``(B,)`` uint64 for :meth:`update_priorities`.

        Raises:
            RuntimeError: as :meth:`ReplayBuffer.sample`, and so the others.
            ValueError: as there.
            TypeError: as there.
            MemoryError: as there.
        """

    def sample_sequences(
        self,
        batch_size: SupportsIndex,
        seq_len: SupportsIndex,
        seed: SupportsIndex | None = None,
        *,
        cross_episodes: bool = False,
    ) -> dict[str, NDArray[Any]]:
        """Draw sequences uniformly, as :meth:`ReplayBuffer.sample_sequences` does.

        Args:
            batch_size: how many sequences, B; at least 1.
            seq_len: how many steps of each, T; at least 1.
            seed: makes the call reproducible; ``None`` goes on with the buffer's own stream.
            cross_episodes: whether a sequence goes on with the env's next episode.

        Returns:
            What :meth:`ReplayBuffer.sample_sequences` returns.

        Raises:
            RuntimeError: as there.
            ValueError: as there.
            TypeError: as there.
            MemoryError: as there.
        """

    def update_priorities(self, indices: ArrayLike, priorities: ArrayLike) -> None:
        """Give transitions new priorities, such as their TD errors.

        Args:
            indices: those of a batch, shape ``(B,)``; integers of any type. Of several for one
                transition the last counts. A transition that has been overwritten since passes its
                new priority on to the one in its place.
            priorities: shape ``(B,)``. Their absolute values count, and at least 1e-6, so that
                every transition may be drawn again.

        Raises:
            ValueError: an index is out of range, or a priority is not finite or beyond float32; no
                priority has changed.
            TypeError: an index is no integer, or a priority no real number.
        """

    def set_beta(self, beta: float) -> None:
        """Set the exponent β of the weights.

        Raises:
            ValueError: ``beta`` lies outside [0, 1].
        """

    def state(self) -> dict[str, NDArray[Any]]:
        """Return a copy of all that decides how the buffer goes on.

        Returns:
            What :meth:`ReplayBuffer.state` returns, ``priorities`` ``(len,)`` float64, which are
            p^α; ``max_priority``, ``alpha`` and ``beta`` ``(1,)`` float64.
        """

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on exactly from a :meth:`state` of a buffer with the same α.

        Raises:
            ValueError: as :meth:`ReplayBuffer.set_state`, or α differs.
            TypeError: as there.
        """

@final
class HerReplayBuffer:
    """The last ``capacity`` transitions of episodes with goals, drawn with goals reached later.

    An observation is a vector of which some numbers are the goal that the policy is to reach and
    others the goal that has been reached, as in gymnasium-robotics. Of k + 1 drawn transitions, k =
    ``n_sampled_goal``, k get a goal that their own episode has reached in place of the one they
    were pushed with, in ``obs`` and in ``next_obs``; the reward is that of the new goal, and so is
    ``terminated`` with ``compute_terminated``.

    Rows of :meth:`push_batch` are steps of ``n_envs`` envs in turn, and a termination or a
    truncation tells one episode of an env from the next. An episode is what is stored of it: one
    that goes on ends with its newest step, and of one that is being overwritten the rest remains.

    A call releases the interpreter lock, but not where it calls a function of the caller's; calls
    from several threads are done one after the other, and the functions may be called from several
    threads at once. They may use the buffer.

    Args:
        capacity: how many transitions fit, at least 1 and less than 2**32.
        obs_dim: the length of an observation, goals included.
        act_dim: the shape of an action.
        goal_dim: the length of a goal.
        compute_reward: from achieved goals ``(M, goal_dim)``, desired goals ``(M, goal_dim)`` and
            an empty dict to rewards ``(M,)``, as gymnasium-robotics' ``GoalEnv.compute_reward``.
        compute_terminated: likewise, to whether the task has ended ``(M,)``; ``None`` keeps what
            was pushed.
        distance_threshold: in place of ``compute_reward``: the reward is 0 where the Euclidean
            distance of the two goals is at most this, and -1 elsewhere; computed in Rust.
        n_sampled_goal: k; the chance of another goal is k / (k + 1).
        goal_selection_strategy: whose achieved goal a transition gets: that of a step of its
            episode from itself on (``"future"``), of the last one (``"final"``), or of any one
            (``"episode"``).
        achieved_goal: place of the first number of the achieved goal in an observation.
        desired_goal: place of the first number of the desired goal; ``None``: right after the
            achieved goal, as ``gymnasium.wrappers.FlattenObservation`` has it.
        obs_dtype: uint8, int32, int64, float32 or float64.
        act_dtype: float32 or int64.
        n_envs: how many envs are pushed in turn, as :meth:`push_batch` gets their steps.
        seed: seed of the buffer's own random stream, an integer in [0, 2**64), or ``None`` for one
            from the operating system.

    Raises:
        ValueError: a size, place, type, strategy or seed is out of range, the goals overlap, or
            there is not exactly one of ``compute_reward`` and ``distance_threshold``.
        TypeError: a size or seed is no integer, or a function is not callable.
        MemoryError: the machine has less memory available than the full buffer takes.

    Source:
        Andrychowicz et al., "Hindsight Experience Replay", 2017: algorithm 1, and section 4.5 for
        the strategies. Deviations: (1) goals are replaced as transitions are drawn, by chance, not
        k times as they are stored; (2) episodes that have not ended take part.

    Example:
        >>> buffer = HerReplayBuffer(100, obs_dim=3, act_dim=1, goal_dim=1, distance_threshold=0.1)
        >>> for x in range(5):
        ...     buffer.push([x, 9, 0], 1, -1, False, x == 4, [x + 1, 9, 0])
        >>> sorted(set(buffer.sample(100, seed=0)["obs"][:, 1].tolist()))
        [1.0, 2.0, 3.0, 4.0, 5.0, 9.0]
    """

    def __new__(
        cls,
        capacity: SupportsIndex,
        obs_dim: SupportsIndex,
        act_dim: SupportsIndex | Sequence[SupportsIndex],
        goal_dim: SupportsIndex,
        compute_reward: Callable[[NDArray[Any], NDArray[Any], dict[str, Any]], ArrayLike]
        | None = None,
        *,
        compute_terminated: Callable[[NDArray[Any], NDArray[Any], dict[str, Any]], ArrayLike]
        | None = None,
        distance_threshold: float | None = None,
        n_sampled_goal: SupportsIndex = 4,
        goal_selection_strategy: Literal["future", "final", "episode"] = "future",
        achieved_goal: SupportsIndex = 0,
        desired_goal: SupportsIndex | None = None,
        obs_dtype: DTypeLike = "float32",
        act_dtype: DTypeLike = "float32",
        n_envs: SupportsIndex = 1,
        seed: SupportsIndex | None = None,
    ) -> HerReplayBuffer: ...
    @staticmethod
    def memory_bytes(
        capacity: SupportsIndex,
        obs_dim: SupportsIndex,
        act_dim: SupportsIndex | Sequence[SupportsIndex],
        *,
        obs_dtype: DTypeLike = "float32",
        act_dtype: DTypeLike = "float32",
    ) -> int:
        """Return the bytes of memory that such a buffer takes when it is full.

        Raises:
            MemoryError: no address space could hold it.
        """

    @property
    def capacity(self) -> int:
        """How many transitions fit."""

    @property
    def n_envs(self) -> int:
        """How many envs are stored in turn."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the buffer takes when it is full."""

    def __len__(self) -> int:
        """Return how many transitions are stored."""

    def push(
        self,
        obs: ArrayLike,
        action: ArrayLike,
        reward: SupportsFloat | Sequence[SupportsFloat],
        terminated: SupportsFloat | Sequence[SupportsFloat],
        truncated: SupportsFloat | Sequence[SupportsFloat],
        next_obs: ArrayLike,
    ) -> None:
        """Store one transition, as :meth:`ReplayBuffer.push` does; ``next_obs`` is needed."""

    def push_batch(
        self,
        obs: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        terminated: ArrayLike,
        truncated: ArrayLike,
        next_obs: ArrayLike,
    ) -> None:
        """Store n transitions, as :meth:`ReplayBuffer.push_batch` does; ``next_obs`` is needed."""

    def truncate_episodes(self) -> None:
        """Cut the episodes that go on, as where the envs are reset: their newest step is the last.

        The transitions count as truncated where their episode had not ended.
        """

    def sample(
        self,
        batch_size: SupportsIndex,
        seed: SupportsIndex | None = None,
        *,
        out: dict[str, NDArray[Any]] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Draw transitions uniformly with replacement, and give most of them other goals.

        Args:
            batch_size: how many, B; at least 1, and as many as you like.
            seed: makes the call reproducible: with ``rng = numpy.random.default_rng(seed)`` the
                rows are ``rng.integers(len(buffer), size=B)``, those get another goal for which
                ``rng.random(B)`` is less than the chance, and ``rng.random(B)`` once more says
                which of the goals there are. ``None`` goes on with the buffer's own stream.
            out: C-contiguous arrays to write into, with the keys, shapes and types of the result.

        Returns:
            ``obs`` and ``next_obs`` ``(B, obs_dim)``, ``actions`` ``(B, *act_dim)``, ``rewards``
            ``(B,)`` float32, ``terminated`` and ``truncated`` ``(B,)`` bool; ``out`` where it is
            given.

        Raises:
            RuntimeError: the buffer is empty.
            ValueError: ``batch_size`` or ``seed`` is out of range, ``out`` does not fit, or a
                function of goals gave something of another shape, or rewards that are not finite.
            TypeError: ``batch_size`` or ``seed`` is no integer, ``out`` holds other types, or a
                function of goals gave no real numbers.
            MemoryError: there is no room for such a batch.
        """

    def state(self) -> dict[str, NDArray[Any]]:
        """Return a copy of all that decides how the buffer goes on, as a uniform buffer does."""

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on exactly from a :meth:`state`, also that of a :class:`ReplayBuffer`.

        Raises:
            ValueError: as :meth:`ReplayBuffer.set_state`, or a transition has no next observation.
            TypeError: as there.
        """

@final
class QLearner:
    """Gradient steps of DQN on an MLP with ReLU, plain or dueling.

    All P parameters lie in one array, layer by layer, weights (n_out, n_in) before biases, in the
    order of ``rlox.networks``' modules. The object holds nothing but working memory; it may be used
    from several threads, and calls are done one after the other.

    Args:
        obs_dim: size of an observation.
        hidden: widths of the hidden layers; of a dueling network the one width.
        n_actions: number of actions A.
        dueling: whether two streams for value and advantages share the first layer.
        dtype: ``"float32"`` or ``"float64"``, of parameters, moments and arithmetic.

    Raises:
        ValueError: a size lies outside [1, 16384], or ``dtype`` is another.

    Example:
        >>> QLearner(4, [64, 64], 2).n_parameters
        4610
    """

    def __new__(
        cls,
        obs_dim: SupportsIndex,
        hidden: Sequence[SupportsIndex],
        n_actions: SupportsIndex,
        *,
        dueling: bool = False,
        dtype: str = "float32",
    ) -> QLearner: ...
    @property
    def n_parameters(self) -> int:
        """P."""

    def step(
        self,
        learnt: dict[str, Any],
        target: ArrayLike,
        batch: dict[str, Any],
        *,
        learning_rate: float,
        double: bool,
        huber: bool,
    ) -> tuple[float, float, NDArray[Any]]:
        """Take one gradient step, on parameters and moments in place; without the interpreter lock.

        Args:
            learnt: ``parameters``, ``first_moments`` and ``second_moments``, shape ``(P,)`` each,
                of the learner's dtype, contiguous, changed; ``step``, the gradient steps taken
                before, at most 2**53; ``betas``, in [0, 1), ``eps`` and ``max_grad_norm``, the
                bound of the gradient's Euclidean norm or ``None``, none of them negative.
            target: parameters of the lagging network, shape ``(P,)``.
            batch: ``obs`` and ``next_obs``, shape ``(B, obs_dim)``; ``actions``, whole numbers of
                any dtype, shape ``(B, 1)``; ``rewards`` and ``discounts``, shape ``(B,)``;
                ``weights`` of the rows' losses, likewise or ``None``.
            learning_rate: step size.
            double: the learning network chooses the action that the lagging one judges.
            huber: the loss of TD errors is linear beyond 1, else squared.

        Returns:
            The loss, the mean value of the batch's actions, and the TD errors, shape ``(B,)``.

        Raises:
            ValueError: an entry is missing, a shape does not fit, a number is out of range, an
                action is a fraction or does not exist, or an array cannot be written to; nothing
                has changed.
            TypeError: an array has another dtype, or a number another type.
        """

    def gradients(self) -> NDArray[Any]:
        """Return the clipped gradient of the last step, shape ``(P,)``."""

@final
class ContinuousLearner:
    """Gradient steps of SAC, TD3, DDPG or CQL on MLPs with ReLU: a policy and K critics.

    The policy's P parameters lie in one array as those of ``rlox.nn.ReluMLP``, the critics' Q as
    those of ``rlox.nn.EnsembleMLP``. The object holds nothing but working memory; it may be used
    from several threads, and calls are done one after the other.

    Args:
        obs_dim: size of an observation.
        act_dim: size of an action.
        hidden: widths of the hidden layers of all networks.
        n_critics: K.
        log_std_bounds: for a squashed Gaussian policy, what the logarithmic deviations are clipped
            to; ``None``: the policy is tanh of its network.
        dtype: ``"float32"`` or ``"float64"``, of parameters, moments and arithmetic.

    Raises:
        ValueError: a size lies outside [1, 16384], ``dtype`` is another, or ``log_std_bounds`` are
            not two finite numbers, the smaller first.

    Example:
        >>> learner = ContinuousLearner(3, 1, [64, 64], 2)
        >>> learner.n_policy_parameters, learner.n_critic_parameters
        (4481, 9090)
    """

    def __new__(
        cls,
        obs_dim: SupportsIndex,
        act_dim: SupportsIndex,
        hidden: Sequence[SupportsIndex],
        n_critics: SupportsIndex,
        *,
        log_std_bounds: tuple[float, float] | None = None,
        dtype: str = "float32",
    ) -> ContinuousLearner: ...
    @property
    def n_policy_parameters(self) -> int:
        """P."""

    @property
    def n_critic_parameters(self) -> int:
        """Q."""

    def step_values(
        self,
        critics: dict[str, Any],
        target: ArrayLike,
        policy: ArrayLike,
        batch: dict[str, Any],
        noise: ArrayLike | None,
        *,
        learning_rate: float,
        alpha: float,
        scale: float,
        penalty_weight: float = 0.0,
    ) -> tuple[float, float, NDArray[Any]]:
        """Take one gradient step of the critics, in place; without the interpreter lock.

        Args:
            critics: as ``learnt`` of :meth:`QLearner.step`, with Q for P.
            target: parameters of the lagging critics, shape ``(Q,)``.
            policy: parameters of the policy that chooses the next actions, shape ``(P,)``.
            batch: as of :meth:`QLearner.step`, ``actions`` being ``(B, act_dim)`` in [-1, 1].
            noise: shape ``(B, act_dim)``; a Gaussian policy's is standard normal, what a
                deterministic one's actions are shifted by may be ``None``.
            learning_rate: step size.
            alpha: temperature of the next actions' entropy, return/nats; 0 for none.
            scale: what a squared TD error counts in the loss.
            penalty_weight: what the penalties of the last :meth:`penalize` count in it.

        Returns:
            The loss, the mean value of the batch's actions, and the TD errors, shape ``(K, B)``.

        Raises:
            ValueError: an entry is missing, a shape does not fit, a number is out of range, an
                array cannot be written to, or a penalty is to count and there has been none;
                nothing has changed.
            TypeError: an array has another dtype, or a number another type.
        """

    def step_policy(
        self,
        policy: dict[str, Any],
        critics: ArrayLike,
        obs: ArrayLike,
        noise: ArrayLike | None,
        *,
        learning_rate: float,
        alpha: float,
        cloning: tuple[ArrayLike, float] | None = None,
    ) -> tuple[float, float]:
        """Take one gradient step of the policy, in place; without the interpreter lock.

        The loss is the mean of α log π(a|s) - min over k of Q_k(s, a) for a Gaussian policy, and of
        -Q_1(s, μ(s)) for a deterministic one. With ``cloning`` these values are divided by the mean
        of their sizes and multiplied by its weight, and the mean squared distance of the actions
        from its own is added (Fujimoto and Gu 2021, equations 3 to 5).

        Args:
            policy: as ``learnt`` of :meth:`QLearner.step`.
            critics: their parameters, shape ``(Q,)``.
            obs: shape ``(B, obs_dim)``.
            noise: standard normal, shape ``(B, act_dim)``; ``None`` for a deterministic policy.
            learning_rate: step size.
            alpha: temperature α, return/nats.
            cloning: actions to stay near, shape ``(B, act_dim)``, and the values' weight; ``None``:
                the values are all that counts.

        Returns:
            The loss, and the mean of -log π(a|s), 0 for a deterministic policy.

        Raises:
            ValueError: an entry is missing, a shape does not fit, a number is out of range, or an
                array cannot be written to; nothing has changed.
            TypeError: an array has another dtype, or a number another type.
        """

    def penalize(
        self,
        critics: ArrayLike,
        policy: ArrayLike,
        batch: dict[str, Any],
        random: ArrayLike,
        here: ArrayLike,
        there: ArrayLike,
        lower_bounds: ArrayLike | None = None,
    ) -> list[float]:
        """Return each critic's penalty, and keep its gradient for the next :meth:`step_values`.

        A penalty is the mean of log Σ exp Q(s, a) - Q(s, a_data) over N actions each: uniform ones,
        the policy's at s and the policy's at s', whose values count by the inverse of their
        densities (Kumar et al. 2020, equation 4 and appendix F). Values of the policy's actions
        below their bound count as it does and have no gradient (Nakamoto et al. 2023, equation
        5.1).

        Args:
            critics: their parameters, shape ``(Q,)``.
            policy: parameters of a Gaussian policy, shape ``(P,)``.
            batch: as of :meth:`step_values`.
            random: actions uniform in [-1, 1], shape ``(N, B, act_dim)``, N at most 85.
            here: standard normal noise of the policy's actions at s, likewise.
            there: that of its actions at s', likewise.
            lower_bounds: shape ``(B,)``; ``None`` for no bounds.

        Raises:
            ValueError: an entry is missing, or a shape does not fit; nothing has changed.
            TypeError: an array has another dtype.
        """

    def entropy(self, policy: ArrayLike, obs: ArrayLike, noise: ArrayLike) -> float:
        """Return the mean of -log π(a|s) of the actions that the policy makes of noise.

        Args:
            policy: its parameters, shape ``(P,)``.
            obs: shape ``(B, obs_dim)``.
            noise: standard normal, shape ``(B, act_dim)``.

        Raises:
            ValueError: a shape does not fit.
            TypeError: an array has another dtype.
        """

    def gradients(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the clipped gradients of the last steps of policy and critics."""

@final
class ImplicitLearner:
    """Gradient steps of implicit Q-learning on MLPs with ReLU: a value, a policy and K critics.

    The value's P_V parameters lie in one array as those of ``rlox.nn.ReluMLP``, the policy's P_π as
    those of ``rlox.networks.GaussianPolicy``, the critics' Q as those of ``rlox.nn.EnsembleMLP``.
    The object holds nothing but working memory; it may be used from several threads, and calls are
    done one after the other.

    Args:
        obs_dim: size of an observation.
        act_dim: size of an action.
        hidden: widths of the hidden layers of all networks.
        n_critics: K.
        log_std_bounds: what the logarithmic deviations are clipped to.
        dtype: ``"float32"`` or ``"float64"``, of parameters, moments and arithmetic.

    Raises:
        ValueError: a size lies outside [1, 16384], ``dtype`` is another, or ``log_std_bounds`` are
            not two finite numbers, the smaller first.

    Example:
        >>> learner = ImplicitLearner(3, 1, [64, 64], 2, log_std_bounds=(-5.0, 2.0))
        >>> learner.n_parameters
        [4481, 4482, 9090]
    """

    def __new__(
        cls,
        obs_dim: SupportsIndex,
        act_dim: SupportsIndex,
        hidden: Sequence[SupportsIndex],
        n_critics: SupportsIndex,
        *,
        log_std_bounds: tuple[float, float],
        dtype: str = "float32",
    ) -> ImplicitLearner: ...
    @property
    def n_parameters(self) -> list[int]:
        """P_V, P_π and Q."""

    def step(
        self,
        value: dict[str, Any],
        policy: dict[str, Any],
        critics: dict[str, Any],
        target: ArrayLike,
        batch: dict[str, Any],
        *,
        learning_rate: float,
        policy_learning_rate: float,
        expectile: float,
        temperature: float,
        max_weight: float,
    ) -> tuple[float, float, float, float, float]:
        """Take one gradient step of all networks, in place; without the interpreter lock.

        First of the value (Kostrikov et al. 2022, equation 5); with the new one, of the policy
        (equation 7) and of the critics (equation 6).

        Args:
            value: as ``learnt`` of :meth:`QLearner.step`, with P_V for P.
            policy: likewise, with P_π.
            critics: likewise, with Q.
            target: parameters of the lagging critics, shape ``(Q,)``.
            batch: as of :meth:`QLearner.step`, ``actions`` being ``(B, act_dim)`` in [-1, 1];
                ``weights`` are of the critics' errors.
            learning_rate: step size of value and critics.
            policy_learning_rate: step size of the policy.
            expectile: τ in [0, 1].
            temperature: inverse temperature β ≥ 0, 1/return.
            max_weight: bound of exp(β A).

        Returns:
            The losses of value, critics (summed over them) and policy, the mean value of the
            batch's actions, and the mean weight of their log-likelihoods.

        Raises:
            ValueError: an entry is missing, a shape does not fit, a number is out of range, or an
                array cannot be written to; nothing has changed.
            TypeError: an array has another dtype, or a number another type.
        """

    def gradients(self) -> list[NDArray[Any]]:
        """Return the clipped gradients of the last step of value, policy and critics."""

@final
class ActorCriticLearner:
    """Gradient steps of PPO or A2C on two tanh MLPs, one for the policy and one for the value.

    All P parameters lie in one array: a Gaussian policy's log standard deviations, then the policy
    network, then the value network, each layer by layer, weights (n_out, n_in) before biases. That
    is the order of ``rlox.networks.actor_critics``' modules. The object holds nothing but working memory; it may
    be used from several threads, and calls are done one after the other.

    Args:
        obs_dim: size of an observation.
        hidden: widths of the hidden layers of both networks.
        n_actions: for a categorical policy, the number of actions.
        act_dim: for a Gaussian policy, the size of an action.
        dtype: ``"float32"`` or ``"float64"``, of parameters, moments and arithmetic.

    Raises:
        ValueError: a size lies outside [1, 16384], or ``dtype`` is another.
        TypeError: not exactly one of ``n_actions`` and ``act_dim`` is given.

    Example:
        >>> learner = ActorCriticLearner(4, [64, 64], n_actions=2)
        >>> learner.n_parameters
        9155
    """

    def __new__(
        cls,
        obs_dim: SupportsIndex,
        hidden: Sequence[SupportsIndex],
        *,
        n_actions: SupportsIndex | None = None,
        act_dim: SupportsIndex | None = None,
        dtype: str = "float32",
    ) -> ActorCriticLearner: ...
    @property
    def n_parameters(self) -> int:
        """P."""

    def gradients(self) -> NDArray[Any]:
        """Return the clipped gradient of the last minibatch, shape ``(P,)``."""

    def update(
        self,
        parameters: NDArray[Any],
        second_moments: NDArray[Any],
        obs: ArrayLike,
        actions: ArrayLike,
        log_probs: ArrayLike,
        values: ArrayLike,
        advantages: ArrayLike,
        returns: ArrayLike,
        order: ArrayLike,
        *,
        batch_size: SupportsIndex,
        learning_rate: float,
        max_grad_norm: float | None,
        vf_coef: float,
        ent_coef: float,
        normalize_advantages: bool,
        step: SupportsIndex = 0,
        first_moments: NDArray[Any] | None = None,
        betas: tuple[float, float] | None = None,
        alpha: float | None = None,
        eps: float = 1e-8,
        clip_eps: float | None = None,
        dual_clip: float | None = None,
        vf_clip_eps: float | None = None,
        target_kl: float | None = None,
        action_masks: ArrayLike | None = None,
    ) -> tuple[list[float], int]:
        """Take one gradient step per minibatch, on ``parameters`` and moments in place.

        The loss is that of ``rlox.losses.ppo_loss``, or, without ``clip_eps``, A2C's, whose
        objective is mean A log π(a|s). Without the interpreter lock.

        Args:
            parameters: shape ``(P,)``, of the learner's dtype, contiguous; changed.
            second_moments: running mean of squared gradients, likewise.
            obs: shape ``(R, obs_dim)``.
            actions: shape ``(R,)``, whole numbers of any dtype, or ``(R, act_dim)``.
            log_probs: log π_old(a|s), shape ``(R,)``.
            values: value estimates of the policy that acted, shape ``(R,)``.
            advantages: A, shape ``(R,)``.
            returns: the value function's targets, shape ``(R,)``.
            order: rows in the order in which each epoch visits them, shape ``(n_epochs, n_rows)``.
            batch_size: rows of a minibatch; the last of an epoch has the remainder.
            learning_rate: step size; neither it nor one of the numbers that follow is negative.
            max_grad_norm: bound of the gradient's Euclidean norm; ``None``: not bounded.
            vf_coef: weight of the value loss.
            ent_coef: weight of the entropy bonus, 1/nats.
            normalize_advantages: whether to standardise them over each minibatch.
            step: gradient steps taken before, at most 2**53.
            first_moments: running mean of gradients, for Adam; as ``second_moments``.
            betas: Adam's decays of the first and the second moment, in [0, 1).
            alpha: RMSprop's decay of the second moment, in [0, 1]; give it or ``betas``.
            eps: added to the root of the second moment.
            clip_eps: PPO's clip range ε.
            dual_clip: bound of PPO's objective at negative advantages, at least 1.
            vf_clip_eps: range of PPO's value clip.
            target_kl: ends the update before the step of a minibatch whose approximate KL passes
                1.5 times this.
            action_masks: which of a categorical policy's actions were possible, shape
                ``(R, n_actions)``, at least one in each row; ``None``: all always.

        Returns:
            Policy loss, value loss, entropy, approximate KL and clip fraction, means over the
            minibatches; and the number of gradient steps taken.

        Raises:
            ValueError: a shape does not fit, a number is out of range, a row or an action is a
                fraction or does not exist, an action is not allowed by its mask, a mask leaves no
                action, or an array cannot be written to; nothing has changed.
            TypeError: an array has another dtype, a number another type, or not exactly one
                optimiser is given.
        """

    def collect(
        self,
        envs: VecEnv,
        parameters: NDArray[np.float32],
        stream: NDArray[np.uint64],
        next_obs: NDArray[np.float32],
        obs: NDArray[np.float32],
        actions: NDArray[Any],
        log_probs: NDArray[np.float32],
        rewards: NDArray[np.float32],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        final_values: NDArray[np.float32],
    ) -> None:
        """Step native envs with actions drawn from the policy until the arrays are full.

        Actions are drawn as by :meth:`act`. The envs get continuous actions clipped to their
        bounds; the array has them as sampled.

        Args:
            envs: N envs that have been reset.
            parameters: shape ``(P,)``.
            stream: the state of a NumPy ``PCG64``, shape ``(4,)``: high and low word of the state,
                then of the increment; advanced. Its numbers are those of ``Generator.random``.
            next_obs: to act on first, shape ``(N, obs_dim)``; replaced by those to act on next.
            obs: observations acted on, shape ``(T, N, obs_dim)``; written, as all that follow.
            actions: shape ``(T, N)`` int64, or ``(T, N, act_dim)`` float32.
            log_probs: log π(a|s), shape ``(T, N)``.
            rewards: shape ``(T, N)``.
            terminated: shape ``(T, N)``.
            truncated: shape ``(T, N)``.
            final_values: V of the final observation where an episode was cut, else 0, ``(T, N)``.

        Raises:
            ValueError: a shape does not fit, or the envs take other actions or observations than
                the policy.
            TypeError: an array has another dtype, or the learner is not float32.
            RuntimeError: the envs have not been reset.
        """

    def act(
        self,
        parameters: NDArray[np.float32],
        stream: NDArray[np.uint64],
        obs: ArrayLike,
        *,
        action_masks: ArrayLike | None = None,
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Draw an action for each observation.

        Every row in turn draws from the stream. A categorical policy takes one number u in [0, 1)
        and the first action whose cumulative probability exceeds u. A Gaussian one takes two, u
        and v, for each component: its noise is √(-2 ln(1 - u)) cos 2πv.

        Args:
            parameters: shape ``(P,)``.
            stream: the state of a NumPy ``PCG64``, shape ``(4,)``: high and low word of the state,
                then of the increment; advanced. Its numbers are those of ``Generator.random``.
            obs: shape ``(R, obs_dim)``.
            action_masks: for a categorical policy, shape ``(R, n_actions)``, False where an action
                must not be taken; None where all may.

        Returns:
            Actions as sampled, ``(R,)`` int64 or ``(R, act_dim)`` float32, and log π(a|s),
            ``(R,)``.

        Raises:
            ValueError: a shape does not fit, or a row of masks allows no action.
            TypeError: an array has another dtype, or the learner is not float32.
        """

    def values(
        self, parameters: NDArray[np.float32], obs: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return V, shape ``(R,)``, of observations ``(R, obs_dim)``.

        Raises:
            ValueError: a shape does not fit.
            TypeError: the learner is not float32.
        """
