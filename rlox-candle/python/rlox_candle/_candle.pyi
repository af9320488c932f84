from collections.abc import Sequence
from typing import Any, Final, TypedDict, final, type_check_only

import numpy as np
from numpy.typing import NDArray

__all__ = ["CandleCollector", "__version__"]

__version__: Final[str]

@type_check_only
class Batch(TypedDict):
    """Result of :meth:`CandleCollector.recv`: T steps of N envs, time-major."""

    observations: NDArray[np.float32]
    actions: NDArray[Any]
    rewards: NDArray[np.float32]
    dones: NDArray[np.bool_]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    log_probs: NDArray[np.float32]
    values: NDArray[np.float32]
    advantages: NDArray[np.float32]
    returns: NDArray[np.float32]
    n_envs: int
    n_steps: int
    weights_version: int

@final
class CandleCollector:
    """Rollouts of native envs, collected by a background thread in Rust.

    The thread steps the envs, runs the policy in candle and estimates advantages (GAE), without
    Python and its lock, from construction on. Episodes continue from one rollout to the next;
    truncated ones are bootstrapped from the value of their true final observation. Continuous
    actions are clipped to the env's bounds for the env and stored as sampled.

    The acting weights do not depend on timing: rollout k is collected with the newest weights at
    the time rollout k - ``capacity`` was received, and the first ``capacity`` rollouts with the
    initial ones. So the same seed and calls give the same batches, bit for bit.

    The policy is that of :mod:`rlox.policies`: two MLPs with tanh layers, categorical for
    discrete actions, Gaussian with state-independent deviations for continuous ones. Its weights
    are one flat vector in the order of ``policy.parameters()``, as in
    ``rlox.nn.FlatOptimizer.parameters``.

    Args:
        env_id: one of :func:`rlox_native.native_env_ids`.
        n_envs: number of envs N.
        obs_dim: components of an observation; optional, checked against the env's.
        n_actions: number of actions, or components of a continuous one; checked like ``obs_dim``.
        n_steps: env steps T of each env in a rollout.
        hidden: width of two hidden layers, or widths of any number of them; ``None``: 64.
        seed: fixes weights, actions and envs (env i has ``seed + i``); ``None`` draws from entropy.
        critic_hidden: the same for the value function; ``None``: as ``hidden``.
        gamma: discount in [0, 1].
        gae_lambda: trace decay λ in [0, 1].
        capacity: rollouts that may be ahead of the consumer. 0: the thread works only while
            :meth:`recv` waits; 1: it collects the next rollout during learning from the last.
        weights: initial weights, float32 (P,); ``None``: orthogonal, like the policies'.

    Raises:
        ValueError: an argument is out of range or does not match the env, or the env is unknown.
        TypeError: an argument is of the wrong type.
    """

    def __new__(
        cls,
        env_id: str,
        n_envs: int,
        obs_dim: int | None = None,
        n_actions: int | None = None,
        n_steps: int = 128,
        hidden: int | Sequence[int] | None = None,
        seed: int | None = None,
        *,
        critic_hidden: int | Sequence[int] | None = None,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        capacity: int = 1,
        weights: NDArray[np.float32] | None = None,
    ) -> CandleCollector: ...
    @property
    def env_id(self) -> str:
        """The id of each env."""

    @property
    def n_envs(self) -> int:
        """The number of envs N."""

    @property
    def n_steps(self) -> int:
        """The env steps T of each env in a rollout."""

    @property
    def capacity(self) -> int:
        """Largest number of rollouts ahead of the consumer."""

    @property
    def weights_version(self) -> int:
        """The version of the newest weights: the number of syncs."""

    def recv(self) -> Batch:
        """Wait for the next rollout and return its arrays, which the caller owns.

        Ctrl-C interrupts the wait; the next call then returns the rollout.

        Returns:
            A dict. ``observations`` (T, N, obs_dim), ``rewards``, ``log_probs``, ``values``,
            ``advantages`` and ``returns`` (T, N) float32; ``actions`` (T, N) int64 or (T, N,
            act_dim) float32; ``terminated``, ``truncated`` and their union ``dones`` (T, N) bool;
            the numbers ``n_envs`` (N) and ``n_steps`` (T); ``weights_version``, that of the acting
            weights, 0 for the initial ones.

        Raises:
            RuntimeError: the collector was stopped, or its thread failed; the text says why.
        """

    def sync_weights(self, flat: NDArray[np.float32]) -> int:
        """Use these weights for all rollouts ordered from now on.

        Args:
            flat: float32 (P,), copied.

        Returns:
            Their version.

        Raises:
            ValueError: their number is wrong, or one is not finite; the last ones stay.
            TypeError: ``flat`` is not a one-dimensional float32 array.
        """

    def get_weights(self) -> NDArray[np.float32]:
        """Return a copy of the newest weights, float32 (P,)."""

    def evaluate(
        self, observations: NDArray[np.float32], actions: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Evaluate steps with the newest weights, without the thread.

        Args:
            observations: (B, obs_dim) float32.
            actions: (B,) int64, or (B, act_dim) float32.

        Returns:
            Log-probabilities of the actions and values of the observations, each (B,) float32.

        Raises:
            ValueError: shapes do not match, or an action does not exist.
            TypeError: an array is of another type.
        """

    def stop(self) -> None:
        """End the thread and wait for its end, within one step of the envs.

        Calling it again does nothing; a wait in :meth:`recv` in another thread ends with an error.
        Dropping the collector stops it too.
        """

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the complete state of the envs, once the thread is between rollouts.

        Weights and rollouts ahead of the consumer are not part of it.
        """

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore the envs exactly from a :meth:`state`.

        Raises:
            ValueError: it is not a state of such envs; nothing has changed.
        """
