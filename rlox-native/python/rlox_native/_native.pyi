"""Types of the Rust module. Its twins in ``rlox.kernels.reference`` have the full docstrings."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import (
    Any,
    Final,
    Literal,
    SupportsFloat,
    SupportsIndex,
    TypeAlias,
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
    "MultiAgentVecEnv",
    "OfflineDatasetBuffer",
    "PackedSequences",
    "PrioritizedReplayBuffer",
    "QLearner",
    "ReplayBuffer",
    "RunningMeanStd",
    "SequenceReplayBuffer",
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
    "get_num_threads",
    "native_env_ids",
    "native_team_env_ids",
    "normalize_advantages",
    "pack_sequences",
    "set_num_threads",
]

__version__: Final[str]

_Arrays: TypeAlias = dict[str, NDArray[Any]]
_GoalFunction: TypeAlias = Callable[[NDArray[Any], NDArray[Any], dict[str, Any]], ArrayLike]
_Out: TypeAlias = tuple[NDArray[Any], NDArray[Any]] | None
_Scalar: TypeAlias = SupportsFloat | Sequence[SupportsFloat]
_Scale: TypeAlias = Literal["group", "batch", "none"]
_Seeds: TypeAlias = SupportsIndex | Sequence[SupportsIndex] | NDArray[np.integer[Any]] | None
_Shape: TypeAlias = SupportsIndex | Sequence[SupportsIndex]

@type_check_only
class Step(TypedDict):
    """Result of :meth:`CartPole.step`."""

    obs: NDArray[np.float32]
    reward: float
    terminated: bool
    truncated: bool

@type_check_only
class VecStep(TypedDict):
    """Result of :meth:`VecEnv.step_all`."""

    obs: NDArray[np.float32]
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    final_obs: NDArray[np.float32]

def native_env_ids() -> list[str]:
    """Return the ids that :class:`VecEnv` builds."""

def native_team_env_ids() -> list[str]:
    """Return the ids that :class:`MultiAgentVecEnv` builds."""

def compute_gae(
    rewards: ArrayLike,
    values: ArrayLike,
    dones: ArrayLike,
    last_value: float,
    gamma: float,
    lam: float,
    *,
    out: _Out = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute advantages and returns of one trajectory."""

