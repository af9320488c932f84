"""The base class of algorithms that learn from a replay buffer while they act.

An algorithm consists of an objective, a :class:`rlox.learners.transitions.ReplayObjective` with the
code of the gradient steps, and a class with a few declarations; this module does config, envs,
buffer, loop, checkpoints and predictions.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlox.algorithm import Algorithm
from rlox.callbacks import Callback
from rlox.config.model import Config
from rlox.config.schedules import Schedules
from rlox.deployment import PolicyData
from rlox.errors import ConfigError, SpaceError
from rlox.learners.transitions import (
    ChosenReplayLearner,
    Parts,
    ReplayObjective,
    ReplayTask,
    choose_replay_learner,
    with_targets,
)
from rlox.logging import LoggerCallback
from rlox.losses import AddedLosses, Losses, Scalar, make_metrics, make_objective, mean_by_name
from rlox.networks.predict import drawing_from
from rlox.networks.validate import B, Shape, example_observations, try_network
from rlox.nn import FlatOptimizer, Layers, find_device, load_parts_state, parts_state
from rlox.protocols import ExplorationStrategy
from rlox.replay.building import Given, make_replay, resolve
from rlox.replay.exploration import EpsilonGreedy, make_noise
from rlox.replay.loop import Replay
from rlox.spaces.rows import map_leaves
from rlox.training.hooks import Hooks

ACTIONS = {
    spaces.Box: "continuous actions, a Box, got {}; DQN and discrete_sac take Discrete ones, and a "
    "class of your own that says acts_in = spaces.Discrete",
    spaces.Discrete: "Discrete actions, got {}; SAC takes a Box",
}
"""Error texts for other action spaces, by the space that an algorithm needs."""


@dataclass(frozen=True, kw_only=True)
class ReplayMetrics:
    """Metrics of one iteration; those of gradient steps are NaN without a gradient step."""

    mean_reward: float
    """Mean return of the last 100 finished episodes; NaN before the first."""
    mean_episode_length: float
    """Mean length of the same episodes in env steps."""
    episodes: float
    """Number of episodes finished so far."""
    q_loss: float
    q_value: float
    """Mean Q(s, a) over the batches."""
    learning_rate: float
    added: Mapping[str, float] = field(default_factory=dict)
    """Means of the user's added losses."""


class Outputs(NamedTuple):
    """Required outputs of a user's network for :data:`B` observations."""

    shapes: tuple[Shape, ...]
    """Size of the output, or of several; ``None`` allows any size."""
    methods: tuple[str, ...] = ("__call__",)
    """Methods to call, in order of preference."""
    actions: bool = False
    """Whether the network takes actions (B, act_dim) too."""


class Network(NamedTuple):
    """A network that learns."""

    make: Callable[[], nn.Module]
    """Makes the default network."""
    outputs: tuple[Outputs, ...] = ()
    """Requirements for a user's own network."""


