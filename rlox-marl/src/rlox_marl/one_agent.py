"""One agent in the place of a team: PPO, in core's frame of rollouts."""

from __future__ import annotations

from typing import Any, NoReturn

from rlox.config.model import changed
from rlox.errors import ConfigError, EnvError
from rlox.losses import ClippedSurrogate
from rlox.rollouts import RolloutAlgorithm
from rlox.training.hooks import Hooks

__all__ = ["become_one_agent"]

TEAM_OPTIONS = (
    "share_parameters", "team_reward", "normalize_values", "huber_delta", "critic_learning_rate",
    "opponents",
)  # fmt: skip
"""The options that say something about several agents, or that PPO does not have."""

TAKEN = (
    "streams", "collector", "optimizers", "learner", "added_losses", "schedules", "iterate",
    "predict", "predict_team", "policy_data", "state_dict", "load_state_dict",
)  # fmt: skip
"""What a team's algorithm takes over from that of its one agent."""


def become_one_agent(algorithm: Any, **given: Any) -> None:
    """Let an algorithm of teams do what PPO does, bit for bit and with any learner backend.

    Args:
        algorithm: its base has been initialised.
        given: the constructor's ``policy``, ``schedules``, ``objective`` and ``added_losses``.

    Raises:
        ConfigError: an option needs several agents.
    """
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

    class OneAgent(RolloutAlgorithm):
        name, config_class = algorithm.name, algorithm.config_class
        objective_class, metrics_class = ClippedSurrogate, algorithm.metrics_class

        def rollout(self, hooks: Hooks) -> Any:
            batch, seen = super().rollout(hooks)
            return batch, {**seen, "agents": {}, "optional": {}}

        def predict(
            self, obs: Any, deterministic: bool = True, agent_idx: Any = 0, **memory: Any
        ) -> Any:
            if agent_idx != 0:
                raise ValueError(f"agent_idx must be 0 for an env of one agent, got {agent_idx!r}")
            return super().predict(obs, deterministic, **memory)

        def predict_team(self, obs: Any, deterministic: bool = True, **memory: Any) -> NoReturn:
            raise EnvError(
                "the policy is of one agent and the env has several; evaluate it on an env of one "
                "agent"
            )

    one = OneAgent(algorithm.env_source, config=cfg, **given)
    algorithm.resources.callback(one.close)
    one.clock = algorithm.clock
    vars(algorithm).update({name: getattr(one, name) for name in TAKEN})
    algorithm.policies = {"policy": one.policy}
