"""What on-policy algorithms share: a policy, the envs it acts in, and its optimiser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy.typing as npt
import torch
from torch import Tensor, nn

from rlox.acting import predict
from rlox.batch import RolloutBatch
from rlox.collectors import RolloutCollector
from rlox.config import Config
from rlox.envs import fixed_env_count
from rlox.gym_vec_env import Vectorization
from rlox.nn import (
    EncoderKind,
    FlatOptimizer,
    find_device,
    load_module_state,
    module_state,
    torch_threads,
)
from rlox.policies import make_policy
from rlox.runner import Hooks
from rlox.seeding import SeedStreams

__all__ = ["ActorCritic", "fit_to_env"]

ConfigT = TypeVar("ConfigT", bound=Config)


class ActorCritic:
    """A policy with a value function, wired to N envs and an optimiser.

    Args:
        env: a gymnasium id, a callable that makes an env, an env or a vector env.
        streams: the run's random streams.
        make_optimizer: see :class:`rlox.nn.FlatOptimizer`.
        policy: a ``torch.nn.Module`` with the methods of :class:`rlox.protocols.OnPolicyActor`; if
            it has an attribute ``generator`` that is none, it gets the run's stream to draw from.
            None: MLPs that fit the env's spaces.
        hidden: width of the default policies' two hidden layers.
        network: how the default policies see boxes; see :data:`rlox.nn.EncoderKind`.
        max_grad_norm: bound of the gradient's Euclidean norm.
        n_envs: number of envs N.
        gamma: discount in [0, 1].
        gae_lambda: trace decay λ in [0, 1].
        env_backend: env backend for ids; ``"auto"`` takes the fastest that has the id.
        vectorization: for gymnasium envs, ``"sync"`` or ``"async"``.
        device: torch device of policy and batches.
        threads: torch threads while acting; none: leave torch's setting.

    Raises:
        ConfigError: there is no such device.
        EnvError: the env cannot be built.
        SpaceError: the env's spaces need a ``policy`` of your own.
    """

    def __init__(
        self,
        env: Any,
        streams: SeedStreams,
        make_optimizer: Callable[[list[Tensor]], torch.optim.Optimizer],
        *,
        policy: nn.Module | None = None,
        hidden: int = 64,
        network: EncoderKind = "auto",
        max_grad_norm: float = 0.5,
        n_envs: int | None = None,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        env_backend: str = "auto",
        vectorization: Vectorization = "sync",
        device: str = "cpu",
        threads: int | None = 1,
    ) -> None:
        self.device = find_device(device)
        self.threads = threads
        self._streams = streams
        self.collector = RolloutCollector(
            env,
            n_envs=n_envs,
            seed=streams.seeds("envs", 1)[0],
            device=self.device,
            gamma=gamma,
            gae_lambda=gae_lambda,
            backend=env_backend,
            vectorization=vectorization,
        )
        self.policy: Any = policy or make_policy(
            self.collector.env.observation_space,
            self.collector.env.action_space,
            hidden=hidden,
            network=network,
            generator=streams.torch("policy"),
        )
        if getattr(self.policy, "generator", ...) is None:
            setattr(self.policy, "generator", streams.torch("policy"))  # noqa: B010
        self.policy.to(self.device)
        self.optimizer = FlatOptimizer(self.policy, make_optimizer, max_grad_norm=max_grad_norm)

    def collect(self, n_steps: int, hooks: Hooks) -> RolloutBatch:
        """Step every env ``n_steps`` times with the policy; see ``RolloutCollector.collect``."""
        batch = self.collector.collect(self.policy, n_steps, hooks.env_step)
        hooks.rollout_end(batch)
        return batch

    def predict(
        self, obs: Any, deterministic: bool, action_masks: npt.ArrayLike | None = None
    ) -> Any:
        """Return an action for one observation, or actions for a batch; see ``acting.predict``."""
        env = self.collector.env
        with torch_threads(self.threads):
            return predict(
                self.policy,
                env.observation_space,
                env.action_space,
                obs,
                deterministic,
                action_masks=action_masks,
                generator=self._streams.torch("predict"),
                device=self.device,
            )

    def close(self) -> None:
        """Free the resources of the envs that were made here."""
        self.collector.close()

    def state_dict(self) -> dict[str, Any]:
        """Return policy, optimiser and collector."""
        return {
            "policy": module_state(self.policy),
            "optimizer": self.optimizer.state_dict(),
            "collector": self.collector.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore policy, optimiser and collector."""
        load_module_state(self.policy, state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.collector.load_state_dict(state["collector"])


def fit_to_env(config: ConfigT, env: Any) -> ConfigT:
    """Return the config with the number of envs that ``env`` is, where it cannot be copied.

    Unless the caller chose ``n_steps``, rollouts keep their number of rows.

    Args:
        config: has the fields ``n_envs`` and ``n_steps``.
        env: what the user passed as env.
    """
    count = fixed_env_count(env)
    sizes: Any = config
    if count is None or count == sizes.n_envs or "n_envs" in config.model_fields_set:
        return config
    n_steps = sizes.n_steps
    if "n_steps" not in config.model_fields_set:
        n_steps = max(sizes.n_envs * sizes.n_steps // count, 1)
    return config.replace(n_envs=count, n_steps=n_steps)
