"""One agent's learning: PPO, with the parts that PPO has."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from rlox.batches import estimate_advantages
from rlox.batches.rollout import RolloutBatch
from rlox.config.model import changed
from rlox.deployment import PolicyData
from rlox.errors import ConfigError, EnvError
from rlox.rollouts import make_agent
from rlox.training.hooks import Hooks

__all__ = ["OneAgent"]

TEAM_OPTIONS = (
    "share_parameters", "team_reward", "normalize_values", "huber_delta", "critic_learning_rate",
    "opponents",
)  # fmt: skip
"""The options that say something about several agents, or that PPO does not have."""


class OneAgent:
    """Collects, learns and predicts for an env of one agent.

    Args:
        algorithm: it gets the policy.
        policy: see :class:`rlox.rollouts.actor_critic.ActorCritic`.

    Raises:
        ConfigError: an option needs several agents.
    """

    def __init__(self, algorithm: Any, policy: Any) -> None:
        cfg = algorithm.config
        if cfg.n_agents not in (None, 1):
            raise ConfigError(
                f"n_agents is {cfg.n_agents}, but the env has one agent; pass a PettingZoo env, or "
                "leave n_agents out"
            )
        cfg.replace(n_agents=1)  # raises if a minibatch does not fit the rollout of one agent
        for name in TEAM_OPTIONS:
            if changed(cfg, name):
                raise ConfigError(
                    f"{name}={getattr(cfg, name)!r} needs an env of several agents; leave it out "
                    "for one agent, whose training is PPO's"
                )
        if cfg.critic not in ("auto", "local"):
            raise ConfigError(
                f"critic='{cfg.critic}' needs an env of several agents; one agent's critic sees "
                "what the agent sees, so leave it out"
            )
        self._algorithm, self.actor = algorithm, self
        adam = partial(torch.optim.Adam, eps=cfg.adam_eps, fused=True)
        self.agent = agent = make_agent(algorithm, adam, policy)
        self.collector = agent.collector
        actions = algorithm.streams.numpy("native actions")
        learner = algorithm.add_policy(
            "policy", agent.policy, agent.optimizer, collector=agent.collector, actions=actions
        )
        agent.mode = learner.mode

    def collect(self, hooks: Hooks) -> dict[str, RolloutBatch]:
        """Return a rollout with advantages."""
        cfg = self._algorithm.config
        unroll = self._algorithm.learner.collect(cfg.n_steps, hooks)
        batch = estimate_advantages(unroll, self.agent.policy, cfg.gamma, cfg.gae_lambda)
        hooks.rollout_end(batch)
        return {"policy": batch}

    def metrics(self) -> dict[str, Any]:
        """Return nothing: the one agent's return is the env's, and there is nobody to play."""
        return {"agents": {}, "optional": {}}

    def predict(self, obs: Any, deterministic: bool, agent_idx: Any, **memory: Any) -> Any:
        """Return an action for one observation, or actions for a batch.

        Raises:
            ValueError: there is no agent of that number.
        """
        if agent_idx != 0:
            raise ValueError(f"agent_idx must be 0 for an env of one agent, got {agent_idx!r}")
        return self.agent.predict(obs, deterministic, **memory)

    def predict_team(self, obs: Any, deterministic: bool = True, **memory: Any) -> Any:
        """Refuse: one agent is no team.

        Raises:
            EnvError: always.
        """
        raise EnvError(
            "the policy is of one agent and the env has several; evaluate it on an env of one agent"
        )

    def policy_data(self, algorithm: str) -> PolicyData:
        """Return the policy as data; see :class:`rlox.deployment.Exportable`."""
        return self.agent.policy_data(algorithm)

    def state_dict(self) -> dict[str, Any]:
        """Return policy, optimiser and collector."""
        return self.agent.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore policy, optimiser and collector."""
        self.agent.load_state_dict(state)