def compute_gae_batched(
    rewards: ArrayLike,
    values: ArrayLike,
    dones: ArrayLike,
    last_values: ArrayLike,
    n_steps: SupportsIndex,
    gamma: float,
    lam: float,
    *,
    out: _Out = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute advantages and returns of several envs, as flat arrays in env-major order."""

def compute_gae_batched_f32(
    rewards: ArrayLike,
    values: ArrayLike,
    dones: ArrayLike,
    last_values: ArrayLike,
    n_steps: SupportsIndex,
    gamma: float,
    lam: float,
    *,
    out: _Out = None,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Compute :func:`compute_gae_batched` in float32."""

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
    out: _Out = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Compute advantages and returns of N envs over T steps."""

def compute_batch_group_advantages(
    rewards: ArrayLike,
    group_size: SupportsIndex,
    *,
    ddof: int = 0,
    eps: float = 0.0,
    scale: _Scale = "group",
) -> NDArray[Any]:
    """Compute the advantages of P consecutive groups of G completions."""

def compute_batch_token_kl(
    log_p: ArrayLike, log_q: ArrayLike, seq_len: SupportsIndex
) -> NDArray[Any]:
    """Compute :func:`compute_token_kl` for B consecutive sequences."""

def compute_batch_token_kl_schulman(
    log_p: ArrayLike, log_q: ArrayLike, seq_len: SupportsIndex
) -> NDArray[Any]:
    """Compute :func:`compute_token_kl_schulman` for B consecutive sequences."""

def compute_discounted_returns(
    rewards: ArrayLike,
    dones: ArrayLike,
    last_value: ArrayLike,
    gamma: float,
    *,
    truncated: ArrayLike | None = None,
    final_values: ArrayLike | None = None,
) -> NDArray[Any]:
    """Compute discounted returns, G_t = r_t + γ G_{t+1}, of one env or of N."""

def compute_group_advantages(
    rewards: ArrayLike, *, ddof: int = 0, eps: float = 0.0, scale: _Scale = "group"
) -> NDArray[Any]:
    """Compute the advantages of one group."""

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
    """Compute λ-returns, G_t = r_t + γ ((1 - λ) V_{t+1} + λ G_{t+1}), of one env or of N."""

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
    """Compute n-step returns, γ^0 r_t + … + γ^{m-1} r_{t+m-1} + γ^m V'_{t+m-1}."""

def compute_token_kl(log_p: ArrayLike, log_q: ArrayLike) -> float:
    """Sum exp(log p) (log p - log q)."""

def compute_token_kl_schulman(log_p: ArrayLike, log_q: ArrayLike) -> float:
    """Sum k3 = exp(r) - r - 1 with r = log q - log p, over tokens sampled from p."""

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
    """Compute V-trace targets and policy-gradient advantages of one env or of N."""

def normalize_advantages(
    advantages: ArrayLike, *, ddof: int = 1, eps: float = 1e-08
) -> NDArray[Any]:
    """Standardise advantages to mean 0 and standard deviation 1."""

def pack_sequences(sequences: Iterable[Any], max_len: SupportsIndex) -> PackedSequences:
    """Pack sequences into rows by first-fit decreasing."""

@final
class PackedSequences:
    """Sequences packed into R rows; unpacks as ``packed, masks, positions``."""

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
    """Mean and variance of all arrays of ``shape`` so far."""

    def __new__(cls, shape: _Shape | None = None) -> RunningMeanStd: ...
    @property
    def count(self) -> int:
        """Number of elements so far."""
    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean, ``shape``; 0 before the first element."""
    @property
    def var(self) -> NDArray[np.float64]:
        """The population variance, ``shape``; 1 before the first element."""
    def update(self, batch: ArrayLike) -> None:
        """Update with a batch."""
    def merge(self, other: RunningMeanStd) -> None:
        """Add the elements of ``other``."""
    def state(self) -> dict[str, Any]:
        """Return the state: ``count``, ``mean`` and ``squares``, the summed squared deviations."""
    def set_state(self, state: dict[str, Any]) -> None:
        """Continue exactly from a :meth:`state`."""

@final
class CartPole:
    """gymnasium's ``CartPole-v1``, bit for bit: the same seed gives the same episode.

    Observation: cart position (m) and velocity (m/s), pole angle (rad) and angular velocity
    (rad/s), float32. Reward: 1 a step. The episode terminates when the cart leaves ±2.4 m or the
    pole ±12 degrees, and is truncated after 500 steps of 0.02 s. An object may be used from several
    threads at once: calls run one after the other.

    Args:
        seed: seed of the random stream, an integer in [0, 2**64), or ``None`` for one from the
            operating system.

    Raises:
        ValueError: ``seed`` is out of range.
        TypeError: ``seed`` is not an integer; a bool is not one.

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
            seed: restarts the random stream; ``None`` continues the present one.
        """

    def step(self, action: SupportsIndex) -> Step:
        """Push left (0) or right (1) and return ``obs``, ``reward``, ``terminated``, ``truncated``.

        ``truncated`` is true at the 500th step whether or not ``terminated`` is.

        Raises:
            RuntimeError: the episode has ended or none has begun; call :meth:`reset`.
            ValueError: ``action`` is neither 0 nor 1.
            TypeError: ``action`` is not an integer.
        """

@final
class MultiAgentVecEnv:
    """``n`` native multi-agent envs stepped together, with same-step autoreset.

    It is a :class:`rlox.protocols.MultiAgentVecEnv`, and its state can be saved. Env ``i`` gives
    the same numbers as the original env with this id and seed. An object may be used from several
    threads at once: calls run one after the other.

    ``mpe2/simple_spread_v3`` takes the options ``N`` (agents and landmarks, 3), ``local_ratio``
    (share of an agent's own collisions in its reward, 0.5), ``max_cycles`` (env steps per episode,
    25) and ``continuous_actions`` (five shares in [0, 1] instead of one of five moves, ``False``).
    Its numbers equal mpe2's byte for byte if NumPy and this module call the same C library for
    exponentials and logarithms, as on Linux; otherwise they may differ by rounding, at most 1e-9
    within an episode of 25 steps.

    Args:
        n: number of envs, in [1, 2**24].
        seed: an integer ``s`` gives env ``i`` the seed ``s + i``; a sequence gives each env its
            own; ``None`` takes seeds from the operating system. The first :meth:`reset_all` without
            a seed starts from it.
        env_id: one of :func:`native_team_env_ids`.
        env_kwargs: options of the env by name, numbers and bools.

    Raises:
        ValueError: ``n``, a seed or an option is out of range, or ``env_id`` or an option is
            unknown.
        TypeError: ``n`` or a seed is not an integer, or an option is neither a number nor a bool.
        MemoryError: the arrays of one step do not fit into memory.

    Example:
        >>> envs = MultiAgentVecEnv(8, seed=0, env_kwargs={"N": 4})
        >>> envs.reset_all()["obs"]["agent"].shape
        (8, 4, 24)
        >>> step = envs.step_all({"agent": np.zeros((8, 4), np.int64)})
        >>> step["state"].shape, step["rewards"]["agent"].shape
        ((8, 96), (8, 4))
    """

    def __new__(
        cls,
        n: SupportsIndex,
        seed: _Seeds = None,
        env_id: str = "mpe2/simple_spread_v3",
        env_kwargs: Mapping[str, SupportsFloat] | None = None,
    ) -> MultiAgentVecEnv: ...
    @property
    def n_envs(self) -> int:
        """Number of envs."""
    @property
    def env_id(self) -> str:
        """The id of each env."""
    @property
    def possible_agents(self) -> tuple[str, ...]:
        """The names of all agents, in the order of their rows."""
    @property
    def groups(self) -> tuple[Any, ...]:
        """The agents as one group, an ``AgentGroup`` of rlox-core, imported on access."""
    @property
    def state_space(self) -> Space[Any] | None:
        """The space of one env's state, a centralised critic's input; needs gymnasium."""
    def reset_all(self, seed: _Seeds = None) -> dict[str, Any]:
        """Begin an episode in every env and return the first observations.

        Args:
            seed: restarts the random streams, like the constructor's; ``None`` continues the
                present ones.

        Returns:
            The fields of :class:`rlox.protocols.MultiAgentObs`: ``obs`` and ``active`` by group,
            no ``masks``, and the ``state``.

        Raises:
            ValueError: a seed is out of range, or there is not one per env.
            TypeError: a seed is not an integer.
        """

    def step_all(self, actions: Mapping[str, ArrayLike]) -> dict[str, Any]:
        """Advance every env by one step and reset envs whose episode ended.

        Args:
            actions: by group. Discrete: shape ``(n, agents)``; an int64 array is read in place.
                Continuous: shape ``(n, agents, action_dim)``; a float32 array is read in place,
                anything else is rounded to float32.

        Returns:
            The fields of :class:`rlox.protocols.MultiAgentStep`, in new arrays.

        Raises:
            RuntimeError: :meth:`reset_all` has not been called.
            ValueError: the group is missing or not the only one, there is not one action per agent,
                or an action lies outside its space, with its agent and env; no env has moved.
            TypeError: actions are not by group, not integers, or not real numbers.
        """

    def state(self) -> dict[str, NDArray[Any]]:
        """Return a copy of the complete state.

        Returns:
            ``physics`` float64 (for ``mpe2/simple_spread_v3``: positions and velocities of the
            agents, positions of the landmarks), ``elapsed`` uint32 steps since each episode began,
            ``rng`` ``(n, 4)`` uint64 words of each stream, ``started`` bool, ``env_id`` bytes.
        """

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore exactly a :meth:`state` of envs with the same options.

        Raises:
            ValueError: it is malformed, from another env or of other sizes; nothing has changed.
            TypeError: it is not a dict.
        """

    def close(self) -> None:
        """Do nothing: the envs hold no resource but memory."""

@final
class VecEnv:
    """``n`` native envs stepped together, with same-step autoreset.

    Env ``i`` is bit-identical to gymnasium's env of the same id and seed. An object may be used
    from several threads at once: calls run one after the other.

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
        n: number of envs, in [1, 2**24].
        seed: an integer ``s`` gives env ``i`` the seed ``s + i``, as gymnasium does; a sequence
            gives each env its own; ``None`` takes seeds from the operating system. The first
            :meth:`reset_all` without a seed starts from it.
        env_id: one of :func:`native_env_ids`.

    Raises:
        ValueError: ``n`` or a seed is out of range, or ``env_id`` is unknown.
        TypeError: ``n`` or a seed is not an integer.

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
        cls, n: SupportsIndex, seed: _Seeds = None, env_id: str = "CartPole-v1"
    ) -> VecEnv: ...
    @property
    def n_envs(self) -> int:
        """Number of envs."""
    @property
    def env_id(self) -> str:
        """The id of each env."""
    @property
    def observation_space(self) -> Space[Any]:
        """The space of one env's observations; importing it needs gymnasium."""
    @property
    def action_space(self) -> Space[Any]:
        """The space of one env's actions; importing it needs gymnasium."""
    def reset_all(self, seed: _Seeds = None) -> NDArray[np.float32]:
        """Begin an episode in every env and return the first observations, ``(n, obs_dim)``.

        Args:
            seed: restarts the random streams, like the constructor's; ``None`` continues the
                present ones.

        Raises:
            ValueError: a seed is out of range, or there is not one per env.
            TypeError: a seed is not an integer.
        """

    def step_all(self, actions: ArrayLike) -> VecStep:
        """Advance every env by one step and reset envs whose episode ended.

        Args:
            actions: one action per env. Discrete: shape ``(n,)``, a list or an array of integers;
                an int64 array is read in place. Continuous: shape ``(n, action_dim)``, or ``(n,)``
                if ``action_dim`` is 1, real numbers of any type; a float32 array is read in place,
                anything else is rounded to float32. Values beyond the bounds are handled as in
                gymnasium, which clips the torque or the force.

        Returns:
            ``obs`` ``(n, obs_dim)`` float32: observations to act on next, the first of the new
            episode if one ended. ``rewards`` ``(n,)`` float64. ``terminated`` and ``truncated``
            ``(n,)`` bool, both of which may be true. ``final_obs`` ``(n, obs_dim)`` float32:
            observations after the step itself, equal to ``obs`` within an episode.

        Raises:
            RuntimeError: :meth:`reset_all` has not been called.
            ValueError: there is not one action per env, or one does not exist or is not finite; no
                env has moved.
            TypeError: an action is not an integer or real number; a bool counts as neither.
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
        """Do the same as :meth:`step_all`, into existing arrays.

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
                memory with another; also as in :meth:`step_all`. No env has moved.
            TypeError: an argument is not an array or has another dtype; also as in
                :meth:`step_all`.
        """

    def state(self) -> _Arrays:
        """Return a copy of the complete state.

        Returns:
            ``physics`` ``(n, state_dim)`` float64, gymnasium's ``state``, and for
            MountainCarContinuous-v0 and Acrobot-v1, whose precision changes after an episode's
            first step, a flag: 1 before that step and 0 after; ``elapsed`` ``(n,)`` uint32, steps
            since the episode began; ``rng`` ``(n, 4)`` uint64, the PCG64 state and increment, high
            words first; ``started`` ``(1,)`` bool, whether :meth:`reset_all` has been called;
            ``env_id`` uint8, the bytes of the id.
        """

    def set_state(self, state: _Arrays) -> None:
        """Go on exactly from a :meth:`state`.

        Raises:
            ValueError: a part is missing, unknown, of the wrong type or shape, impossible, or from
                other envs; the envs are unchanged.
            TypeError: ``state`` is not a dict.
        """

    def close(self) -> None:
        """Do nothing: the envs hold no resource but memory."""

@final
class OfflineDatasetBuffer:
    """Recorded transitions, drawn uniformly, one by one or in pieces of trajectories.

    A call releases the interpreter lock; calls from several threads run one after the other.
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
        obs_dim: _Shape | None = None,
        act_dim: _Shape | None = None,
        obs_dtype: DTypeLike | None = None,
        act_dtype: DTypeLike | None = None,
        seed: SupportsIndex | None = None,
    ) -> OfflineDatasetBuffer: ...
    def __len__(self) -> int:
        """Return the number of transitions."""
    def n_episodes(self) -> int:
        """Return the number of episodes."""

    def stats(self) -> dict[str, float]:
        """Return the sizes of the dataset and statistics of its episodes."""
    @property
    def obs_mean(self) -> NDArray[np.float64] | None:
        """Mean of ``obs`` over the dataset, shape ``obs_dim``; ``None`` without ``normalize``."""
    @property
    def obs_std(self) -> NDArray[np.float64] | None:
        """Standard deviation of ``obs`` plus 0.001; ``None`` without ``normalize``."""
    def sample(
        self,
        batch_size: SupportsIndex,
        seed: SupportsIndex | None = None,
        *,
        out: _Arrays | None = None,
    ) -> _Arrays:
        """Draw transitions uniformly with replacement, as :meth:`ReplayBuffer.sample` does."""
    def sample_trajectories(
        self, batch_size: SupportsIndex, seq_len: SupportsIndex, seed: SupportsIndex | None = None
    ) -> _Arrays:
        """Draw pieces of trajectories; every transition is equally likely to begin one."""
    def state(self) -> _Arrays:
        """Return the changing state: ``rng`` ``(6,)`` uint64, as in :meth:`ReplayBuffer.state`."""
    def set_state(self, state: _Arrays) -> None:
        """Continue exactly from a :meth:`state` over the same dataset."""

