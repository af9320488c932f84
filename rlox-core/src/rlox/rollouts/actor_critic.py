"""On-policy actor-critics: a policy, its envs and its optimiser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal, Protocol

import gymnasium
import numpy.typing as npt
from torch import nn

from rlox.batches.rollout import RolloutBatch
from rlox.config.composition import Selection, selection
from rlox.config.model import UNSET
from rlox.deployment import PolicyData
from rlox.envs.gymnasium import Vectorization
from rlox.envs.running import EpisodeStatistics
from rlox.networks.actor_critics import make_policy
from rlox.networks.predict import Mode, predict, predict_with_memory
from rlox.networks.validate import require_actor, try_actor
from rlox.nn import (
    EncoderKind,
    FlatOptimizer,
    find_device,
    layer_data,
    load_module_state,
    module_state,
    set_compute_dtype,
    torch_threads,
)
from rlox.preprocessing import Preprocessor
from rlox.protocols import RecurrentActor, VecEnv
from rlox.rollouts.algorithm import PolicyMaker
from rlox.rollouts.collector import RolloutCollector
from rlox.seeding import SeedStreams
from rlox.spaces import ActionRows, remembered
from rlox.training.hooks import Hooks

__all__ = [
    "ActorCritic",
    "Collector",
    "make_agent",
]


class Collector(Protocol):
    """What steps the envs, as :class:`rlox.rollouts.collector.RolloutCollector` does."""

    env: VecEnv
    statistics: EpisodeStatistics
    observation_space: gymnasium.Space[Any]
    preprocessor: Preprocessor | None

    def collect(
        self, policy: Any, n_steps: int, on_step: Callable[[int], None] | None = None
    ) -> RolloutBatch:
        """Step every env ``n_steps`` times and call ``on_step`` after each."""

    def close(self) -> None:
        """Free the envs."""

    def state_dict(self) -> dict[str, Any]:
        """Return all that decides how the envs go on."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""


