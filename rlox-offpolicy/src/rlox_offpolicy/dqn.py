"""Deep Q-learning (Mnih et al. 2015, algorithm 1).

The envs are stepped ε-greedily into a replay buffer; each gradient step takes a batch of it and a
step down the gradient of

    L = mean over the batch of w Huber(Q(s, a) - y),    y = r + γ max over a of Q'(s', a)

where Q' is a target copy of Q, and γ is 0 where the task ended.

Deviations from the paper:
    1. several gradient steps follow several env steps, as both frequencies are options;
    2. Adam instead of RMSprop, and the gradient's norm is clipped;
    3. optional, all of Rainbow (Hessel et al. 2018): double Q-learning, y = r + γ Q'(s', argmax
       over a of Q(s', a)) (van Hasselt et al. 2016), dueling networks (Wang et al. 2016),
       prioritized replay with its weights w (Schaul et al. 2016; w = 1 otherwise), targets of
       several steps, Σ γⁱ r_i + γᵏ max Q' (Sutton 1988), noisy networks (Fortunato et al. 2018)
       and, in the place of Q, the distribution of returns whose mean it is: C51 (Bellemare et al.
       2017) or QR-DQN (Dabney et al. 2018);
    4. a value is bootstrapped from the true final observation if an episode was truncated.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
import numpy.typing as npt
import torch
from rlox.algorithm import Algorithm
from rlox.batches.transitions import TransitionBatch
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset
from rlox.config.schedules import Schedules
from rlox.deployment import PolicyData
from rlox.errors import ConfigError
from rlox.learners.terms import AddedLosses, Losses, QTerms, mean_terms
from rlox.learners.transitions import ChosenReplayLearner, Learn, Step, StepResult
from rlox.logging import LoggerCallback
from rlox.networks import polyak_update
from rlox.networks.defaults import make_q_network
from rlox.nn import (
    FlatOptimizer,
    NoisyLinear,
    draw_noise,
    load_parts_state,
    parts_state,
    set_compute_dtype,
    silence,
)
from rlox.training.hooks import Hooks
from torch import Tensor, nn

from rlox_offpolicy.action_values import make_action_values, make_objective
from rlox_offpolicy.building import make_learner, make_replay, require_discrete, resolve
from rlox_offpolicy.configs import DQNConfig
from rlox_offpolicy.exploration import EpsilonGreedy
from rlox_offpolicy.metrics import DQNMetrics, all_metrics
from rlox_offpolicy.own_networks import B, on_device, require_outputs
from rlox_offpolicy.targets import at_actions

if TYPE_CHECKING:
    from rlox_offpolicy.option_types import DQNOptions, Unpack

__all__ = ["DQN"]


@final
class DQN(Algorithm):
    """Deep Q-learning for discrete actions.

    Args:
        env_id: a gymnasium id, a callable that makes an env, an env or a vector env.
        n_envs: number of envs stepped together; an env that cannot be copied brings its own.
        seed: fixes every random draw; ``None`` draws one from entropy.
        network: a ``torch.nn.Module`` from observations (B, *shape) to action values (B, A), or to
            (B, A, n) logits of atoms or quantiles with ``distributional``; with ``noisy``, it has
            layers :class:`rlox.nn.NoisyLinear`. ``None`` makes one that fits the env's spaces.
        buffer: a registered name, or an object with the methods of
            :class:`rlox.protocols.ReplayBuffer`.
        prioritized: the introduction's word for ``buffer="prioritized"``.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training.
        config: a :class:`DQNConfig`, a mapping, or the path of a YAML or JSON file.
        schedules: callables ``env_steps -> value`` for ``learning_rate``, ``epsilon`` or
            ``priority_beta``; they win over the config and are not saved in checkpoints.
        added_losses: functions ``(module, batch) -> scalar`` by part, ``"network"``, that are added
            to the part's loss; see :mod:`rlox.learners.terms`.
        config_kwargs: options of :class:`DQNConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown or out of range.
        EnvError: the env cannot be built.
        SpaceError: the actions are not discrete, or the observations have no encoder.
    """

    name: ClassVar[str] = "dqn"
    config_class: ClassVar[type[Config]] = DQNConfig
    config: DQNConfig
    learner: ChosenReplayLearner
    added_losses: AddedLosses

    def __init__(
        self,
        env_id: Any,
        n_envs: int | Unset = UNSET,
        seed: int | Unset | None = UNSET,
        network: nn.Module | None = None,
        buffer: Any = UNSET,
        prioritized: bool = False,
        logger: LoggerCallback | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        *,
        config: DQNConfig | Mapping[str, Any] | str | Path | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        added_losses: Losses | None = None,
        **config_kwargs: Unpack[DQNOptions],
    ) -> None:
        if prioritized:
            if buffer is not UNSET:
                raise ConfigError(f"prioritized=True names a buffer, and so does buffer={buffer!r}")
            buffer = "prioritized"
        resolved, parts = resolve(
            DQNConfig, config, env_id, (network,), {"buffer": buffer},
            n_envs=n_envs, seed=seed, **config_kwargs,
        )  # fmt: skip
        super().__init__(env_id, config=resolved, callbacks=callbacks, logger=logger)
        cfg, self.own_parts = self.config, parts.given
        names = ("learning_rate", "epsilon", "priority_beta")
        self.schedules = Schedules(cfg.with_epsilon(), names, schedules)
        self.replay = make_replay(self, parts, self.schedules)
        env = self.replay.env
        self._n_actions = require_discrete(self.replay, "DQN")
        self.objective = make_objective(cfg)
        self.action_values = make_action_values(self.objective, self.replay.device)
        own = network or make_q_network(
            env.observation_space,
            self._n_actions,
            dueling=cfg.dueling,
            hidden=cfg.hidden,
            n_atoms=self.action_values.n_atoms,
            noisy_std=cfg.noisy_std if cfg.noisy else None,
            generator=self.streams.torch("policy"),
        )
        self.network: Any = on_device(own, "network", self.replay.device)
        set_compute_dtype(self.network, cfg.compute_dtype)
        if cfg.noisy and not any(isinstance(m, NoisyLinear) for m in self.network.modules()):
            raise ConfigError(
                "noisy=True needs a network with layers rlox.nn.NoisyLinear, and yours has "
                "none; give it some or leave noisy out"
            )
        if network is not None:
            n_atoms = self.action_values.n_atoms
            atoms = () if n_atoms is None else (n_atoms,)
            require_outputs(network, self.replay, "network", (B, self._n_actions, *atoms))
        self.target = copy.deepcopy(self.network).requires_grad_(False)
        adam = partial(torch.optim.Adam, eps=cfg.adam_eps, fused=True)
        self.optimizer = FlatOptimizer(self.network, adam, max_grad_norm=cfg.max_grad_norm)
        self.optimizers = {"network": self.optimizer}
        self.exploration = EpsilonGreedy(
            self._epsilon, self._n_actions, self.streams.numpy("exploration")
        )
        self.added_losses = AddedLosses(added_losses, self.optimizers)
        self._parts = {
            "network": self.network,
            "target": self.target,
            "optimizer": self.optimizer,
            "agent": self.replay,
        }
        steps = {Learn.VALUES: Step(self._learn, QTerms)}
        self.learner = make_learner(self, self.replay, self.objective, self._parts, steps)
        self._choose = self.learner.acting(self._best)

    def iterate(self, hooks: Hooks) -> DQNMetrics:
        """Step the envs for one iteration and learn whenever gradient steps are due."""
        replay, collected = self.replay, list[QTerms]()
        with replay.iteration():
            self._learn_due(hooks, collected)  # what an interrupted iteration left
            for _ in range(replay.vector_steps_left):
                replay.step(self._act, hooks, self.learner)
                self._learn_due(hooks, collected)
                if hooks.stopped:
                    break
        return DQNMetrics(
            epsilon=self._epsilon(self.clock.env_steps),
            **all_metrics(self, mean_terms(QTerms, collected)),
        )

    def _learn_due(self, hooks: Hooks, collected: list[QTerms]) -> None:
        """Take the gradient steps that are due."""
        cfg, replay = self.config, self.replay
        for learning_rate in replay.updates_due(hooks, self.schedules):
            batch = replay.draw(self.learner)
            learnt = self.learner.step(Learn.VALUES, batch, learning_rate)
            replay.update_priorities(batch.indices, learnt.errors)
            collected.append(learnt.terms)
            if (self.clock.gradient_steps + 1) % cfg.target_update_interval == 0:
                polyak_update(self.network, self.target, cfg.tau)
            hooks.train_batch(lambda: mean_terms(QTerms, collected[-1:]))

    def _outputs(self, network: Any, obs: Tensor, stream: str = "noise") -> Tensor:
        """Return a network's outputs, with new noise if it has any."""
        if self.config.noisy:
            draw_noise(network, self.streams.torch(stream))
        return network(obs)  # type: ignore[no-any-return]

    def _greedy(self, outputs: Tensor) -> npt.NDArray[Any]:
        return self.action_values.values(outputs).argmax(-1).cpu().numpy()

    def _best(self, obs: Tensor) -> npt.NDArray[Any]:
        return self._greedy(self._outputs(self.network, obs))

    def _act(self, obs: Any) -> npt.NDArray[Any]:
        starts = self.replay.collector.episode_start
        return self.exploration.explore(self._choose(obs), starts, self.clock.env_steps)

    def _epsilon(self, env_steps: int) -> float:
        return self.schedules.value("epsilon", env_steps, self.clock.target_env_steps)

    def _learn(self, batch: TransitionBatch, learning_rate: float) -> StepResult:
        of = self.action_values
        with torch.no_grad():
            judged = self._outputs(self.target, batch.next_obs)
            chooser = judged
            if self.objective.double:
                chooser = self._outputs(self.network, batch.next_obs)
            next_actions = of.values(chooser).argmax(-1, keepdim=True)
            next_outputs = at_actions(judged, next_actions)
            targets = of.targets(next_outputs, batch.rewards, batch.discounts)
        outputs = at_actions(self._outputs(self.network, batch.obs), batch.actions)
        losses, errors = of.losses(outputs, targets)
        loss = (batch.weights * losses).mean()
        loss = self.added_losses.add("network", loss, self.network, batch)
        self.optimizer.step(loss, learning_rate)
        terms = QTerms(q_loss=loss.detach(), q_value=of.values(outputs.detach()).mean())
        return StepResult(terms, errors.detach())

    def predict(self, obs: npt.ArrayLike, deterministic: bool = True) -> Any:
        """Return an action for one observation, or actions for a batch; see ``Algorithm``.

        Args:
            obs: one observation or a batch (B, *shape).
            deterministic: the action of the highest value, without noise; else with noise, if
                the network has it, and with the present probability ε a uniform one.
        """
        if deterministic:
            silence(self.network)
            return self.replay.predict(lambda rows: self._greedy(self.network(rows)), obs)
        explore = EpsilonGreedy(
            self._epsilon, self._n_actions, self.streams.numpy("predict")
        ).explore
        step, starts = self.clock.env_steps, np.ones(1, np.bool_)

        def choose(rows: Tensor) -> npt.NDArray[Any]:
            actions = self._greedy(self._outputs(self.network, rows, "predict"))
            return explore(actions, starts, step)

        return self.replay.predict(choose, obs)

    def policy_data(self) -> PolicyData:
        """Return the policy as data; see :class:`rlox.deployment.Exportable`."""
        silence(self.network)
        read = self.action_values.layer_data()
        return self.replay.policy_data(self.name, self.network, read)

    def state_dict(self) -> dict[str, Any]:
        """Return networks, optimiser, envs and buffer."""
        return parts_state(self._parts)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore networks, optimiser, envs and buffer."""
        load_parts_state(self._parts, state)