@type_check_only
class _Store:
    """The last transitions, with exact saving and restoring.

    Memory is reserved at construction, with a MemoryError if the machine lacks it, and taken as the
    buffer fills. A call releases the interpreter lock; calls from several threads run one after the
    other.
    """

    @property
    def capacity(self) -> int:
        """How many transitions fit."""
    @property
    def nbytes(self) -> int:
        """Bytes of memory that the buffer takes when it is full."""
    def __len__(self) -> int:
        """Return how many transitions are stored."""

    def sample(
        self,
        batch_size: SupportsIndex,
        seed: SupportsIndex | None = None,
        *,
        out: _Arrays | None = None,
    ) -> _Arrays:
        """Draw transitions with replacement, in the way of the class."""
    def changed_rows(self, since: int) -> tuple[int, int, list[tuple[int, int]]]:
        """Return which slots may have changed since an older call."""
    def rows(self, start: int, stop: int) -> _Arrays:
        """Return a copy of the part of :meth:`state` that is one row per slot."""
    def rest(self) -> _Arrays:
        """Return a copy of the part of :meth:`state` that is not one row per slot."""
    def state(self) -> _Arrays:
        """Return a copy of all that decides how the buffer goes on."""
    def set_state(self, state: _Arrays) -> None:
        """Go on exactly from a :meth:`state`."""

