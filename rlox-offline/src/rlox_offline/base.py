"""Base class of the algorithms that learn from a dataset.

The training is counted in gradient steps: ``train(n)`` takes n of them, and ``step`` and the
frequencies of callbacks and loggers are in gradient steps too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import make_dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from rlox.algorithm import Algorithm
from rlox.callbacks import Callback
from rlox.config.model import Config
from rlox.deployment import PolicyData
from rlox.envs.evaluation import MAX_STEPS, EvaluationResult
from rlox.errors import ConfigError
from rlox.logging import LoggerCallback
from rlox.networks.predict import act, drawing_from
from rlox.nn import find_device, load_module_state, module_state, torch_threads
from rlox.training.hooks import Hooks
from torch import Tensor, nn

from rlox_offline.batch import OfflineBatch, Scaling
from rlox_offline.configs import OfflineConfig
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

    A subclass supplies :meth:`_update`, and the loop is here. If it sets :attr:`networks`,
    ``optimizers`` and :attr:`policy` in its constructor, so are acting, saving and restoring;
    one that is to be registered or restored passes ``config`` on.

    Args:
        dataset: what to learn from. With ``None`` the algorithm can act but not learn, as one
            restored for evaluation does, and the config must hold ``obs_dim`` and ``act_dim``.
        batch_size: transitions in a minibatch; ``None`` takes the config's.
        callbacks: hooks into training.
        logger: receives the metrics.
        config: the resolved config; ``None`` takes the defaults.
        env: what :meth:`evaluate` runs in, and a source of the actions' bounds; anything that
            :func:`rlox.make` takes as env.
        continuous: whether actions are vectors of numbers rather than one of several.

    Raises:
        ConfigError: a size contradicts the dataset's, or is missing; or there are both
            ``batch_size`` and ``config``.
        DatasetError: the dataset cannot be learnt from.
        SpaceError: the env's observations or actions are not the dataset's.
    """

    step_unit: ClassVar[str] = "gradient_steps"
    env_required: ClassVar[bool] = False
    name: ClassVar[str] = "offline"
    config_class: ClassVar[type[Config]] = OfflineConfig

    metrics_class: ClassVar[type[Any] | None] = None
    """Frozen dataclass of floats with a field for every metric of :meth:`_update`; ``None`` makes
    one of those that it returns."""

    networks: dict[str, nn.Module]
    """All networks by name; checkpoints hold them."""

    minibatches: OfflineDataset | None
    """What minibatches are drawn from: the dataset, or what a subclass makes of it."""

    policy: Any
    """What acts: has ``deterministic`` and, if it can be sampled, ``get_action_and_logprob``; its
    actions are in [-1, 1] or integers."""

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
            config = OfflineConfig()
            config = config if batch_size is None else config.replace(batch_size=batch_size)
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
        low, high = action_bounds(dataset, env_actions, cfg.act_high, cfg.act_dim)
        self.scaling = Scaling(
            np.zeros(cfg.obs_dim) if mean is None else mean,
            np.ones(cfg.obs_dim) if std is None else std,
            low,
            high,
            self.device,
        )
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
            Scalar tensors, detached, or floats by the names of :attr:`metrics_class`, or by other
            identifiers if that is ``None``; a metric that this step does not have is left out.
        """

    def train(
        self, total_timesteps: int | None = None, *, n_gradient_steps: int | None = None
    ) -> dict[str, float]:
        """Train and return the last iteration's metrics.

        Args:
            total_timesteps: gradient steps to take, on top of those already done; ``None``
                finishes the training that a checkpoint interrupted.
            n_gradient_steps: the same under the name of what is counted.

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

    def run_episodes(
        self,
        env: Any = None,
        *,
        n_episodes: int = 10,
        deterministic: bool = True,
        seed: int | None = None,
        max_steps: int = MAX_STEPS,
    ) -> EvaluationResult:
        """Run episodes without learning; see :func:`rlox.envs.evaluation.evaluate`.

        The result has the dataset's ``random_return`` and ``expert_return``, if it has them.

        Raises:
            EnvError: there is no env to run them in.
            SpaceError: the env's observations or actions are not the dataset's.
        """
        if env is not None:
            env_kwargs = self.env_arguments(env).get("env_kwargs")
            check_env(*spaces_of(env, env_kwargs), self.observation_space, self.action_space)
        result = super().run_episodes(
            env,
            n_episodes=n_episodes,
            deterministic=deterministic,
            seed=seed,
            max_steps=max_steps,
        )
        return replace(
            result,
            random_return=getattr(self.dataset, "random_return", None),
            expert_return=getattr(self.dataset, "expert_return", None),
        )

    def iterate(self, hooks: Hooks) -> Any:
        """Take up to ``steps_per_iteration`` gradient steps and return their mean metrics."""
        assert self.minibatches is not None
        cfg: OfflineConfig = self.config
        seeds, most = self.streams.numpy("minibatches"), cfg.steps_per_iteration
        collected: dict[str, list[Tensor]] = {}
        hooks.enter("learn")
        for _ in range(min(most, self.clock.remaining or most)):  # of no training, all
            rows = self.minibatches.sample(cfg.batch_size, int(seeds.integers(2**32)))
            updated = self._update(self.scaling.batch(rows, self.continuous))
            metrics = {name: self._on_device(value) for name, value in updated.items()}
            for name, value in metrics.items():
                collected.setdefault(name, []).append(value)
            hooks.train_batch(lambda metrics=metrics: _floats(metrics))  # type: ignore[misc]
        means = {name: torch.stack(values).mean() for name, values in collected.items()}
        metrics_class: Any = self.metrics_class or make_dataclass("Metrics", means, frozen=True)
        absent = dict.fromkeys(metrics_class.__dataclass_fields__, float("nan"))
        return metrics_class(**{**absent, **_floats(means)})

    def _on_device(self, value: Tensor | float) -> Tensor:
        if isinstance(value, Tensor):
            return value
        return torch.tensor(value, dtype=torch.float64, device=self.device)

    def predict(self, obs: npt.ArrayLike, deterministic: bool = True) -> Any:
        """Return an action for one observation, or actions for a batch; see ``Algorithm``.

        A policy that cannot be sampled takes its one action, whatever ``deterministic`` says.
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
            "networks": {name: module_state(net) for name, net in self.networks.items()},
            "optimizers": {name: opt.state_dict() for name, opt in self.optimizers.items()},
            "scaling": self.scaling.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore networks, optimisers and scales."""
        self.scaling.load_state_dict(state["scaling"], fixed=self.dataset is not None)
        for name, net in self.networks.items():
            load_module_state(net, state["networks"][name])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])


def _with_sizes(
    config: OfflineConfig, rows: Mapping[str, npt.NDArray[Any]] | None, n_actions: int | None
) -> OfflineConfig:
    """Return the config with the sizes of the dataset's observations and actions."""
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


def _floats(metrics: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the metrics as floats, in one transfer from the device."""
    if not metrics:
        return {}
    values = torch.stack([value.double() for value in metrics.values()]).tolist()
    return dict(zip(metrics, values, strict=True))
