"""Rollouts collected by :class:`rlox.CandleCollector` with the weights of a torch policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import rlox
import torch
from gymnasium import spaces
from rlox.batches.rollout import RolloutBatch
from rlox.envs.make import make_vec_env
from rlox.envs.preprocessing import Preprocessor
from rlox.envs.running import EpisodeStatistics
from rlox.errors import BackendError, EnvError
from rlox.kernels import kernel
from rlox.nn import Hidden, Layers
from rlox.seeding import SeedStreams

COLUMNS = (
    "actions", "log_probs", "values", "rewards", "terminated", "truncated", "advantages", "returns",
)  # fmt: skip
"""What a batch is of, besides observations."""

TOLERANCE = 1e-5
"""Allowed difference of log-probabilities and values between candle and torch, same weights."""


class CandleRollouts:
    """Collects as :class:`rlox.rollouts.collector.RolloutCollector` does, in a Rust thread.

    Args:
        env_id: id of a native env.
        n_envs: number of envs N.
        seed: fixes the envs' random streams and the actions.
        hidden: the policy's hidden layers.
        gamma: discount in [0, 1].
        gae_lambda: trace decay λ in [0, 1].
        overlap: collect the next rollout during learning, with the weights of one sync before.
        device: device of the batches.

    Raises:
        EnvError: ``env_id`` is not the id of a native env.
        MissingDependencyError: rlox-candle is not installed.
    """

    def __init__(
        self,
        env_id: Any,
        n_envs: int,
        seed: int,
        *,
        hidden: Hidden,
        gamma: float,
        gae_lambda: float,
        overlap: bool,
        device: torch.device | str = "cpu",
    ) -> None:
        if not isinstance(env_id, str):
            raise EnvError(
                f"env must be the id of a native env, got {type(env_id).__name__}; PPO takes others"
            )
        self._make = rlox.CandleCollector  # raises before any work if it is not installed
        if kernel("compute_gae_time_major").__module__ != "rlox_native._native":
            raise BackendError(
                "candle estimates advantages by rlox's GAE, whose code was edited; use ppo"
            )
        self.env = make_vec_env(env_id, n_envs=n_envs, backend="native")
        self.observation_space = self.env.observation_space
        self.preprocessor: Preprocessor | None = None
        self.statistics = EpisodeStatistics(n_envs)
        self.weights_staleness = 0
        """Syncs between the weights that collected the last batch and the newest."""
        self._env_id, self._n_envs, self._seed = env_id, n_envs, seed
        layers = Layers.expand(hidden)
        self._options: dict[str, Any] = {
            "hidden": layers.hidden,
            "critic_hidden": layers.critic_hidden,
            "gamma": gamma,
            "gae_lambda": gae_lambda,
            "capacity": int(overlap),
        }
        self._device = torch.device(device)
        self._collector: rlox.CandleCollector | None = None
        self._resumed: Mapping[str, Any] | None = None
        self._probe = self._probe_steps()

    @torch.no_grad()
    def collect(
        self, policy: Any, n_steps: int, on_step: Callable[[int], None] | None = None
    ) -> RolloutBatch:
        """Hand over the policy's weights and receive the next rollout.

        Args:
            policy: a default policy of :mod:`rlox.networks.actor_critics`.
            n_steps: steps T per env, the same in all calls.
            on_step: called T times with N, once the rollout has arrived.

        Returns:
            A batch of T*N rows.

        Raises:
            RuntimeError: the thread failed, or candle and torch compute different outputs.
        """
        collector = self._sync(policy, n_steps)
        batch = collector.recv()
        self.weights_staleness = collector.weights_version - batch["weights_version"]
        self.statistics.add(batch["rewards"], batch["dones"])
        if on_step is not None:
            for _ in range(n_steps):
                on_step(self._n_envs)

        def rows(name: str) -> torch.Tensor:
            array: npt.NDArray[Any] = batch[name]  # type: ignore[literal-required]
            return torch.from_numpy(array).flatten(0, 1).to(self._device)

        return RolloutBatch(
            obs=rows("observations"),
            **{name: rows(name) for name in COLUMNS},
            n_steps=n_steps,
            n_envs=self._n_envs,
        )

    def _sync(self, policy: Any, n_steps: int) -> rlox.CandleCollector:
        """Give the collector the policy's weights, check that it acts alike, and return it."""
        weights = torch.nn.utils.parameters_to_vector(policy.parameters()).cpu().numpy()
        if self._collector is None:
            self._collector = self._make(
                self._env_id, self._n_envs, n_steps=n_steps, seed=self._seed, weights=weights,
                **self._options,
            )  # fmt: skip
            if self._resumed is not None:
                self._collector.set_state(dict(self._resumed))
        else:
            self._collector.sync_weights(weights)
        obs, actions = self._probe
        tensors = [torch.from_numpy(array).to(self._device) for array in self._probe]
        expected = policy.get_logprob_and_entropy(*tensors)[0], policy.get_value(tensors[0])
        for got, tensor in zip(self._collector.evaluate(obs, actions), expected, strict=True):
            if not np.allclose(got, tensor.cpu().numpy(), rtol=TOLERANCE, atol=TOLERANCE):
                raise RuntimeError(
                    f"candle and torch disagree about the policy: {got} and {tensor.tolist()}"
                )
        return self._collector

    def _probe_steps(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return four steps for comparing candle with torch."""
        rng = np.random.default_rng(0)
        obs_shape, action_space = self.env.observation_space.shape, self.env.action_space
        assert obs_shape is not None
        obs = rng.standard_normal((4, *obs_shape)).astype(np.float32)
        if isinstance(action_space, spaces.Discrete):
            return obs, np.arange(4) % int(action_space.n)
        return obs, rng.standard_normal((4, *(action_space.shape or ()))).astype(np.float32)

    def close(self) -> None:
        """End the thread."""
        if self._collector is not None:
            self._collector.stop()

    def state_dict(self) -> dict[str, Any]:
        """Return the episode statistics and, unless a rollout is under way, the envs' state."""
        env = self._resumed
        if self._collector is not None:
            env = None if self._options["capacity"] else self._collector.state()
        return {
            "started": self._collector is not None or env is not None,
            "statistics": self.statistics.state_dict(),
            "env": env,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state; for another number of envs begin new episodes with other seeds."""
        self.close()
        as_many = self.statistics.fits(state["statistics"])
        self._collector, self._resumed = None, state["env"] if as_many else None
        if state["started"] and self._resumed is None:
            finished = int(state["statistics"]["finished"])
            streams = SeedStreams(self._seed)
            (self._seed,) = streams.seeds(f"envs after {finished} episodes", 1)
        self.statistics.load_state_dict(state["statistics"], keep_running=self._resumed is not None)