@type_check_only
class _Pushed:
    """Storing transitions with optional next observations."""

    def push(
        self,
        obs: ArrayLike,
        action: ArrayLike,
        reward: _Scalar,
        terminated: _Scalar,
        truncated: _Scalar,
        next_obs: ArrayLike | None = None,
    ) -> None:
        """Store one transition, in the place of the oldest if the buffer is full."""
    def push_batch(
        self,
        obs: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        terminated: ArrayLike,
        truncated: ArrayLike,
        next_obs: ArrayLike | None = None,
    ) -> None:
        """Store n transitions, the rows of arrays, in their order."""

@final
class MmapReplayBuffer(_Store, _Pushed):
    """The last ``total_capacity`` transitions: the newest in memory, the others in a file.

    Draws are those of a :class:`ReplayBuffer` of ``total_capacity``, as is everything not mentioned
    here. A transition is in the file before its place in memory is reused, so a full disk loses
    none: an OSError refuses transitions without room. Every transition in the file has a checksum,
    verified on every read. The file is locked while the buffer is open.

    With ``keep`` the file is a store: :meth:`flush` makes the transitions and the random stream
    durable, and a buffer of the same sizes over the same path continues from the last flush,
    however the previous process ended. Opening reads the file once and checks all of it. The buffer
    also flushes by itself, at least every ``2 * hot_capacity`` pushes, and when it is closed.

    It is a context manager, which closes it. Calls raise a RuntimeError if the buffer is closed,
    and an OSError if the file cannot be read or written, or a transition in it is damaged; then
    :meth:`push` has stored nothing, :meth:`push_batch` nothing or a multiple of ``hot_capacity``,
    and :meth:`set_state`, which raises a ValueError with ``keep``, some.

    Args:
        hot_capacity: number of transitions in memory, at least 1.
        total_capacity: largest number of transitions, at least ``hot_capacity``.
        obs_dim: the shape of an observation; an integer is the length of a vector.
        act_dim: the shape of an action.
        cold_path: the file. It must be new, empty, or left behind by a buffer with the same
            ``keep``. A relative path is resolved in the working directory at the time of this call.
        keep: whether the file stays when the buffer is closed, to be opened again; otherwise it is
            deleted by :meth:`close` and with the buffer. Only the process that opened it deletes
            it, and never a file that has replaced it.
        obs_dtype: uint8, int32, int64, float32 or float64.
        act_dtype: float32 or int64.
        seed: seed of the buffer's own random stream, or ``None`` for one from the operating system;
            a reopened buffer continues its saved stream.

    Raises:
        ValueError: a size, type or seed is out of range, or the file would be too long.
        TypeError: an argument has the wrong type.
        MemoryError: less memory is available than ``hot_capacity`` transitions take.
        OSError: the file cannot be written, is in use by another buffer, is not a buffer's, holds
            other sizes or types, or is damaged.

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
        obs_dim: _Shape,
        act_dim: _Shape,
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
        obs_dim: _Shape,
        act_dim: _Shape,
        *,
        obs_dtype: DTypeLike = "float32",
        act_dtype: DTypeLike = "float32",
    ) -> int:
        """Return the bytes of memory of such a buffer when full, without the file.

        Raises:
            MemoryError: no address space could hold it.
        """

    def flush(self) -> None:
        """Make the transitions and the random stream durable; without ``keep``, do nothing.

        Raises:
            OSError: the disk is full or fails; the last durable state stays, and nothing is lost.
            RuntimeError: the buffer is closed.
        """

    def close(self) -> None:
        """Close the file: flush it with ``keep``, delete it without.

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

@type_check_only
class _Ring(_Store):
    """The last transitions of several envs."""

    @property
    def n_envs(self) -> int:
        """How many envs are stored in turn."""
    def truncate_episodes(self) -> None:
        """Cut the episodes that go on, as if the envs were reset: their newest step is the last."""

@type_check_only
class _StepRing(_Ring):
    """Transitions of several steps of an env, and sequences."""

    @staticmethod
    def memory_bytes(
        capacity: SupportsIndex,
        obs_dim: _Shape,
        act_dim: _Shape,
        *,
        obs_dtype: DTypeLike = "float32",
        act_dtype: DTypeLike = "float32",
        share_frames: bool = False,
    ) -> int:
        """Return the bytes of memory that such a buffer takes when it is full.

        With ``share_frames``, for one new frame per transition; the first of an episode adds more.

        Raises:
            MemoryError: no address space could hold it.
        """

    @property
    def n_step(self) -> int:
        """How many steps of its env a drawn transition spans."""
    @property
    def gamma(self) -> float:
        """The discount of the rewards within those steps, and of the value after them."""
    def sample_sequences(
        self,
        batch_size: SupportsIndex,
        seq_len: SupportsIndex,
        seed: SupportsIndex | None = None,
        *,
        cross_episodes: bool = False,
    ) -> _Arrays:
        """Draw sequences of steps, each of one env."""

@final
class ReplayBuffer(_StepRing, _Pushed):
    """The last ``capacity`` transitions, drawn uniformly with replacement.

    ``share_frames`` stores each frame of stacked observations once.
    """

    def __new__(
        cls,
        capacity: SupportsIndex,
        obs_dim: _Shape,
        act_dim: _Shape,
        *,
        obs_dtype: DTypeLike = "float32",
        act_dtype: DTypeLike = "float32",
        n_envs: SupportsIndex = 1,
        n_step: SupportsIndex = 1,
        gamma: float = 0.99,
        share_frames: bool = False,
        seed: SupportsIndex | None = None,
    ) -> ReplayBuffer: ...

