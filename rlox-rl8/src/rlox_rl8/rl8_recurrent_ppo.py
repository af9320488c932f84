"""Recurrent PPO on batched envs (Schulman et al. 2017).

Each iteration collects T steps of B envs with the policy π_old and takes E passes of minibatches
down the gradient of

    loss = c_V mean min(smooth_l1(V, G), v) - mean L_π - c_H mean H,
    L_π = min(A r, A clip(r, 1 - c, 1 + c)),  r = π(a|s) / π_old(a|s).

Samples are sequences of ``seq_len`` steps; each starts from the state met while collecting, and its
gradient ends there.

Deviations from the paper:
    1. the value loss is smooth and is itself bounded by v, where its gradient ends;
    2. rewards are divided by the deviation of the reversed discounted returns;
    3. batched envs never end; all are reset after a fixed number of horizons, and V bootstraps
       there. Other envs are reset as their episodes end;
    4. if d is given, L_π is at least d A where A < 0 (Ye et al. 2020);
    5. learning stops above 1.5 times a target divergence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy.typing as npt
from rlox.algorithm import Algorithm
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, resolve_config
from rlox.deployment import PolicyData
from rlox.evaluation import MAX_STEPS, EvaluationResult
from rlox.logging import LoggerCallback
from rlox.training.hooks import Hooks

from rlox_rl8 import acting, running
from rlox_rl8.algorithms import RecurrentAlgorithm, RecurrentAlgorithmConfig
from rlox_rl8.building import agent_config
from rlox_rl8.configs import RL8RecurrentPPOConfig
from rlox_rl8.exporting import describe_policy
from rlox_rl8.vec_envs import VecTensorEnv

if TYPE_CHECKING:
    from rlox_rl8.option_types import RL8RecurrentPPOOptions, Unpack

__all__ = ["RL8RecurrentPPO"]


@final
class RL8RecurrentPPO(Algorithm):
    """Recurrent PPO on batched envs.

    Args:
        env: a class of :class:`rlox_rl8.Env`, or ``"module:Class"``; or what ``ppo`` takes, such as
            a gymnasium id.
        config: a :class:`RL8RecurrentPPOConfig`, a mapping, or the path of a YAML or JSON file.
        callbacks: hooks into training.
        logger: receives the metrics of every iteration.
        agent: trained instead of one made of the config.
        parts: arguments of :class:`rlox_rl8.RecurrentAlgorithmConfig` that are no numbers, such as
            ``model_cls``, ``distribution_cls``, ``optimizer_cls`` and schedules.
        options: options of :class:`RL8RecurrentPPOConfig`, which win over ``config``.

    Raises:
        ConfigError: ``env`` is none of these, or an option is out of range.
        SpaceError: the env's spaces have no tensors of one shape.
    """

    name: ClassVar[str] = "rl8_recurrent_ppo"
    config_class: ClassVar[type[Config]] = RL8RecurrentPPOConfig
    config: RL8RecurrentPPOConfig

    def __init__(
        self,
        env: Any,
        *,
        config: RL8RecurrentPPOConfig | Mapping[str, Any] | str | Path | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
        agent: RecurrentAlgorithm | None = None,
        parts: Mapping[str, Any] | None = None,
        **options: Unpack[RL8RecurrentPPOOptions],
    ) -> None:
        resolved = resolve_config(RL8RecurrentPPOConfig, config, **options)
        resolved = running.fit_to_env(resolved, env)
        env_cls = running.find_env(env, resolved)
        super().__init__(env, config=resolved, callbacks=callbacks, logger=logger)
        self.random = partial(self.streams.as_global, "rl8")
        if agent is None:
            with self.random():
                agent = agent_config(RecurrentAlgorithmConfig, self.config, parts).build(env_cls)
            agent.random = self.random
        self.agent = agent
        if isinstance(agent.env, VecTensorEnv):
            self.resources.callback(agent.env.close)
        self.env_cls = env_cls
        self.env_config: dict[str, Any] | None = None
        """Passed to the env at its next reset."""
        self.last_stats: dict[str, float] = {}
        """Statistics of the last iteration under the names of :class:`rlox_rl8.Trainer`."""
        self.optimizers = {"policy": agent.flat}  # type: ignore[dict-item]

    def iterate(self, hooks: Hooks) -> running.RL8Metrics:
        """Collect one horizon, then learn from it."""
        metrics, self.last_stats = running.iterate(self.agent, self.env_config, hooks)
        return metrics

    def predict(
        self,
        obs: npt.ArrayLike,
        deterministic: bool = True,
        *,
        state: Any = UNSET,
        episode_start: npt.ArrayLike | None = None,
    ) -> Any:
        """Return actions for observations; see :func:`rlox_rl8.acting.predict`."""
        return acting.predict(
            self.agent, obs, deterministic, self.streams, state=state, episode_start=episode_start
        )

    def policy_data(self) -> PolicyData:
        """Return the policy as data; see :class:`rlox.deployment.Exportable`."""
        return describe_policy(self.name, self.agent)

    def run_episodes(
        self,
        env: Any = None,
        *,
        n_episodes: int = 10,
        deterministic: bool = True,
        seed: int | None = None,
        max_steps: int = MAX_STEPS,
    ) -> EvaluationResult:
        """Run ``n_episodes`` copies from one reset to the next without learning.

        Args:
            env: a class of envs; ``None`` takes the training's.
            n_episodes: copies, one episode each.
            deterministic: act with the mode of the policy.
            seed: fixes all draws; ``None`` takes the run's.
            max_steps: of an episode that ends by itself; the horizon bounds others.
        """
        if self.agent.env.episodes_end:
            return super().run_episodes(
                env,
                n_episodes=n_episodes,
                deterministic=deterministic,
                seed=seed,
                max_steps=max_steps,
            )
        return acting.evaluate(
            self.agent,
            self.env_cls if env is None else running.find_env(env, self.config),
            n_episodes=n_episodes,
            deterministic=deterministic,
            seed=self.streams.seeds("evaluation", 1)[0] if seed is None else seed,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return policy, optimiser, schedules, the storage and the env's state."""
        return running.state_of(self.agent)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        running.load_state(self.agent, state)
