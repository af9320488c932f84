"""The frame of PPO on batched envs in rlox: its env and config, iterations, actions and state.

:class:`rlox_rl8.engine.GenericAlgorithmBase` collects and learns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from rlox.algorithm import Algorithm
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, changed, require_integer, resolve_config
from rlox.deployment import PolicyData
from rlox.envs import fixed_env_count
from rlox.envs.evaluation import EvaluationResult
from rlox.errors import ConfigError
from rlox.logging import LoggerCallback
from rlox.spaces import ObservationRows
from rlox.training.hooks import Hooks
from tensordict import TensorDict

from rlox_rl8.ends import begin_episodes
from rlox_rl8.exporting import describe_policy
from rlox_rl8.policies import RecurrentPolicy
from rlox_rl8.vec_envs import VecTensorEnv, find_env, is_vec_source

ConfigT = TypeVar("ConfigT", bound=Config)

VEC_DEFAULTS = {
    "n_envs": 32, "horizons_per_env_reset": -1, "gamma": 0.99, "sgd_minibatch_size": 256
}  # fmt: skip
"""Default options for envs whose episodes end; minibatches have the greatest divisor of the
buffer's samples up to this size."""

RECURRENT_DEFAULTS = {"sgd_minibatch_size": 64, "seqs_per_state_reset": -1}
"""The same for recurrent policies, whose states are reset with episodes."""


@dataclass(frozen=True)
class RL8Metrics:
    """Metrics of one iteration."""

    mean_reward: float
    """Mean over envs of a horizon's summed rewards; if episodes end, mean return of the last 100
    episodes."""
    policy_loss: float
    value_loss: float
    entropy: float
    """In nats; 0 if its weight is 0."""
    approx_kl: float
    """In nats."""