@final
class SequenceReplayBuffer:
    """The last rows of each env's stream, sampled uniformly as sequences of consecutive rows.

    Samples are time-major in memory, viewed as (B, T + 1, ...). A call releases the interpreter
    lock; calls from several threads run one after the other.
    """

    def __new__(
        cls,
        capacity: SupportsIndex,
        fields: Mapping[str, tuple[_Shape, DTypeLike]],
        *,
        declared: Sequence[str] = (),
        n_envs: SupportsIndex = 1,
        online_length: SupportsIndex | None = None,
        seed: SupportsIndex | None = None,
    ) -> SequenceReplayBuffer: ...
    @property
    def n_envs(self) -> int:
        """Number of streams."""
    @property
    def capacity(self) -> int:
        """Capacity in rows."""
    @property
    def nbytes(self) -> int:
        """Bytes of a full buffer's rows."""
    def __len__(self) -> int:
        """Return the number of rows."""
    def push(self, rows: Mapping[str, ArrayLike], envs: ArrayLike) -> None:
        """Append one row to the streams of some envs."""
    def sample(
        self, batch_size: SupportsIndex, length: SupportsIndex, seed: SupportsIndex | None = None
    ) -> _Arrays:
        """Return sequences of consecutive rows of one stream each."""
    def update(self, indices: ArrayLike, fields: Mapping[str, ArrayLike]) -> None:
        """Write declared fields of rows back; rows overwritten since then are skipped."""
    def changed_rows(self, since: int) -> tuple[int, int, list[tuple[int, int]]]:
        """Return the slots that may have changed since an older call."""
    def rows(self, start: int, stop: int) -> _Arrays:
        """Return a copy of the fields in the slots from ``start`` to ``stop``."""
    def rest(self) -> _Arrays:
        """Return a copy of the part of :meth:`state` without a row per slot."""
    def state(self) -> _Arrays:
        """Return a copy of the complete state for later samples."""
    def set_state(self, state: _Arrays) -> None:
        """Restore a :meth:`state`."""

