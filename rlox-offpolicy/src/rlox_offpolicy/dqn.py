"""Deep Q-learning (Mnih et al. 2015, algorithm 1).

ε-greedy env steps go into a replay buffer; each gradient step takes a batch from it and moves down
the gradient of

    L = mean over the batch of w Huber(Q(s, a) - y),    y = r + γ max over a of Q'(s', a)

where Q' is a target copy of Q, and γ is 0 where the task ended.

Deviations from the paper:
    1. options set the number of env steps between updates, and of gradient steps per update;
    2. Adam instead of RMSprop, and the gradient's norm is clipped;
    3. optional, all of Rainbow (Hessel et al. 2018): double Q-learning, y = r + γ Q'(s', argmax
       over a of Q(s', a)) (van Hasselt et al. 2016), dueling networks (Wang et al. 2016),
       prioritized replay with its weights w (Schaul et al. 2016; w = 1 otherwise), n-step targets
       Σ γⁱ r_i + γᵏ max Q' (Sutton 1988), noisy networks (Fortunato et al. 2018) and, instead of
       Q alone, the distribution of returns with mean Q: C51 (Bellemare et al. 2017) or QR-DQN
       (Dabney et al. 2018);
    4. values are bootstrapped from the true final observation where an episode is truncated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, final

import torch
import torch.nn.functional as F  # noqa: N812  # the field's name for it
from gymnasium import spaces
from rlox.batches.transitions import TransitionBatch
from rlox.config.model import UNSET
from rlox.errors import ConfigError
from rlox.learners.transitions import Parts, ReplayObjective, StepResult
from rlox.losses import make_objective
from rlox.networks import polyak_update
from rlox.networks.policies import make_q_network
from rlox.networks.validate import B
from rlox.nn import FlatOptimizer, NoisyLinear, draw_noise, set_compute_dtype, silence
from rlox.nn.layer_data import LayerData, array, chain
from rlox.replay.algorithm import Network, Outputs, ReplayAlgorithm, ReplayMetrics
from torch import Tensor, nn

from rlox_offpolicy.configs import DQNConfig
from rlox_offpolicy.targets import (
    at_actions,
    categorical_projection,
    quantile_huber_loss,
    td_targets,
)

if TYPE_CHECKING:
    from rlox_offpolicy.option_types import DQNArguments, Unpack


@dataclass(frozen=True, kw_only=True)
class DQNMetrics(ReplayMetrics):
    """Metrics of DQN."""

    epsilon: float
    """Probability of a uniform action."""


@dataclass(frozen=True, kw_only=True)
class QLearning(ReplayObjective):
    """Moves Q(s, a) towards r + γ max over a' of Q'(s', a'); networks return Q(s, ·), (B, A)."""

    double: bool = False
    """Whether the network chooses the action that the target network evaluates (van Hasselt et al.
    2016)."""
    loss: Literal["huber", "mse"] = "huber"
    """Loss of the TD errors; huber is linear beyond 1 (Mnih et al. 2015, methods)."""
    noisy: bool = False
    """Whether the network has noise, redrawn for each forward pass (Fortunato et al. 2018)."""
    tau: float = 1.0
    """Share of the network in each update of the target; 1: a copy."""
    target_update_interval: int = 1
    """Gradient steps between those updates."""

    def due(self, gradient_step: int) -> tuple[str, ...]:
        """Return the gradient step and, once per interval, the target update."""
        rests = gradient_step % self.target_update_interval
        return ("learn",) if rests else ("learn", "move_target")

    def learn(self, parts: Parts, batch: TransitionBatch, learning_rate: float) -> StepResult:
        """Take a gradient step of the network."""
        with torch.no_grad():
            judged = chooser = self.outputs(parts, parts.network_target, batch.next_obs)
            if self.double:
                chooser = self.outputs(parts, parts.network, batch.next_obs)
            next_actions = self.values(chooser).argmax(-1, keepdim=True)
            next_outputs = at_actions(judged, next_actions)
            targets = self.targets(next_outputs, batch.rewards, batch.discounts)
        outputs = at_actions(self.outputs(parts, parts.network, batch.obs), batch.actions)
        losses, errors = self.losses(outputs, targets)
        loss = parts.minimize("network", (batch.weights * losses).mean(), batch, learning_rate)
        terms = {"q_loss": loss, "q_value": self.values(outputs.detach()).mean()}
        return StepResult(terms, errors.detach())

    def move_target(self, parts: Parts, batch: TransitionBatch, rate: float) -> StepResult:
        """Move the target network."""
        polyak_update(parts.network, parts.network_target, self.tau)
        return StepResult({})

    def act(self, parts: Parts, obs: Any) -> Tensor:
        """Return the highest-valued actions (N,), with noise if the network has it."""
        return self.values(self.outputs(parts, parts.network, obs)).argmax(-1)

    def mode(self, parts: Parts, obs: Any) -> Tensor:
        """Return the highest-valued actions (N,), without noise."""
        if self.noisy:
            silence(parts.network)
        return self.values(parts.network(obs)).argmax(-1)

    def outputs(self, parts: Parts, network: Any, obs: Any) -> Tensor:
        """Return a network's outputs, with new noise if it has any."""
        if self.noisy:
            draw_noise(network, parts.stream("noise"))
        return network(obs)  # type: ignore[no-any-return]

    n_atoms = None
    """Outputs n per action; ``None`` for a single value."""

    def values(self, outputs: Tensor) -> Tensor:
        """Return the expected returns for outputs (..., n)."""
        return outputs

    def layer_data(self) -> LayerData:
        """Describe :meth:`values`; see :mod:`rlox.nn.layer_data`."""
        return chain()

    def targets(self, next_outputs: Tensor, rewards: Tensor, discounts: Tensor) -> Tensor:
        """Return the learning targets.

        Args:
            next_outputs: (B, n) target network outputs for the action chosen in s'.
            rewards: (B,)
            discounts: (B,)
        """
        return td_targets(rewards, discounts, next_outputs)

    def losses(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return losses (B,), and errors (B,), whose magnitudes are priorities.

        Args:
            outputs: (B, n) outputs of the trained network for the taken action.
            targets: result of :meth:`targets`.
        """
        loss = F.smooth_l1_loss if self.loss == "huber" else F.mse_loss
        return loss(outputs, targets, reduction="none"), outputs - targets


@dataclass(frozen=True, kw_only=True)
class CategoricalQLearning(QLearning):
    """C51 (Bellemare et al. 2017, algorithm 1): the outputs are logits of atoms, (B, A, n)."""

    v_min: float
    """Return of the lowest atom."""
    v_max: float
    """Return of the highest atom."""
    n_atoms: int = 51  # type: ignore[assignment]
    """Number of atoms n."""

    def support(self, device: Any = None) -> Tensor:
        """Return the atoms' returns (n,)."""
        return torch.linspace(self.v_min, self.v_max, self.n_atoms, device=device)

    def values(self, outputs: Tensor) -> Tensor:
        """Return Σ p_i z_i."""
        return outputs.softmax(-1) @ self.support(outputs.device)

    def layer_data(self) -> LayerData:
        """Describe :meth:`values`; see :mod:`rlox.nn.layer_data`."""
        return {"layer": "expected", "support": array(self.support())}

    def targets(self, next_outputs: Tensor, rewards: Tensor, discounts: Tensor) -> Tensor:
        """Return the projected probabilities (B, n) of r + γ Z(s')."""
        support = self.support(rewards.device)
        return categorical_projection(next_outputs.softmax(-1), rewards, discounts, support)

    def losses(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return KL(target, prediction) as losses and errors.

        Its gradient equals that of the paper's cross-entropy; as priorities: Hessel et al. 2018.
        """
        losses = F.kl_div(outputs.log_softmax(-1), targets, reduction="none").sum(-1)
        return losses, losses


@dataclass(frozen=True, kw_only=True)
class QuantileQLearning(QLearning):
    """QR-DQN (Dabney et al. 2018, algorithm 1): the outputs are quantiles of returns, (B, A, n)."""

    n_atoms: int = 200  # type: ignore[assignment]
    """Number of quantiles n, at the midpoints (i - ½)/n."""

    def values(self, outputs: Tensor) -> Tensor:
        """Return the mean of the quantiles."""
        return outputs.mean(-1)

    def layer_data(self) -> LayerData:
        """Describe :meth:`values`; see :mod:`rlox.nn.layer_data`."""
        return {"layer": "mean"}

    def targets(self, next_outputs: Tensor, rewards: Tensor, discounts: Tensor) -> Tensor:
        """Return r + γ θ'_j, (B, n)."""
        return td_targets(rewards.unsqueeze(-1), discounts.unsqueeze(-1), next_outputs)

    def losses(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the quantile Huber losses as losses and errors."""
        losses = quantile_huber_loss(outputs, targets)
        return losses, losses


@final
class DQN(ReplayAlgorithm):
    """Deep Q-learning for discrete actions.

    Args:
        network: a ``torch.nn.Module`` from observations (B, *shape) to action values (B, A), or,
            with ``distributional``, to (B, A, n) logits of atoms or quantiles; with ``noisy``, it
            needs :class:`rlox.nn.NoisyLinear` layers.
        prioritized: short for ``buffer="prioritized"``.
    """

    name = "dqn"
    config_class = DQNConfig
    metrics_class = DQNMetrics
    acts_in = spaces.Discrete
    own_networks = targets = ("network",)
    arguments = (
        "env_id", "n_envs", "seed", "network", "buffer", "prioritized", "logger", "callbacks",
    )  # fmt: skip
    if TYPE_CHECKING:

        def __init__(self, env_id: Any, *given: Any, **options: Unpack[DQNArguments]) -> None: ...

    @staticmethod
    def renamed(options: dict[str, Any]) -> dict[str, Any]:
        """Return the options with ``prioritized`` turned into a buffer name."""
        if not options.pop("prioritized", False):
            return options
        buffer = options.get("buffer", UNSET)
        if buffer is not UNSET:
            raise ConfigError(f"prioritized=True names a buffer, and so does buffer={buffer!r}")
        return {**options, "buffer": "prioritized"}

    @property
    def prioritized(self) -> bool:
        """Whether the buffer samples by priority."""
        return bool(self.config.buffer == "prioritized")

    def make_networks(self, space: Any, size: int, **sizes: Any) -> dict[str, Network]:
        """Return the network of action values or return distributions."""
        cfg = self.config
        n_atoms = self.make_objective(size).n_atoms
        network = partial(
            make_q_network,
            space,
            size,
            dueling=cfg.dueling,
            n_atoms=n_atoms,
            noisy_std=cfg.noisy_std if cfg.noisy else None,
            **sizes,
        )
        atoms = () if n_atoms is None else (n_atoms,)
        return {"network": Network(network, (Outputs(((B, size, *atoms),)),))}

    def prepare(self, name: str, network: nn.Module) -> None:
        """Set the network's compute dtype, and check for noisy layers."""
        set_compute_dtype(network, self.config.compute_dtype)
        if self.config.noisy and not any(isinstance(m, NoisyLinear) for m in network.modules()):
            raise ConfigError(
                "noisy=True needs a network with layers rlox.nn.NoisyLinear, and yours has "
                "none; give it some or leave noisy out"
            )

    def make_optimizer(self, name: str, network: nn.Module, **options: Any) -> FlatOptimizer:
        """Return Adam with a bound of the gradient norm."""
        return super().make_optimizer(name, network, max_grad_norm=self.config.max_grad_norm)

    def make_objective(self, size: int) -> QLearning:
        """Return the objective, for values or for distributions."""
        cfg = self.config
        if cfg.distributional == "qr-dqn":
            numbers = {"double": cfg.double_dqn, "n_atoms": cfg.n_quantiles}
            return make_objective(QuantileQLearning, cfg, numbers)
        kind = CategoricalQLearning if cfg.distributional == "c51" else QLearning
        return make_objective(kind, cfg, {"double": cfg.double_dqn})

    def exported(self) -> tuple[Any, ...]:
        """Return the network without noise, and the layer that turns its outputs into values."""
        silence(self.network)
        return self.network, self.objective.layer_data()