class ActorCritic:
    """A policy with a value function, wired to N envs and an optimiser.

    Args:
        env: a gymnasium id, a callable that makes an env, an env or a vector env.
        streams: the run's random streams.
        make_optimizer: see :class:`rlox.nn.FlatOptimizer`.
        policy: a ``torch.nn.Module`` with the methods of :class:`rlox.protocols.OnPolicyActor` or
            of :class:`rlox.protocols.RecurrentActor`, or a callable that makes one from the
            observation space and the action space of one env; if it has an attribute ``generator``
            that is ``None``, it gets the run's stream to draw from.
            ``None`` makes networks that fit.
        collector: steps the envs; ``None``: a
            :class:`rlox.rollouts.collector.RolloutCollector` of ``env``.
        hidden: width of the default policies' two hidden layers.
        network: how the default policies see boxes; see :data:`rlox.nn.EncoderKind`.
        recurrent: kind of the default policies' memory, ``"none"``, ``"lstm"`` or ``"gru"``.
        memory_size: units of the memory.
        normalize_observations: see :class:`rlox.rollouts.collector.RolloutCollector`.
        normalize_rewards: see there.
        clip_rewards: see there.
        frame_stack: see there.
        seq_len: see there.
        max_grad_norm: bound of the gradient's Euclidean norm.
        n_envs: number of envs N.
        gamma: discount in [0, 1].
        gae_lambda: trace decay λ in [0, 1].
        env_backend: env backend for ids; ``"auto"`` takes the fastest that has the id.
        vectorization: for gymnasium envs, ``"sync"`` or ``"async"``.
        env_kwargs: arguments of ``gymnasium.make`` or of the env backend.
        device: torch device of policy and batches.
        threads: torch threads while acting; ``None`` leaves torch's setting.

    Raises:
        ConfigError: there is no such device, or ``policy`` fails on observations of the env or
            returns other shapes.
        EnvError: the env cannot be built.
        SpaceError: the env's spaces need a ``policy`` of your own.
        TypeError: ``policy`` is no module, or lacks a method.
    """

    def __init__(
        self,
        env: Any,
        streams: SeedStreams,
        make_optimizer: partial[Any],
        *,
        policy: nn.Module | PolicyMaker | None = None,
        collector: Collector | None = None,
        hidden: int = 64,
        network: EncoderKind = "auto",
        recurrent: Literal["none", "lstm", "gru"] = "none",
        memory_size: int = 64,
        normalize_observations: bool = False,
        normalize_rewards: bool = False,
        clip_rewards: float | None = None,
        frame_stack: int = 1,
        seq_len: int | None = None,
        max_grad_norm: float = 0.5,
        n_envs: int | None = None,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        env_backend: str | Selection = "auto",
        vectorization: Vectorization = "sync",
        env_kwargs: Mapping[str, Any] | None = None,
        device: str = "cpu",
        threads: int | None = 1,
    ) -> None:
        if policy is not None and (isinstance(policy, nn.Module) or not callable(policy)):
            require_actor(policy)
        self.device = find_device(device)
        self.threads = threads
        self._streams = streams
        self.collector: Collector = collector or RolloutCollector(
            env,
            n_envs=n_envs,
            seed=streams.seeds("envs", 1)[0],
            device=self.device,
            gamma=gamma,
            gae_lambda=gae_lambda,
            backend=env_backend,
            vectorization=vectorization,
            env_kwargs=env_kwargs,
            normalize_observations=normalize_observations,
            normalize_rewards=normalize_rewards,
            clip_rewards=clip_rewards,
            frame_stack=frame_stack,
            seq_len=seq_len,
        )
        with ExitStack() as made:  # the envs are closed if the rest fails
            made.callback(self.collector.close)
            own = policy is not None
            if policy is None:
                policy = partial(
                    make_policy,
                    hidden=hidden,
                    network=network,
                    recurrent=recurrent,
                    memory_size=memory_size,
                    generator=streams.torch("policy"),
                )
            spaces = self.collector.observation_space, self.collector.env.action_space
            self.policy: Any = policy if isinstance(policy, nn.Module) else policy(*spaces)
            require_actor(self.policy)
            if getattr(self.policy, "generator", ...) is None:
                setattr(self.policy, "generator", streams.torch("policy"))  # noqa: B010
            self.policy.to(self.device)
            if own:
                try_actor(self.policy, *spaces, self.device)
            self.mode: Mode | None = None  # a learner's, if it is faster than the policy
            # asked once: the protocol's answer takes a sixth of a prediction
            self._has_memory = isinstance(self.policy, RecurrentActor)
            self.optimizer = FlatOptimizer(self.policy, make_optimizer, max_grad_norm=max_grad_norm)
            made.pop_all()

    def collect(self, n_steps: int, hooks: Hooks) -> RolloutBatch:
        """Step every env ``n_steps`` times; see ``RolloutCollector.collect``.

        Args:
            n_steps: steps T per env.
            hooks: called after every vector step, and at the rollout's end.
        """
        batch = self.collector.collect(self.policy, n_steps, hooks.env_step)
        hooks.rollout_end(batch)
        return batch

    def predict(
        self,
        obs: Any,
        deterministic: bool = True,
        *,
        state: Any = UNSET,
        episode_start: npt.ArrayLike | None = None,
        action_masks: npt.ArrayLike | None = None,
    ) -> Any:
        """Return an action for one observation, or actions for a batch.

        Args:
            obs: one observation or a batch (B, *shape), nested as the observation space is.
            deterministic: the mode of the action distribution rather than a sample.
            state: what is remembered of the episodes, frames and the policy's memory: what this
                method returned with the last actions, none at the beginning. If it is left out,
                each observation is an episode's first.
            episode_start: bool or (B,) bools, whether an episode begins with the observation, of
                which nothing is remembered; ``None`` forgets nothing.
            action_masks: (mask_size,) or (B, mask_size), see ``predict``; ``None`` masks nothing.

        Returns:
            The action or actions, see :func:`rlox.networks.predict.predict`; if ``state`` is given,
            a pair of them and the next state, ``None`` if there is nothing to remember.
        """
        env, preprocessor = self.collector.env, self.collector.preprocessor
        following: dict[str, Any] = {}
        before = {} if state is UNSET else remembered(state)

        def preprocess(batch: Any) -> Any:
            assert preprocessor is not None
            seen = preprocessor.see(batch, before.get("frames"), episode_start)
            if preprocessor.has_frames:
                following["frames"] = seen
            return seen

        common: dict[str, Any] = {
            "action_masks": action_masks,
            "preprocess": None if preprocessor is None else preprocess,
            "generator": self._streams.torch("predict"),
            "device": self.device,
        }
        asked = (self.policy, env.observation_space, env.action_space, obs, deterministic)
        with torch_threads(self.threads):
            if self._has_memory:
                actions, following["memory"] = predict_with_memory(
                    *asked, state=before.get("memory"), episode_start=episode_start, **common
                )
            else:
                actions = predict(*asked, **common, mode=self.mode)
        return actions if state is UNSET else (actions, following or None)

    def policy_data(self, algorithm: str) -> PolicyData:
        """Return the policy as data; see :class:`rlox.deployment.Exportable`.

        Args:
            algorithm: registered name of what trained it.
        """
        env = self.collector.env
        return PolicyData(
            algorithm=algorithm,
            observation_space=env.observation_space,
            action_space=env.action_space,
            network=layer_data(self.policy),
            preprocessor=self.collector.preprocessor,
            takes_masks=ActionRows(env.action_space).mask_size > 0,
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


def make_agent(
    algorithm: Any,
    make_optimizer: partial[Any],
    policy: nn.Module | PolicyMaker | None,
    collector: Collector | None = None,
) -> ActorCritic:
    """Return the actor-critic of an algorithm's env and config; the algorithm's close frees it.

    The algorithm gets its optimiser.

    Args:
        algorithm: a :class:`rlox.Algorithm` whose base has been initialised; its config has the
            fields read below.
        make_optimizer: see :class:`rlox.nn.FlatOptimizer`.
        policy: see :class:`rlox.rollouts.actor_critic.ActorCritic`.
        collector: see :class:`rlox.rollouts.actor_critic.ActorCritic`.
    """
    cfg = algorithm.config
    agent = ActorCritic(
        algorithm.env_source,
        algorithm.streams,
        make_optimizer,
        policy=policy,
        collector=collector,
        hidden=cfg.hidden,
        network=cfg.network,
        recurrent=cfg.recurrent,
        memory_size=cfg.memory_size,
        normalize_observations=cfg.normalize_observations,
        normalize_rewards=cfg.normalize_rewards,
        clip_rewards=cfg.clip_rewards,
        frame_stack=cfg.frame_stack,
        seq_len=getattr(cfg, "seq_len", None),
        max_grad_norm=cfg.max_grad_norm,
        n_envs=cfg.n_envs,
        gamma=cfg.gamma,
        gae_lambda=cfg.gae_lambda,
        env_backend=selection(cfg, "env_backend"),
        vectorization=cfg.vectorization,
        env_kwargs=cfg.env_kwargs,
        device=cfg.device,
        threads=cfg.torch_threads,
    )
    algorithm.resources.callback(agent.close)
    set_compute_dtype(agent.policy, cfg.compute_dtype)
    algorithm.optimizers = {"policy": agent.optimizer}
    return agent
