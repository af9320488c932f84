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
from rlox.errors import ConfigError
from rlox.learners import Objective, RolloutTask, Update, choose_learner
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
        algorithm: its base has been initialised.
        policy: see :class:`rlox.rollouts.actor_critic.ActorCritic`.
        objective: with the numbers of the first iteration.
        update: from a rollout, in torch.

    Raises:
        ConfigError: an option needs several agents.
    """

    def __init__(self, algorithm: Any, policy: Any, objective: Objective, update: Update) -> None:
        cfg = algorithm.config
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
        self._algorithm = algorithm
        adam = partial(torch.optim.Adam, eps=cfg.adam_eps, fused=True)
        self.agent = make_agent(algorithm, adam, policy)
        self.policies = {"policy": self.agent.policy}
        self.collector = self.agent.collector
        task = RolloutTask(
            objective,
            self.agent.policy,
            self.agent.optimizer,
            self.collector,
            update,
            self.agent.device,
            n_epochs=cfg.n_epochs,
            batch_size=cfg.batch_size,
            target_kl=cfg.target_kl,
            generator=algorithm.streams.torch("minibatches"),
            actions=algorithm.streams.numpy("native actions"),
            added_losses=algorithm.added_losses,
        )
        algorithm.learner = choose_learner(cfg.backend, task)
        self.agent.mode = algorithm.learner.mode

    def collect(self, hooks: Hooks) -> RolloutBatch:
        """Return a rollout with advantages."""
        cfg = self._algorithm.config
        unroll = self._algorithm.learner.collect(cfg.n_steps, hooks)
        return estimate_advantages(unroll, self.agent.policy, cfg.gamma, cfg.gae_lambda)

    def update(
        self,
        batch: RolloutBatch,
        objective: Objective,
        rates: Mapping[str, float],
        hooks: Hooks,
    ) -> dict[str, float]:
        """Learn from a rollout and return the means of the loss's terms."""
        terms: dict[str, float] = self._algorithm.learner.update(
            batch, objective, rates["learning_rate"], hooks
        )
        return {**terms, "explained_variance": batch.explained_variance()}

    def agent_metrics(self) -> dict[str, float]:
        """Return nothing: the one agent's return is the env's."""
        return {}

    def optional_metrics(self) -> dict[str, float]:
        """Return nothing: there is nobody to play."""
        return {}

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
        from rlox.errors import EnvError

        raise EnvError(
            "the policy is of one agent and the env has several; evaluate it on an env of one agent"
        )

    def policy_data(self) -> PolicyData:
        """Return the policy as data; see :class:`rlox.deployment.Exportable`."""
        return self.agent.policy_data(self._algorithm.name)

    def state_dict(self) -> dict[str, Any]:
        """Return policy, optimiser and collector."""
        return self.agent.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore policy, optimiser and collector."""
        self.agent.load_state_dict(state)