class BatchedPPO(Algorithm):
    """PPO on batched envs.

    Args:
        env: a subclass of :class:`rlox_rl8.Env`, or ``"module:Class"``; or any env that ``ppo``
            takes, such as a gymnasium id.
        config: a config of the algorithm's class, a mapping, or the path of a YAML or JSON file.
        callbacks: hooks into training.
        logger: receives the metrics of every iteration.
        agent: replaces the one built from the config.
        parts: arguments of the agent's config that rlox's config lacks, such as ``model_cls``,
            ``distribution_cls``, ``optimizer_cls`` and schedules.
        options: options of the config; they override ``config``.

    Raises:
        ConfigError: ``env`` has another type, or an option is out of range.
        SpaceError: the env's spaces cannot be tensors of one shape.
    """

    agent_config: ClassVar[Any]
    """:class:`rlox_rl8.AlgorithmConfig` or the recurrent one."""

    def __init__(
        self,
        env: Any,
        *,
        config: Config | Mapping[str, Any] | str | Path | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
        agent: Any = None,
        parts: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        resolved = fit_to_env(resolve_config(self.config_class, config, **options), env)
        self.env_cls = find_env(env, resolved)
        super().__init__(env, config=resolved, callbacks=callbacks, logger=logger)
        if agent is None:
            random = partial(self.streams.as_global, "rl8")
            with random():
                agent = self._agent_config(parts).build(self.env_cls)
            agent.random = random
        self.agent = agent
        if isinstance(agent.env, VecTensorEnv):
            self.resources.callback(agent.env.close)
        self.env_config: dict[str, Any] | None = None
        """Passed to the env at its next reset."""
        self.last_stats: dict[str, float] = {}
        """Statistics of the last iteration under the names of :class:`rlox_rl8.Trainer`."""
        self.optimizers = {"policy": agent.flat}

    def _agent_config(self, parts: Mapping[str, Any] | None) -> Any:
        """Return the agent's config with the hyperparameters of this config."""
        names = set(self.agent_config.__dataclass_fields__)
        options = self.config.to_dict()
        # the other options belong to the run and the env backend
        numbers = {name: value for name, value in options.items() if name in names}
        numbers["num_envs"] = options["n_envs"]
        given, known = dict(parts or {}), sorted(names - set(numbers))
        for name in given.keys() - set(known):
            raise ConfigError(f"part '{name}' is unknown; expected one of {', '.join(known)}")
        own = given.pop("optimizer_config", None) or {}
        if "lr" in own and changed(self.config, "learning_rate"):
            raise ConfigError(
                f"learning_rate={options['learning_rate']} and optimizer_config's lr={own['lr']} "
                "are two learning rates; leave one of them out"
            )
        optimizer = {"lr": options["learning_rate"], **own}
        return self.agent_config(**numbers, **given, optimizer_config=optimizer)

    def iterate(self, hooks: Hooks) -> RL8Metrics:
        """Collect one horizon, then learn from it."""
        agent = self.agent
        agent.hooks = hooks
        try:
            collected = agent.collect(env_config=self.env_config)
            hooks.rollout_end(agent.buffer)
            learnt = agent.step()
        finally:
            agent.hooks = None
        self.last_stats = {**collected, **learnt}
        reward = collected["returns/mean"]
        return RL8Metrics(
            mean_reward=reward if agent.ends is None else agent.ends.statistics.mean_return,
            policy_loss=-learnt["losses/policy"],
            value_loss=learnt["losses/vf"],
            entropy=learnt["losses/entropy"],
            approx_kl=learnt["monitors/kl_div"],
        )

    def predict(
        self,
        obs: npt.ArrayLike,
        deterministic: bool = True,
        *,
        state: Any = UNSET,
        episode_start: npt.ArrayLike | None = None,
    ) -> Any:
        """Return actions for observations, without a history of them.

        Args:
            obs: one observation or a batch, nested like a gymnasium env's observation space.
            deterministic: act with the mode.
            state: a recurrent policy's state, returned with the last actions; ``None`` begins
                episodes. If left out, each observation is taken for an episode's first.
            episode_start: bool or (B,) bools, whether an episode begins with the observation;
                ``None``: none does.

        Returns:
            The action or actions; with ``state``, a pair of them and the next state.

        Raises:
            ConfigError: a class of envs observes several tensors.
        """
        spec = self.agent.env.observation_spec
        if isinstance(self.agent.env, VecTensorEnv):
            rows, lone = ObservationRows(self.agent.env.envs.observation_space).batch(obs)
            x = self.agent.env.observe(rows)
        elif hasattr(spec, "keys"):
            raise ConfigError(
                "predict takes plain observations; call policy.sample for nested ones"
            )
        else:
            x = torch.as_tensor(np.asarray(obs), dtype=spec.dtype, device=self.agent.hparams.device)
            lone = x.dim() == len(spec.shape)
            x = x[None] if lone else x
        batch = TensorDict({"obs": x[:, None]}, [len(x), 1])
        policy = self.agent.policy
        before: Any = ()
        if state is not UNSET and state is not None:
            if len(state) != len(x):
                raise ValueError(f"state must have {len(x)} rows, one per obs, got {len(state)}")
            starts = np.broadcast_to(
                np.asarray(False if episode_start is None else episode_start, bool), len(x)
            )
            before = (begin_episodes(policy, state, torch.tensor(starts, device=x.device)),)
        with self.streams.as_global("predict"):
            out = policy.sample(batch, *before, deterministic=deterministic)
        found, following = out if isinstance(out, tuple) else (out, None)
        actions = found["actions"].cpu().numpy()
        if isinstance(self.agent.env, VecTensorEnv):
            actions = self.agent.env.actions(actions)
        if lone:
            actions = int(actions[0]) if actions.ndim == 1 else actions[0]
        return actions if state is UNSET else (actions, following)

    def policy_data(self) -> PolicyData:
        """Return the policy as data; see :class:`rlox.deployment.Exportable`."""
        return describe_policy(self.name, self.agent)

    def run_episodes(self, env: Any = None, **options: Any) -> EvaluationResult:
        """Evaluate as :meth:`rlox.algorithm.Algorithm.run_episodes` does.

        If episodes do not end, each is that of one copy from one reset to the next.
        """
        if self.agent.env.episodes_end:
            return super().run_episodes(env, **options)
        return self._run_copies(
            self.env_cls if env is None else find_env(env, self.config), **options
        )

    def _run_copies(
        self,
        env_cls: Any,
        n_episodes: int = 10,
        deterministic: bool = True,
        seed: int | None = None,
        max_steps: int = 0,
    ) -> EvaluationResult:
        """Step ``n_episodes`` copies; the horizon, not ``max_steps``, limits their episodes."""
        n = require_integer("n_episodes", n_episodes, at_least=1)
        agent, hparams = self.agent, self.agent.hparams
        steps = hparams.horizon * max(1, hparams.horizons_per_env_reset)
        returns = torch.zeros(n)
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(self.streams.seeds("evaluation", 1)[0] if seed is None else seed)
            env = env_cls(n, steps, device=hparams.device)
            obs = [env.reset(config=None).clone()]  # an env may reuse its returned tensors
            views = agent.policy.model.view_requirements.values()
            window, states = 1 + max((view.shift for view in views), default=0), None
            for t in range(steps):
                batch = TensorDict({"obs": torch.stack(obs[-window:], 1)}, [n, len(obs[-window:])])
                if isinstance(agent.policy, RecurrentPolicy):
                    every = hparams.seq_len * hparams.seqs_per_state_reset
                    if every > 0 and t % every == 0:
                        states = None
                    batch = agent.policy.latest(batch)
                    out, states = agent.policy.sample(batch, states, deterministic=deterministic)
                else:
                    out = agent.policy.sample(batch, deterministic=deterministic)
                stepped = env.step(out["actions"])
                obs = [*obs[-window:], stepped["obs"].clone()]
                returns += stepped["rewards"].reshape(n).cpu()
        return EvaluationResult(returns.double().numpy(), np.full(n, steps, np.int64))

    def state_dict(self) -> dict[str, Any]:
        """Return policy, optimiser, schedules, the storage and the env's state."""
        return self.agent.state_dict()  # type: ignore[no-any-return]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.agent.load_state_dict(state)


def fit_to_env(config: ConfigT, env: Any) -> ConfigT:
    """Return the config with other defaults if the env's episodes end.

    rl8's suit thousands of copies that are reset together.
    """
    if not is_vec_source(env):
        return config
    numbers: dict[str, Any] = dict(VEC_DEFAULTS)
    if "seqs_per_state_reset" in type(config).model_fields:
        numbers |= RECURRENT_DEFAULTS
    count = fixed_env_count(env)
    if count is not None:
        numbers["n_envs"] = count
    left_out = {k: v for k, v in numbers.items() if k not in config.model_fields_set}
    if "sgd_minibatch_size" in left_out:
        chosen: Any = config.replace(**left_out)
        copies = chosen.n_envs if count is None else min(chosen.n_envs, count)
        samples = copies * (chosen.horizon // getattr(chosen, "seq_len", 1))
        most = chosen.sgd_minibatch_size
        left_out["sgd_minibatch_size"] = next(n for n in range(most, 0, -1) if samples % n == 0)
    return config.replace(**left_out)