@final
class PrioritizedReplayBuffer(_StepRing):
    """The last ``capacity`` transitions, drawn in proportion to priorities."""

    def __new__(
        cls,
        capacity: SupportsIndex,
        obs_dim: _Shape,
        act_dim: _Shape,
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
    @property
    def alpha(self) -> float:
        """The exponent α of the priorities."""
    @property
    def beta(self) -> float:
        """The exponent β of the weights."""
    def push(
        self,
        obs: ArrayLike,
        action: ArrayLike,
        reward: _Scalar,
        terminated: _Scalar,
        truncated: _Scalar,
        next_obs: ArrayLike | None = None,
        priority: SupportsFloat | None = None,
    ) -> None:
        """Store one transition like :meth:`ReplayBuffer.push`."""
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
        """Store n transitions like :meth:`ReplayBuffer.push_batch`."""
    def update_priorities(self, indices: ArrayLike, priorities: ArrayLike) -> None:
        """Give transitions new priorities, such as their TD errors."""
    def set_beta(self, beta: float) -> None:
        """Set the exponent β of the weights."""

@final
class HerReplayBuffer(_Ring):
    """The last ``capacity`` transitions of episodes with goals, drawn with goals reached later."""

    def __new__(
        cls,
        capacity: SupportsIndex,
        obs_dim: SupportsIndex,
        act_dim: _Shape,
        goal_dim: SupportsIndex,
        compute_reward: _GoalFunction | None = None,
        *,
        compute_terminated: _GoalFunction | None = None,
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
        act_dim: _Shape,
        *,
        obs_dtype: DTypeLike = "float32",
        act_dtype: DTypeLike = "float32",
    ) -> int:
        """Return the bytes of memory that such a buffer takes when it is full.

        Raises:
            MemoryError: no address space could hold it.
        """

    def push(
        self,
        obs: ArrayLike,
        action: ArrayLike,
        reward: _Scalar,
        terminated: _Scalar,
        truncated: _Scalar,
        next_obs: ArrayLike,
    ) -> None:
        """Store one transition like :meth:`ReplayBuffer.push`; ``next_obs`` is required."""
    def push_batch(
        self,
        obs: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        terminated: ArrayLike,
        truncated: ArrayLike,
        next_obs: ArrayLike,
    ) -> None:
        """Store n transitions like :meth:`ReplayBuffer.push_batch`; ``next_obs`` is required."""

@final
class QLearner:
    """Gradient steps of DQN on an MLP with ReLU or tanh, plain or dueling.

    All P parameters lie in one array, layer by layer, weights (n_out, n_in) before biases, in the
    order of ``rlox.networks``' modules. The object holds only working memory; it may be used from
    several threads, and calls run one after the other.

    Args:
        obs_dim: size of an observation.
        hidden: widths of the hidden layers; a single width for a dueling network.
        n_actions: number of actions A.
        dueling: whether two streams for value and advantages share the first layer.
        tanh: whether hidden layers have tanh instead of ReLU.

    Raises:
        ValueError: a size lies outside [1, 16384].

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
        tanh: bool = False,
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
    ) -> tuple[float, float, NDArray[np.float32]]:
        """Take one gradient step, on parameters and moments in place; without the interpreter lock.

        Args:
            learnt: ``parameters``, ``first_moments`` and ``second_moments``, shape ``(P,)`` each,
                float32, contiguous, changed; ``step``, the gradient steps taken
                before, at most 2**53; ``betas``, in [0, 1), ``eps`` and ``max_grad_norm``, the
                bound of the gradient's Euclidean norm or ``None``, none of them negative.
            target: parameters of the target network, shape ``(P,)``.
            batch: ``obs`` and ``next_obs``, shape ``(B, obs_dim)``; ``actions``, whole numbers of
                any dtype, shape ``(B, 1)``; ``rewards`` and ``discounts``, shape ``(B,)``;
                ``weights`` of the rows' losses, of the same shape or ``None``.
            learning_rate: step size.
            double: the learning network chooses the action that the target network evaluates.
            huber: the loss of TD errors is linear beyond 1, else squared.

        Returns:
            The loss, the mean value of the batch's actions, and the TD errors, shape ``(B,)``.

        Raises:
            ValueError: an entry is missing, a shape does not fit, a number is out of range, an
                action is a fraction or does not exist, or an array cannot be written to; nothing
                has changed.
            TypeError: an array has another dtype, or a number another type.
        """

    def act(self, parameters: ArrayLike, obs: ArrayLike) -> NDArray[np.int64]:
        """Return the action of the highest value for each observation, the first if equal.

        Args:
            parameters: the network's, shape ``(P,)``.
            obs: observations, shape ``(N, obs_dim)``.

        Returns:
            Actions, shape ``(N,)``.

        Raises:
            ValueError: a shape does not fit.
            TypeError: an array does not hold real numbers.
        """

    def gradients(self) -> NDArray[np.float32]:
        """Return the clipped gradient of the last step, shape ``(P,)``."""

@final
class ContinuousLearner:
    """Gradient steps of SAC, TD3, DDPG or CQL on MLPs: a policy and K critics.

    The policy's P parameters lie in one array in the order of ``rlox.nn.MLP``, the critics' Q
    in that of ``rlox.nn.EnsembleMLP``. The object holds only working memory; it may be used from
    several threads, and calls run one after the other.

    Args:
        obs_dim: size of an observation.
        act_dim: size of an action.
        hidden: widths of the hidden layers of all networks.
        n_critics: K.
        log_std_bounds: bounds that clip the logarithmic deviations of a squashed Gaussian policy;
            ``None``: the policy is tanh of its network.
        critic_hidden: widths of the critics' hidden layers, if they differ.
        tanh: whether hidden layers have tanh instead of ReLU.

    Raises:
        ValueError: a size lies outside [1, 16384], or ``log_std_bounds`` are not two finite
            numbers, the smaller first.

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
        critic_hidden: Sequence[SupportsIndex] | None = None,
        tanh: bool = False,
    ) -> ContinuousLearner: ...
    @property
    def act_dim(self) -> int:
        """Size of an action."""
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
    ) -> tuple[float, float, NDArray[np.float32]]:
        """Take one gradient step of the critics, in place; without the interpreter lock.

        Args:
            critics: as ``learnt`` in :meth:`QLearner.step`, with Q for P.
            target: parameters of the target critics, shape ``(Q,)``.
            policy: parameters of the policy that chooses the next actions, shape ``(P,)``.
            batch: as in :meth:`QLearner.step`, with ``actions`` ``(B, act_dim)`` in [-1, 1].
            noise: shape ``(B, act_dim)``; standard normal for a Gaussian policy; the shift of a
                deterministic one's actions, or ``None``.
            learning_rate: step size.
            alpha: temperature of the next actions' entropy, return/nats; 0 for none.
            scale: weight of a squared TD error in the loss.
            penalty_weight: weight in the loss of the penalties of the last :meth:`penalize`.

        Returns:
            The loss, the mean value of the batch's actions, and the TD errors, shape ``(K, B)``.

        Raises:
            ValueError: an entry is missing, a shape does not fit, a number is out of range, an
                array cannot be written to, or a weighted penalty has not been computed since the
                last step; nothing has changed.
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
        of their sizes and multiplied by its weight, and the mean squared distance to its actions is
        added (Fujimoto and Gu 2021, equations 3 to 5).

        Args:
            policy: as ``learnt`` in :meth:`QLearner.step`.
            critics: their parameters, shape ``(Q,)``.
            obs: shape ``(B, obs_dim)``.
            noise: standard normal, shape ``(B, act_dim)``; ``None`` for a deterministic policy.
            learning_rate: step size.
            alpha: temperature α, return/nats.
            cloning: actions to stay near, shape ``(B, act_dim)``, and the values' weight; ``None``:
                only the values.

        Returns:
            The loss, and the mean of -log π(a|s), 0 for a deterministic policy.

        Raises:
            ValueError: an entry is missing, a shape does not fit, a number is out of range, or an
                array cannot be written to; nothing has changed.
            TypeError: an array has another dtype, or a number another type.
        """

    def follow(
        self, target: NDArray[np.float32], parameters: ArrayLike, *, tau: float, rows: SupportsIndex
    ) -> None:
        """Move a target network, in place: θ' ← θ' + τ (θ - θ'); without the interpreter lock.

        Args:
            target: θ', of the size of ``parameters``.
            parameters: θ, of the policy or of the critics.
            tau: τ in [0, 1].
            rows: batch size of the gradient steps, whose threads are used.

        Raises:
            ValueError: the sizes differ, ``tau`` is out of range, or ``target`` cannot be written
                to; nothing has changed.
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
        the policy's at s and the policy's at s', with values weighted by the inverse of their
        densities (Kumar et al. 2020, equation 4 and appendix F). Values of the policy's actions
        below their bound are replaced by it and have no gradient (Nakamoto et al. 2023, equation
        5.1).

        Args:
            critics: their parameters, shape ``(Q,)``.
            policy: parameters of a Gaussian policy, shape ``(P,)``.
            batch: as in :meth:`step_values`.
            random: actions uniform in [-1, 1], shape ``(N, B, act_dim)``, N at most 85.
            here: standard normal noise of the policy's actions at s, same shape.
            there: noise of its actions at s', same shape.
            lower_bounds: shape ``(B,)``; ``None`` for no bounds.

        Raises:
            ValueError: an entry is missing, or a shape does not fit; nothing has changed.
            TypeError: an array has another dtype.
        """

    def act(
        self, policy: ArrayLike, obs: ArrayLike, noise: ArrayLike | None
    ) -> NDArray[np.float32]:
        """Return the policy's action for each observation.

        Args:
            policy: its parameters, shape ``(P,)``.
            obs: shape ``(N, obs_dim)``.
            noise: shape ``(N, act_dim)``: standard normal for a Gaussian policy; otherwise added to
                the actions before clipping to [-1, 1]; ``None`` adds nothing.

        Returns:
            Shape ``(N, act_dim)``.

        Raises:
            ValueError: a shape does not fit, or a Gaussian policy gets no noise.
            TypeError: an array does not hold real numbers.
        """

    def entropy(self, policy: ArrayLike, obs: ArrayLike, noise: ArrayLike) -> float:
        """Return the mean of -log π(a|s) over the policy's actions for the given noise.

        Args:
            policy: its parameters, shape ``(P,)``.
            obs: shape ``(B, obs_dim)``.
            noise: standard normal, shape ``(B, act_dim)``.

        Raises:
            ValueError: a shape does not fit.
            TypeError: an array has another dtype.
        """

    def gradients(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the clipped gradients of the last steps of policy and critics."""

@final
class ImplicitLearner:
    """Gradient steps of implicit Q-learning on MLPs: a value, a policy and K critics.

    The value's P_V parameters lie in one array in the order of ``rlox.nn.MLP``, the policy's
    P_π in that of ``rlox.networks.GaussianPolicy``, the critics' Q in that of
    ``rlox.nn.EnsembleMLP``. The object holds only working memory; it may be used from several
    threads, and calls run one after the other.

    Args:
        obs_dim: size of an observation.
        act_dim: size of an action.
        hidden: widths of the hidden layers of all networks.
        n_critics: K.
        log_std_bounds: bounds that clip the logarithmic deviations.
        critic_hidden: widths of the hidden layers of value and critics, if they differ.
        tanh: whether hidden layers have tanh instead of ReLU.

    Raises:
        ValueError: a size lies outside [1, 16384], or ``log_std_bounds`` are not two finite
            numbers, the smaller first.

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
        critic_hidden: Sequence[SupportsIndex] | None = None,
        tanh: bool = False,
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

        First the value (Kostrikov et al. 2022, equation 5); then, with the new value, the policy
        (equation 7) and the critics (equation 6).

        Args:
            value: as ``learnt`` in :meth:`QLearner.step`, with P_V for P.
            policy: as ``value``, with P_π for P.
            critics: as ``value``, with Q for P.
            target: parameters of the target critics, shape ``(Q,)``.
            batch: as in :meth:`QLearner.step`, with ``actions`` ``(B, act_dim)`` in [-1, 1];
                ``weights`` apply to the critics' errors.
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

    def gradients(self) -> list[NDArray[np.float32]]:
        """Return the clipped gradients of the last step of value, policy and critics."""

@final
class ActorCriticLearner:
    """Gradient steps of PPO or A2C on two MLPs, one for the policy and one for the value.

    All P parameters lie in one array: a Gaussian policy's log standard deviations, then the policy
    network, then the value network, each layer by layer, weights (n_out, n_in) before biases.
    Parameters of memories, if any, come before both networks, in the order of ``torch.nn.LSTM``.
    That is the order of ``rlox.policies``' modules. The object holds only working memory; it may be
    used from several threads, and calls run one after the other.

    Args:
        obs_dim: size of an observation.
        hidden: widths of the hidden layers of both networks.
        n_actions: for a categorical policy, the number of actions.
        choices: for a categorical policy of several choices at once, the number of actions of each:
            an action is a row of integers, and masks and outputs of all choices are concatenated.
        act_dim: for a Gaussian policy, the size of an action.
        critic_dim: size of the value network's input, if it differs from the policy's: an
            observation then has ``obs_dim`` numbers for the policy followed by these.
        memory_size: units of an LSTM in front of each network; ``None``: no LSTM.
        scaled: whether the logarithmic deviations of a Gaussian policy are not parameters but tanh
            of outputs of the policy network, after those of the means. Such a policy does not act.
        activation: of hidden layers, ``"tanh"`` or ``"relu"``.
        critic_hidden: widths of the value network's hidden layers, if they differ.

    Raises:
        ValueError: a size lies outside [1, 16384], or ``activation`` is another.
        TypeError: not exactly one of ``n_actions``, ``choices`` and ``act_dim`` is given.

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
        choices: Sequence[SupportsIndex] | None = None,
        act_dim: SupportsIndex | None = None,
        critic_dim: SupportsIndex | None = None,
        memory_size: SupportsIndex | None = None,
        scaled: bool = False,
        activation: str = "tanh",
        critic_hidden: Sequence[SupportsIndex] | None = None,
    ) -> ActorCriticLearner: ...
    @property
    def n_parameters(self) -> int:
        """P."""
    @property
    def state_size(self) -> int:
        """Size of the state remembered of an episode, 0 without a memory.

        Hidden and cell state of the policy's LSTM, then those of the value's.
        """
    def gradients(self) -> NDArray[np.float32]:
        """Return the clipped gradient of the last minibatch, shape ``(P,)``."""

    def update(
        self,
        parameters: NDArray[np.float32],
        second_moments: NDArray[np.float32],
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
        first_moments: NDArray[np.float32] | None = None,
        betas: tuple[float, float] | None = None,
        alpha: float | None = None,
        eps: float = 1e-8,
        clip_eps: float | None = None,
        dual_clip: float | None = None,
        vf_clip_eps: float | None = None,
        target_kl: float | None = None,
        action_masks: ArrayLike | None = None,
        initial_state: ArrayLike | None = None,
        episode_starts: ArrayLike | None = None,
    ) -> tuple[list[float], int]:
        """Take one gradient step per minibatch, on ``parameters`` and moments in place.

        The loss is ``rlox.losses.ppo_loss``, or, without ``clip_eps``, that of A2C with the
        objective mean A log π(a|s). Runs without the interpreter lock.

        Args:
            parameters: shape ``(P,)``, float32, contiguous; changed.
            second_moments: running mean of squared gradients; as ``parameters``.
            obs: shape ``(R, obs_dim)``.
            actions: shape ``(R,)``, whole numbers of any dtype, or ``(R, act_dim)``.
            log_probs: log π_old(a|s), shape ``(R,)``.
            values: value estimates of the policy that acted, shape ``(R,)``.
            advantages: A, shape ``(R,)``.
            returns: the value function's targets, shape ``(R,)``.
            order: rows in the order of each epoch, shape ``(n_epochs, n_rows)``; with a memory,
                sequences.
            batch_size: rows of a minibatch, or sequences; the last of an epoch has the remainder.
            learning_rate: step size; like all following numbers, not negative.
            max_grad_norm: bound of the gradient's Euclidean norm; ``None``: no bound.
            vf_coef: weight of the value loss.
            ent_coef: weight of the entropy bonus, 1/nats.
            normalize_advantages: whether to standardise them over each minibatch.
            step: gradient steps taken before, at most 2**53.
            first_moments: running mean of gradients, for Adam; as ``second_moments``.
            betas: Adam's decays of the first and the second moment, in [0, 1).
            alpha: RMSprop's decay of the second moment, in [0, 1]; give either it or ``betas``.
            eps: added to the root of the second moment.
            clip_eps: PPO's clip range ε.
            dual_clip: bound of PPO's objective at negative advantages, at least 1.
            vf_clip_eps: range of PPO's value clip.
            target_kl: ends the update before the step of a minibatch whose approximate KL exceeds
                1.5 times this.
            action_masks: possible actions of a categorical policy, shape ``(R, n_actions)``, at
                least one in each row; ``None``: always all.
            initial_state: with a memory, the state before each of n sequences, shape ``(n,
                state_size)``. Rows are R / n steps of the sequences, step 0 of all first; gradients
                flow through all steps.
            episode_starts: with a memory, whether an episode begins at a row, shape ``(R,)``.

        Returns:
            Policy loss, value loss, entropy, approximate KL and clip fraction, means over the
            minibatches; and the number of gradient steps taken.

        Raises:
            ValueError: a shape does not fit, a number is out of range, a row or an action is a
                fraction or does not exist, an action is not allowed by its mask, a mask allows no
                action, or an array cannot be written to; nothing has changed.
            TypeError: an array has another dtype, a number another type, not exactly one optimiser
                is given, or a memory lacks its state and the starts of episodes.
        """

    def differentiate(
        self,
        parameters: NDArray[np.float32],
        obs: ArrayLike,
        actions: ArrayLike,
        log_probs: ArrayLike,
        advantages: ArrayLike,
        returns: ArrayLike,
        *,
        clip_eps: float,
        dual_clip: float | None,
        vf_bound: float | None,
        vf_coef: float,
        ent_coef: float,
    ) -> list[float]:
        """Compute the gradient of the mean loss of R rows, for :meth:`gradients`, without a step.

        The loss is that of :meth:`update`, with unchanged advantages. Runs without the interpreter
        lock.

        Args:
            parameters: shape ``(P,)``, float32, contiguous.
            obs: shape ``(R, obs_dim)``.
            actions: shape ``(R,)``, whole numbers of any dtype, or ``(R, act_dim)``.
            log_probs: log π_old(a|s), shape ``(R,)``.
            advantages: A, shape ``(R,)``.
            returns: the value function's targets G, shape ``(R,)``.
            clip_eps: PPO's clip range ε.
            dual_clip: bound of PPO's objective at negative advantages, at least 1.
            vf_bound: if given, a row's value loss is ``min(huber(V - G), vf_bound)``, of slope 1
                from a distance of 1 on; else ``(V - G)²``.
            vf_coef: weight of the value loss.
            ent_coef: weight of the entropy bonus, 1/nats.

        Returns:
            Policy loss, value loss, entropy, approximate KL and clip fraction, means over rows.

        Raises:
            ValueError: a shape does not fit, a number is out of range, there are no rows, or an
                action is a fraction or does not exist.
            TypeError: an array has another dtype, or a number another type.
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

        Actions are drawn as in :meth:`act`. The envs receive continuous actions clipped to their
        bounds; the array has them as sampled.

        Args:
            envs: N envs that have been reset.
            parameters: shape ``(P,)``.
            stream: see :meth:`act`.
            next_obs: input of the first actions, shape ``(N, obs_dim)``; replaced by the next one.
            obs: observations acted on, shape ``(T, N, obs_dim)``; written, like all below.
            actions: shape ``(T, N)`` int64, or ``(T, N, act_dim)`` float32.
            log_probs: log π(a|s), shape ``(T, N)``.
            rewards: shape ``(T, N)``.
            terminated: shape ``(T, N)``.
            truncated: shape ``(T, N)``.
            final_values: V of the final observation of truncated episodes, else 0, ``(T, N)``.

        Raises:
            ValueError: a shape does not fit, the envs take other actions or observations than the
                policy, or the policy has a memory.
            TypeError: an array has another dtype.
            RuntimeError: the envs have not been reset.
        """

    def act(
        self,
        parameters: NDArray[np.float32],
        stream: NDArray[np.uint64] | None,
        obs: ArrayLike,
        *,
        action_masks: ArrayLike | None = None,
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Draw an action for each observation.

        Every row in turn draws from the stream. A categorical policy draws one number u in [0, 1)
        and takes the first action whose cumulative probability exceeds u. A Gaussian one draws two,
        u and v, for each component: its noise is √(-2 ln(1 - u)) cos 2πv.

        Args:
            parameters: shape ``(P,)``.
            stream: the state of a NumPy ``PCG64``, shape ``(4,)``: high and low word of the state,
                then of the increment; advanced. Its numbers are those of ``Generator.random``.
                ``None`` takes the modes.
            obs: shape ``(R, obs_dim)``; with a memory, the states after the observations, as
                returned by :meth:`remember`.
            action_masks: for a categorical policy, shape ``(R, n_actions)``, False for forbidden
                actions; None allows all.

        Returns:
            Actions as sampled, ``(R,)`` int64 or ``(R, act_dim)`` float32, and log π(a|s),
            ``(R,)``.

        Raises:
            ValueError: a shape does not fit, or a mask allows no action.
            TypeError: an array has another dtype.
        """

    def remember(
        self, parameters: NDArray[np.float32], obs: ArrayLike, state: ArrayLike
    ) -> NDArray[np.float32]:
        """Update the states of N episodes by one observation each; return the new states.

        Args:
            parameters: shape ``(P,)``.
            obs: shape ``(N, obs_dim)``.
            state: states before, 0 at the start of an episode, shape ``(N, state_size)``.

        Returns:
            Shape ``(N, state_size)``, newly allocated.

        Raises:
            ValueError: a shape does not fit.
            TypeError: an array has another dtype.
        """

    def values(
        self, parameters: NDArray[np.float32], obs: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return V, shape ``(R,)``, of observations ``(R, obs_dim)``, or of states after them.

        Args:
            parameters: shape ``(P,)``.
            obs: see above.

        Raises:
            ValueError: a shape does not fit.
            TypeError: an array has another dtype.
        """

def set_num_threads(n: SupportsIndex | None) -> None:
    """Set the maximal number of threads in a call of a Rust kernel; NumPy's kernels use one.

    Results are the same bits for any number. A thread is woken only if it has enough to do.

    Raises:
        ValueError: ``n`` is not in [1, 1024].
    """

def get_num_threads() -> int:
    """Return the number of threads per call, including the caller's; NumPy's kernels use 1."""
