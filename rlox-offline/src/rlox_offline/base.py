"""The frame of the algorithms that learn from a dataset.

Training is counted in gradient steps: ``train(n)`` takes n of them, and ``step`` and the
frequencies of callbacks and loggers are in gradient steps too. :class:`OfflineAlgorithm` has the
loop over minibatches, predictions and checkpoints. An algorithm of this package consists of an
objective, a :class:`rlox.learners.transitions.ReplayObjective` with the gradient steps, and a
:class:`DatasetAlgorithm` with a few declarations.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, make_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from rlox.algorithm import Algorithm
from rlox.callbacks import Callback
from rlox.config.model import Config, resolve_config
from rlox.deployment import PolicyData
from rlox.envs.evaluation import EvaluationResult
from rlox.errors import ConfigError
from rlox.learners.transitions import (
    ChosenReplayLearner,
    Parts,
    ReplayObjective,
    ReplayTask,
    choose_replay_learner,
    with_targets,
)
from rlox.logging import LoggerCallback
from rlox.losses import Scalar, make_objective, mean_by_name
from rlox.networks.predict import act, drawing_from
from rlox.nn import FlatOptimizer, Layers, find_device, load_parts_state, parts_state, torch_threads
from rlox.training.hooks import Hooks
from torch import Tensor, nn

from rlox_offline.batch import OfflineBatch, Scaling
from rlox_offline.configs import OfflineConfig
from rlox_offline.datasets import open_dataset
from rlox_offline.datasets.protocol import (
    OfflineDataset,
    action_bounds,
    check_actions,
    check_env,
    check_rows,
    spaces_of,
)


class OfflineAlgorithm(Algorithm):
    """An algorithm that samples minibatches of a dataset and learns from each in one step.

    A subclass supplies :meth:`_update`; this class has the loop. If the subclass's constructor sets
    :attr:`networks`, ``optimizers`` and :attr:`policy`, this class also acts, saves and restores.
    To be registered or restored, a subclass must pass ``config`` on.

    Args:
        dataset: dataset to learn from. With ``None``, as when restored for evaluation, the
            algorithm acts but cannot learn, and the config must hold ``obs_dim`` and ``act_dim``.
        batch_size: transitions in a minibatch; ``None`` takes the config's.
        callbacks: hooks into training.
        logger: receives the metrics.
        config: the resolved config; ``None`` takes the defaults.
        env: env for :meth:`evaluate`, and a source of action bounds; anything that
            :func:`rlox.make` takes as env.
        continuous: whether actions are a ``Box``; else ``Discrete``.

    Raises:
        ConfigError: a size contradicts the dataset's, or is missing; or both ``batch_size`` and
            ``config`` are given.
        DatasetError: the dataset is not suitable for learning.
        SpaceError: the env's observations or actions differ from the dataset's.
    """

    step_unit: ClassVar[str] = "gradient_steps"
    env_required: ClassVar[bool] = False
    name: ClassVar[str] = "offline"
    config_class: ClassVar[type[Config]] = OfflineConfig

    metrics_class: ClassVar[type[Any] | None] = None
    """Frozen dataclass of floats with a field for every metric of :meth:`_update`; ``None`` builds
    one from the returned metrics."""

    networks: dict[str, nn.Module]
    """All networks by name, as saved in checkpoints."""

    minibatches: OfflineDataset | None
    """Source of minibatches: the dataset, or a subclass's view of it."""

    policy: Any
    """The acting module: has ``deterministic`` and, if it can be sampled,
    ``get_action_and_logprob``; its actions are in [-1, 1] or integers."""

    def __init__(
        self,
        dataset: OfflineDataset | None,
        batch_size: int | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
        *,
        config: OfflineConfig | None = None,
        env: Any = None,
        continuous: bool = True,
    ) -> None:
        if config is not None and batch_size is not None:
            raise ConfigError(
                f"batch_size is given as {batch_size}, and in config as {config.batch_size}; "
                "leave one out"
            )
        if config is None:
            config = OfflineConfig() if batch_size is None else OfflineConfig(batch_size=batch_size)
        rows = None if dataset is None else check_rows(dataset, continuous)
        env_obs, env_actions = (None, None) if env is None else spaces_of(env, config.env_kwargs)
        n_actions = getattr(dataset, "n_actions", None) or getattr(env_actions, "n", None)
        config = _with_sizes(config, rows, n_actions)
        super().__init__(env, config=config, callbacks=callbacks, logger=logger)
        cfg: OfflineConfig = self.config
        assert cfg.obs_dim is not None and cfg.act_dim is not None  # noqa: PT018
        self.dataset = self.minibatches = dataset
        self.continuous = continuous
        self.device = find_device(cfg.device)
        mean, std = getattr(dataset, "obs_mean", None), getattr(dataset, "obs_std", None)
        # a policy that is there before the networks is a user's
        known = env_actions or getattr(getattr(self, "policy", None), "action_space", None)
        low, high = action_bounds(dataset, known, cfg.act_high, cfg.act_dim)
        mean = np.zeros(cfg.obs_dim) if mean is None else mean
        std = np.ones(cfg.obs_dim) if std is None else std
        self.scaling = Scaling(mean, std, low, high, self.device)
        if env_obs is not None and env_actions is not None:
            check_env(env_obs, env_actions, self.observation_space, self.action_space)
        if rows is not None:
            check_actions(rows["actions"], self.action_space)

    @property
    def observation_space(self) -> spaces.Box:
        """Space of the observations that :meth:`predict` takes."""
        return spaces.Box(-np.inf, np.inf, (self.config.obs_dim,))

    @property
    def action_space(self) -> spaces.Box | spaces.Discrete:
        """Space of the actions that :meth:`predict` returns."""
        if not self.continuous:
            return spaces.Discrete(self.config.act_dim)
        return spaces.Box(self.scaling.act_low, self.scaling.act_high)

    @abstractmethod
    def _update(self, batch: OfflineBatch) -> Mapping[str, Tensor | float]:
        """Learn from one minibatch.

        Returns:
            Detached scalar tensors or floats, by the field names of :attr:`metrics_class` (any
            identifiers if it is ``None``); metrics without a value in this step are left out.
        """

    def train(
        self, total_timesteps: int | None = None, *, n_gradient_steps: int | None = None
    ) -> dict[str, float]:
        """Train and return the last iteration's metrics.

        Args:
            total_timesteps: gradient steps to take, on top of those already done; ``None``
                finishes the training that a checkpoint interrupted.
            n_gradient_steps: another name for the same argument.

        Raises:
            ConfigError: there is no dataset.
            TypeError: both arguments are given.
            ValueError: the number is not positive, or ``None`` with nothing to finish.
        """
        if self.dataset is None:
            raise ConfigError(f"'{self.name}' was made without a dataset; pass one as dataset=")
        if total_timesteps is not None and n_gradient_steps is not None:
            raise TypeError(
                f"total_timesteps={total_timesteps} and n_gradient_steps={n_gradient_steps} are "
                "two names of one argument; leave one out"
            )
        return super().train(total_timesteps if n_gradient_steps is None else n_gradient_steps)

    def run_episodes(self, env: Any = None, **options: Any) -> EvaluationResult:
        """Run episodes without learning; see :func:`rlox.envs.evaluation.evaluate`.

        The result includes the dataset's ``random_return`` and ``expert_return``, if known.

        Raises:
            EnvError: there is no env for the episodes.
            SpaceError: the env's observations or actions differ from the dataset's.
        """
        if env is not None:
            env_kwargs = self.env_arguments(env).get("env_kwargs")
            check_env(*spaces_of(env, env_kwargs), self.observation_space, self.action_space)
        return replace(
            super().run_episodes(env, **options),
            random_return=getattr(self.dataset, "random_return", None),
            expert_return=getattr(self.dataset, "expert_return", None),
        )

    def iterate(self, hooks: Hooks) -> Any:
        """Take up to ``steps_per_iteration`` gradient steps and return their mean metrics."""
        assert self.minibatches is not None
        cfg: OfflineConfig = self.config
        seeds, most = self.streams.numpy("minibatches"), cfg.steps_per_iteration
        collected: list[Mapping[str, Scalar]] = []
        hooks.enter("learn")
        for _ in range(min(most, self.clock.remaining or most)):  # all of them outside a training
            rows = self.minibatches.sample(cfg.batch_size, int(seeds.integers(2**32)))
            collected.append(self._update(self.scaling.batch(rows, self.continuous)))
            hooks.train_batch(lambda: mean_by_name(collected[-1:]))
        means = mean_by_name(collected)
        metrics_class: Any = self.metrics_class or make_dataclass("Metrics", means, frozen=True)
        absent = dict.fromkeys(metrics_class.__dataclass_fields__, float("nan"))
        return metrics_class(**{**absent, **means})

    def predict(self, obs: npt.ArrayLike, deterministic: bool = True) -> Any:
        """Return an action for one observation, or actions for a batch; see ``Algorithm``.

        A policy that cannot be sampled ignores ``deterministic``.
        """
        policy, scaling = self.policy, self.scaling
        deterministic = deterministic or not hasattr(policy, "get_action_and_logprob")

        def choose(rows: Tensor) -> Tensor:
            obs = scaling.obs_in(rows)
            if deterministic:
                actions = policy.deterministic(obs)
            else:
                actions, _ = policy.get_action_and_logprob(obs)
            return scaling.actions_out(actions) if self.continuous else actions

        spaces = self.observation_space, self.action_space
        generator, threads = self.streams.torch("predict"), self.config.torch_threads
        with torch_threads(threads), drawing_from(generator, policy):
            return act(choose, *spaces, obs, device=self.device)

    def policy_data(self) -> PolicyData:
        """Return the policy as data; see :class:`rlox.deployment.Exportable`."""
        network = self.scaling.layer_data(self.policy, self.continuous)
        return PolicyData(self.name, self.observation_space, self.action_space, network)

    def state_dict(self) -> dict[str, Any]:
        """Return networks, optimisers and scales."""
        return {
            "networks": parts_state(self.networks),
            "optimizers": parts_state(self.optimizers),
            "scaling": self.scaling.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore networks, optimisers and scales."""
        self.scaling.load_state_dict(state["scaling"], fixed=self.dataset is not None)
        load_parts_state(self.networks, state["networks"])
        load_parts_state(self.optimizers, state["optimizers"])


def _with_sizes(
    config: OfflineConfig, rows: Mapping[str, npt.NDArray[Any]] | None, n_actions: int | None
) -> OfflineConfig:
    """Return the config with the dataset's observation and action sizes filled in."""
    if rows is None:
        if config.obs_dim is None or config.act_dim is None:
            raise ConfigError("pass a dataset, or obs_dim and act_dim to act without one")
        return config
    act_dim = rows["actions"].size // len(rows["obs"])
    sizes = {"obs_dim": rows["obs"].shape[1], "act_dim": act_dim}
    if rows["actions"].dtype.kind == "i":
        sizes["act_dim"] = config.act_dim or n_actions or int(rows["actions"].max()) + 1
    for name, size in sizes.items():
        if getattr(config, name) not in (None, size):
            raise ConfigError(f"{name} is {getattr(config, name)}, but the dataset's is {size}")
    return config.replace(**sizes)


METRICS = {
    "q_loss": "critic_loss",
    "q_value": "mean_q",
    "policy_loss": "actor_loss",
    "weight": "mean_weight",
}
"""Names of the objectives' terms among the metrics."""


@dataclass(frozen=True)
class ActorCriticMetrics:
    """Metrics of one iteration with critics and a policy."""

    critic_loss: float
    """Sum of the critics' mean squared errors."""
    actor_loss: float
    """The policy's loss; NaN if the iteration had no policy step."""
    mean_q: float
    """Mean of the critics' values for the dataset's actions."""


class DatasetAlgorithm(OfflineAlgorithm):
    """An offline algorithm defined by its objective.

    Args:
        dataset: dataset to learn from, or its name
            (:func:`rlox_offline.datasets.load_dataset`). It sets ``obs_dim``, the size of an
            observation, and ``act_dim``, the size of an action or the number of discrete
            actions.
        env: env for evaluation, and for the action bounds if the dataset has none.
        config: an object of the algorithm's config class, a mapping, or the path of a YAML or JSON
            file.
        callbacks: hooks into training.
        logger: receives the metrics of every iteration.
        options: config options, which override ``config``.

    Raises:
        BackendError: the config's backend does not support these steps.
        ConfigError: an option is unknown or out of range, or contradicts the dataset.
        DatasetError: the dataset is not suitable for learning.
    """

    objective_class: ClassVar[type[ReplayObjective]]
    """Class of the objective; its fields are options of the config."""
    targets: ClassVar[tuple[str, ...]] = ("critic",)
    """Networks with a target copy, which is named ``critic_target`` for ``critic``."""

    learner: ChosenReplayLearner
    critic: Any

    def __init__(
        self,
        dataset: OfflineDataset | str | Path | None = None,
        *,
        env: Any = None,
        config: Config | Mapping[str, Any] | str | Path | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
        **options: Any,
    ) -> None:
        resolved: Any = resolve_config(self.config_class, config, **options)
        given: Any = {"config": resolved, "callbacks": callbacks, "logger": logger}
        continuous = getattr(resolved, "continuous", True)
        super().__init__(open_dataset(dataset), env=env, continuous=continuous, **given)
        cfg = self.config
        if self.dataset is not None:
            self.minibatches = self.drawn_from(self.dataset)
        generator = self.streams.torch("networks")
        networks = self.make_networks(
            cfg.obs_dim, cfg.act_dim, hidden=Layers.of(cfg), generator=generator
        )
        for network in networks.values():
            network.to(self.device)
        adam = partial(torch.optim.Adam, fused=True)
        self.optimizers = {name: FlatOptimizer(net, adam) for name, net in networks.items()}
        self.networks = with_targets(networks, self.targets)
        self.parts = Parts(self.networks, self.optimizers, self.device, self.stream)
        vars(self).update(self.networks)
        self.objective = self.make_objective()
        task = ReplayTask(self.objective, self.parts)
        self.learner = choose_replay_learner(getattr(cfg, "backend", "torch"), task)
        names = ("gamma", "reward_scale", "reward_shift")
        self._rewards = {name: getattr(cfg, name) for name in names if hasattr(cfg, name)}

    @abstractmethod
    def make_networks(self, obs_dim: int, act_dim: int, **options: Any) -> dict[str, nn.Module]:
        """Return the trained networks by name, in the order of their creation.

        Args:
            obs_dim: size of an observation.
            act_dim: size of an action, or number of discrete actions.
            options: ``hidden``, the layers' options, and ``generator``, the source of weights.
        """

    def make_objective(self) -> ReplayObjective:
        """Return the objective; called once the networks exist."""
        return make_objective(self.objective_class, self.config)

    def drawn_from(self, dataset: OfflineDataset) -> OfflineDataset:
        """Return the source of minibatches."""
        return dataset

    def stream(self, name: str) -> torch.Generator:
        """Return the objective's source of noise with this name."""
        return self.streams.torch(name)

    def step_size(self, step: str) -> float:
        """Return the step size of one of the objective's steps."""
        return float(self.config.learning_rate)

    def _update(self, batch: OfflineBatch) -> Mapping[str, Scalar]:
        """Take the objective's due steps."""
        transitions = batch.transitions(**self._rewards)
        terms: dict[str, Scalar] = {}
        for step in self.objective.due(self.clock.gradient_steps + 1):
            learnt = self.learner.step(step, transitions, self.step_size(step)).terms
            terms |= {METRICS.get(name, name): value for name, value in learnt.items()}
        return terms
