"""Soft Q-learning of discrete actions (Haarnoja et al. 2017, eq. 3 to 5; arXiv 1702.08165).

Each gradient step takes a batch from the replay buffer and a step down the gradient of

    mean over the batch of w (Q(s, a) - y)²,    y = r + γ α log Σ over a' of exp(Q'(s', a') / α)

and moves the target Q' towards Q. Actions are drawn from the softmax of Q / α.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch
from gymnasium import spaces
from rlox.batches.transitions import TransitionBatch
from rlox.learners.transitions import Parts, ReplayObjective, StepResult
from rlox.networks import polyak_update
from rlox.networks.policies import make_q_network
from rlox.nn.distributions import Categorical
from rlox.replay.algorithm import Network, ReplayAlgorithm
from torch import Tensor

from rlox_soft_q.configs import SoftQConfig


@dataclass(frozen=True)
class SoftQLearning(ReplayObjective):
    """Q towards the soft value of the next state."""

    alpha: float
    """Temperature α."""
    tau: float
    """Share of the network in each update of the target."""

    def learn(self, parts: Parts, batch: TransitionBatch, learning_rate: float) -> StepResult:
        """Take a gradient step of the network, and move the target."""
        with torch.no_grad():
            next_q = parts.network_target(batch.next_obs)
            next_values = self.alpha * (next_q / self.alpha).logsumexp(-1)
            targets = batch.rewards + batch.discounts * next_values
        q = parts.network(batch.obs).gather(-1, batch.actions).squeeze(-1)
        errors = q - targets
        loss = (batch.weights * errors.square()).mean()
        loss = parts.minimize("network", loss, batch, learning_rate)
        polyak_update(parts.network, parts.network_target, self.tau)
        return StepResult({"q_loss": loss, "q_value": q.detach().mean()}, errors.detach())

    def act(self, parts: Parts, obs: Any) -> Tensor:
        """Return samples (N,) of the softmax of Q / α."""
        return Categorical(parts.network(obs) / self.alpha).sample(parts.stream("actions"))[0]

    def mode(self, parts: Parts, obs: Any) -> Tensor:
        """Return the actions (N,) of the highest values."""
        return parts.network(obs).argmax(-1)  # type: ignore[no-any-return]


@final
class SoftQ(ReplayAlgorithm):
    """Soft Q-learning for discrete actions."""

    name = "soft_q"
    config_class = SoftQConfig
    objective_class = SoftQLearning
    acts_in = spaces.Discrete
    own_networks = targets = ("network",)
    arguments = ("env_id", "n_envs", "seed", "network", "buffer", "logger", "callbacks")

    def make_networks(self, space: Any, size: int, **sizes: Any) -> dict[str, Network]:
        """Return the action values."""
        return {"network": Network(partial(make_q_network, space, size, dueling=False, **sizes))}