class ReplayAlgorithm(Algorithm):
    """An algorithm that steps envs into a replay buffer and learns from batches of it.

    Args:
        env_id: a gymnasium id, a callable that makes an env, an env or a vector env.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training.
        config: an object of the algorithm's config class, a mapping, or the path of a YAML or JSON
            file.
        schedules: callables ``env_steps -> value`` for scheduled options such as
            ``learning_rate``; they override the config and are not saved in checkpoints.
        added_losses: functions ``(module, batch) -> scalar`` by part, the name of a network; they
            are added to the part's loss, see :mod:`rlox.losses`.
        options: the user's own networks, each a ``torch.nn.Module`` (``None`` makes one that fits
            the env's spaces; an attribute ``generator`` that is ``None`` is set to the run's random
            stream), and options of the config, which override ``config``. ``buffer`` may be an
            object with the methods of :class:`rlox.protocols.ReplayBuffer`, and ``exploration``,
            if the algorithm has that option, one with the methods of
            :class:`rlox.protocols.ExplorationStrategy`.

    Raises:
        ConfigError: an option is unknown, out of range or would be ignored.
        EnvError: the env cannot be built.
        SpaceError: the action space is not supported, or the observations have no encoder.
    """

    metrics_class: ClassVar[type[Any]] = ReplayMetrics
    """Dataclass that :meth:`iterate` returns, for example a :class:`ReplayMetrics`."""
    objective_class: ClassVar[type[ReplayObjective]]
    """Class of the objective; its fields are options of the config."""
    acts_in: ClassVar[type[spaces.Space[Any]]] = spaces.Box
    """Kind of action space: ``Box`` or ``Discrete``; ``Space``: any."""
    own_networks: ClassVar[tuple[str, ...]] = ("policy", "critic")
    """Names of the networks that the user may pass."""
    targets: ClassVar[tuple[str, ...]] = ("critic",)
    """Names of the networks that have a target copy, such as ``critic_target``."""

    learner: ChosenReplayLearner
    added_losses: AddedLosses
    if TYPE_CHECKING:

        def __getattr__(self, network: str) -> Any: ...

    def __init__(
        self,
        env_id: Any,
        *,
        logger: LoggerCallback | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        config: Config | Mapping[str, Any] | str | Path | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        added_losses: Losses | None = None,
        **options: Any,
    ) -> None:
        options = self.renamed(options)
        own = {name: options.pop(name, None) for name in self.own_networks}
        resolved, given = resolve(self.config_class, config, env_id, own.values(), options)
        super().__init__(env_id, config=resolved, callbacks=callbacks, logger=logger)
        cfg, self.own_parts = self.config, given.parts
        self.schedules = Schedules(cfg.scheduled(), schedules)
        find_device(cfg.device)  # before envs are made
        self.replay: Any = self.make_replay(given)
        self.n_actions = self._count_actions()
        """Number of components of an action, or of discrete actions."""
        self.exploration = self._exploration(given.own("exploration"))
        networks = self._learning_networks(own)
        for declared in ("own_networks", "targets"):
            if odd := [name for name in getattr(self, declared) if name not in networks]:
                raise TypeError(
                    f"{declared} of {type(self).__name__} names '{odd[0]}', and make_networks "
                    f"returns {', '.join(networks)}; write {declared} = (...) into the class"
                )
        self.optimizers = {
            name: self.make_optimizer(name, network)
            for name, network in networks.items()
            if own.get(name) is not None or any(p.requires_grad for p in network.parameters())
        }
        self.added_losses = AddedLosses(added_losses, self.optimizers)
        self.parts = Parts(
            with_targets(networks, self.targets),
            self.optimizers,
            self.replay.device,
            self.streams.torch,
            self.added_losses,
        )
        vars(self).update(self.parts.networks)
        self.objective: Any = self.make_objective(self.n_actions)
        _require_methods(self.objective, networks)
        self.learner = choose_replay_learner(cfg.backend, ReplayTask(self.objective, self.parts))
        self._choose = self.learner.acting(partial(_rows, self.objective.act, self.parts))

    def iterate(self, hooks: Hooks) -> Any:
        """Step the envs for one iteration and take the gradient steps that become due."""
        replay, collected = self.replay, list[Mapping[str, Scalar]]()
        with replay.iteration():
            self._learn_due(hooks, collected)  # steps left over from an interrupted iteration
            for _ in range(replay.vector_steps_left):
                replay.step(self._act, hooks, self.learner)
                self._learn_due(hooks, collected)
                if hooks.stopped:
                    break
        return self._metrics(mean_by_name(collected))

    def _learn_due(self, hooks: Hooks, collected: list[Mapping[str, Scalar]]) -> None:
        """Take the gradient steps that are due."""
        replay, learner = self.replay, self.learner
        for _ in replay.updates_due(hooks, self.schedules):
            batch, terms, rate = replay.draw(learner), dict[str, Scalar](), self.step_size()
            for step in self.objective.due(self.clock.gradient_steps + 1):
                learnt = learner.step(step, batch, rate)
                replay.give_back(batch, learnt)
                terms.update(learnt.terms)
            collected.append(terms)
            hooks.train_batch(lambda: mean_by_name(collected[-1:]))

    def _act(self, obs: Any) -> npt.NDArray[Any]:
        actions = self._choose(obs)
        if self.exploration is None:
            return actions
        starts = self.replay.collector.episode_start
        return self.exploration.explore(actions, starts, self.clock.env_steps)

    def _metrics(self, terms: Mapping[str, float]) -> Any:
        kind, now = self.metrics_class, (self.clock.env_steps, self.clock.target_env_steps)
        more = self.replay.collector.statistics.metrics()
        for each in fields(kind):
            if each.name in self.config.schedule_bounds:
                more[each.name] = self.schedules.value(each.name, *now)
        more["learning_rate"] = self.step_size()
        return make_metrics(kind, terms, self.added_losses, **more)

    def step_size(self) -> float:
        """Return the step size of the next gradient step."""
        now = (self.clock.env_steps, self.clock.target_env_steps)
        return self.schedules.value("learning_rate", *now)

    def make_replay(self, given: Given) -> Replay:
        """Return envs and buffer.

        Args:
            given: with the caller's own buffer, if any.
        """
        return make_replay(self, given, self.schedules)

    @staticmethod
    def renamed(options: dict[str, Any]) -> dict[str, Any]:
        """Return the constructor's options under their names in the config."""
        return options

    @abstractmethod
    def make_networks(
        self, space: spaces.Space[Any], size: int, **sizes: Any
    ) -> dict[str, Network]:
        """Return new networks that learn, by name; the first one acts.

        One without parameters has no optimiser: other state that gradient steps change is in
        buffers of a module, which is saved in checkpoints and moved between devices like a network.

        Args:
            space: space of the observations.
            size: number of components of an action, or of discrete actions.
            sizes: ``hidden``, the options of the layers, and ``generator``, the source of weights.
        """

    def make_objective(self, size: int) -> ReplayObjective:
        """Return the objective; the networks exist already.

        Args:
            size: number of components of an action, or of discrete actions.
        """
        return make_objective(self.objective_class, self.config)

    def make_optimizer(
        self, name: str, network: nn.Module, *, max_grad_norm: float | None = None, **options: Any
    ) -> FlatOptimizer:
        """Return the optimiser of a network: Adam.

        Args:
            name: name of the network.
            network: the network.
            max_grad_norm: bound of the gradient's Euclidean norm; ``None``: not clipped.
            options: options of Adam.
        """
        adam = partial(torch.optim.Adam, eps=self.config.adam_eps, fused=True, **options)
        return FlatOptimizer(network, adam, max_grad_norm=max_grad_norm)

    def prepare(self, name: str, network: nn.Module) -> None:
        """Change a network, default or user-made, before it is copied and learns."""

    def explores(self) -> ExplorationStrategy | None:
        """Return the noise on actions that the config names; ``None``: no noise.

        With an option ``epsilon``, actions are uniform with that probability.
        """
        if "epsilon" in type(self.config).model_fields:
            return self._greedy("exploration")
        rng, kind = self.streams.numpy("exploration"), getattr(self.config, "exploration", "none")
        return make_noise(kind, getattr(self.config, "noise_std", 0.0), rng)

    def sampled(self, actions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Turn the objective's actions into those of a prediction that is not deterministic."""
        if "epsilon" not in type(self.config).model_fields:
            return actions
        explore, starts = self._greedy("predict").explore, np.ones(1, np.bool_)
        return explore(actions, starts, self.clock.env_steps)

    def _greedy(self, stream: str) -> EpsilonGreedy:
        def epsilon(env_steps: int) -> float:
            return self.schedules.value("epsilon", env_steps, self.clock.target_env_steps)

        return EpsilonGreedy(epsilon, self.n_actions, self.streams.numpy(stream))

    def exported(self) -> tuple[Any, ...]:
        """Return modules or layers from observations to outputs or actions; see ``ReplayLoop``."""
        return (self._actor,)

    @property
    def _actor(self) -> Any:
        return next(iter(self.parts.networks.values()))

    def predict(self, obs: npt.ArrayLike, deterministic: bool = True) -> Any:
        """Return an action for one observation, or actions for a batch; see ``Algorithm``.

        Args:
            obs: one observation or a batch (B, *shape).
            deterministic: the objective's mode; otherwise its exploring actions, without the noise
                that is added while collecting.
        """
        return self._predict(obs, deterministic)

    def _predict(self, obs: npt.ArrayLike, deterministic: bool, **memory: Any) -> Any:
        objective, generator = self.objective, self.streams.torch("predict")
        if deterministic:
            return self.replay.predict(partial(_rows, objective.mode, self.parts), obs, **memory)
        parts = replace(self.parts, stream=lambda _: generator)
        with drawing_from(generator, self._actor):
            return self.replay.predict(
                lambda rows: self.sampled(_rows(objective.act, parts, rows)), obs, **memory
            )

    def policy_data(self) -> PolicyData:
        """Return the policy as data; see :class:`rlox.deployment.Exportable`."""
        data: PolicyData = self.replay.policy_data(self.name, *self.exported())
        return data

    def state_dict(self) -> dict[str, Any]:
        """Return networks, optimisers, noise, envs and buffer."""
        # a training that continues with noise needs its state
        return {"exploration": {}, **parts_state(self._saved)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore networks, optimisers, noise, envs and buffer."""
        load_parts_state(self._saved, state)

    @property
    def _saved(self) -> dict[str, Any]:
        return {
            **self.parts.networks,
            **{f"{name}_optimizer": each for name, each in self.optimizers.items()},
            **({} if self.exploration is None else {"exploration": self.exploration}),
            "agent": self.replay,
        }

    def _count_actions(self) -> int:
        space = self.replay.env.action_space
        if not isinstance(space, self.acts_in):
            wanted = ACTIONS[self.acts_in].format(space)
            raise SpaceError(f"{type(self).__name__} needs {wanted}")
        return int(space.n) if isinstance(space, spaces.Discrete) else math.prod(space.shape or ())

    def _exploration(self, own: Any) -> ExplorationStrategy | None:
        if own is None:
            return self.explores()
        if isinstance(own, ExplorationStrategy):
            return own
        raise ConfigError(
            "exploration must be a name or have explore, state_dict and load_state_dict, got "
            f"{type(own).__name__}"
        )

    def _learning_networks(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the networks that learn, on their device; user-made ones have been tried."""
        space, stream = self.replay.env.observation_space, self.streams.torch("policy")
        sizes = {"hidden": Layers.of(self.config), "generator": stream}
        networks = {}
        for name, wanted in self.make_networks(space, self.n_actions, **sizes).items():
            if not isinstance(wanted, Network) or isinstance(wanted.make, nn.Module):
                raise TypeError(
                    f"make_networks must return Network(function) for '{name}', and the function "
                    f"the module, got {type(getattr(wanted, 'make', wanted)).__name__}"
                )
            network: Any = wanted.make() if own.get(name) is None else own[name]
            if not isinstance(network, nn.Module):
                raise ConfigError(f"{name} must be a torch.nn.Module, got {type(network).__name__}")
            networks[name] = network.to(self.replay.device)
            self.prepare(name, network)
            if own.get(name) is not None:
                if getattr(network, "generator", ...) is None:
                    network.generator = stream  # type: ignore[assignment]
                for outputs in wanted.outputs:
                    self._try_network(name, network, outputs)
        return networks

    def _try_network(self, name: str, network: nn.Module, wanted: Outputs) -> None:
        """Try a user-made network on observations of the envs.

        Raises:
            ConfigError: it fails, lacks a method, or its outputs have other shapes.
        """
        replay, space = self.replay, self.replay.env.observation_space
        method = next((m for m in wanted.methods if callable(getattr(network, m, None))), None)
        if method is None:
            raise ConfigError(
                f"{name} must have a method {' or '.join(wanted.methods)}, got "
                f"{type(network).__name__} without"
            )
        given, asked = [replay.observations.copy(example_observations(space))], ""
        if wanted.actions:
            given.append(replay.actions.random(np.random.default_rng(0), B))
            asked = f" and {B} actions"
        tensors = [
            map_leaves(lambda leaf: torch.from_numpy(leaf).to(replay.device), g) for g in given
        ]
        function, called = getattr(network, method), name
        if method != "__call__":
            called += f".{method}"
        try_network(
            network, called, lambda: function(*tensors), f"{B} observations of {space}{asked}",
            *wanted.shapes,
        )  # fmt: skip


def _require_methods(objective: Any, networks: Mapping[str, Any]) -> None:
    """Refuse an objective that lacks its first gradient step or a method to act."""
    kind = type(objective)
    for step in objective.due(1):
        if not hasattr(objective, step):
            raise TypeError(
                f"{kind.__name__} has no gradient step '{step}'; write a method "
                f"{step}(self, parts, batch, learning_rate) that returns a StepResult"
            )
    if kind.mode is ReplayObjective.mode and "policy" not in networks:
        raise TypeError(
            f"{kind.__name__} has no mode(self, parts, obs), which returns the best actions, and "
            f"there is no network 'policy' to ask, only {', '.join(networks)}; write the method"
        )


def _rows(choose: Callable[[Parts, Any], Tensor], parts: Parts, obs: Any) -> npt.NDArray[Any]:
    """Return the actions that an objective chooses, in the form that buffers store."""
    return choose(parts, obs).cpu().numpy()
