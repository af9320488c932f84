"""Deep deterministic policy gradient (Lillicrap et al. 2016, algorithm 1).

It is :mod:`rlox_offpolicy.td3` with one critic, a step of the policy with every step of the critic
and no noise on the targets' actions.

Deviations from the paper:
    1. the authors' code of TD3 gives networks, learning rate, batch size and τ: two layers of 256
       units without batch normalisation or weight decay, actions into the first layer;
    2. before ``learning_starts`` actions are uniform;
    3. optional: Gaussian noise, prioritized replay, targets of several steps;
    4. a value is bootstrapped from the true final observation if an episode was truncated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy.typing as npt
from rlox.algorithm import Algorithm
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset
from rlox.deployment import PolicyData
from rlox.learners.terms import AddedLosses, Losses
from rlox.learners.transitions import ChosenReplayLearner
from rlox.learners.value_objectives import TwinDelayed
from rlox.logging import LoggerCallback
from rlox.nn import load_parts_state, parts_state
from rlox.training.hooks import Hooks
from torch import nn

from rlox_offpolicy.building import resolve
from rlox_offpolicy.configs import DDPGConfig
from rlox_offpolicy.metrics import TD3Metrics
from rlox_offpolicy.td3 import DeterministicActorCritic

if TYPE_CHECKING:
    from rlox_offpolicy.option_types import DDPGOptions, Unpack

__all__ = ["DDPG"]


@final
class DDPG(Algorithm):
    """Deep deterministic policy gradient, for continuous actions.

    Args:
        env_id: a gymnasium id, a callable that makes an env, an env or a vector env.
        n_envs: number of envs stepped together; an env that cannot be copied brings its own.
        seed: fixes every random draw; ``None`` draws one from entropy.
        policy: see :class:`rlox_offpolicy.td3.TD3`.
        critic: see there; values (1, B) of one critic.
        buffer: see there.
        exploration: see there.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training.
        config: a :class:`DDPGConfig`, a mapping, or the path of a YAML or JSON file.
        schedules: see :class:`rlox_offpolicy.td3.TD3`.
        added_losses: functions ``(module, batch) -> scalar`` by part, ``"critic"`` or ``"policy"``,
            that are added to the part's loss; see :mod:`rlox.learners.terms`.
        config_kwargs: options of :class:`DDPGConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown or out of range.
        EnvError: the env cannot be built.
        SpaceError: the actions are no bounded box, or the observations have no
            encoder.
    """

    name: ClassVar[str] = "ddpg"
    config_class: ClassVar[type[Config]] = DDPGConfig
    config: DDPGConfig
    learner: ChosenReplayLearner
    added_losses: AddedLosses

    def __init__(
        self,
        env_id: Any,
        n_envs: int | Unset = UNSET,
        seed: int | Unset | None = UNSET,
        policy: nn.Module | None = None,
        critic: nn.Module | None = None,
        buffer: Any = UNSET,
        exploration: Any = UNSET,
        logger: LoggerCallback | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        *,
        config: DDPGConfig | Mapping[str, Any] | str | Path | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        added_losses: Losses | None = None,
        **config_kwargs: Unpack[DDPGOptions],
    ) -> None:
        resolved, parts = resolve(
            DDPGConfig, config, env_id, (policy, critic),
            {"buffer": buffer, "exploration": exploration},
            n_envs=n_envs, seed=seed, **config_kwargs,
        )  # fmt: skip
        super().__init__(env_id, config=resolved, callbacks=callbacks, logger=logger)
        self.own_parts = parts.given
        self.actor_critic = DeterministicActorCritic(
            self,
            policy=policy,
            critic=critic,
            schedules=schedules,
            parts=parts,
            n_critics=1,
            policy_delay=1,
            objective=TwinDelayed(target_noise=0.0, noise_clip=0.0, tau=self.config.tau),
            added_losses=added_losses,
        )
        of = self.actor_critic
        self.replay, self.schedules, self.exploration = of.replay, of.schedules, of.exploration
        self.policy, self.policy_target = of.policy, of.policy_target
        self.critic, self.target = of.critic, of.critic_target
        self.learner = of.learner

    def iterate(self, hooks: Hooks) -> TD3Metrics:
        """Step the envs for one iteration and learn whenever gradient steps are due."""
        return self.actor_critic.iterate(hooks)

    def predict(self, obs: npt.ArrayLike, deterministic: bool = True) -> Any:
        """Return μ(s) for one observation, or for a batch; see ``Algorithm``."""
        return self.replay.predict(self.actor_critic.mode, obs)

    def policy_data(self) -> PolicyData:
        """Return the policy as data; see :class:`rlox.deployment.Exportable`."""
        return self.replay.policy_data(self.name, self.policy)

    def state_dict(self) -> dict[str, Any]:
        """Return networks, optimisers, noise, envs and buffer."""
        return parts_state(self.actor_critic.parts)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore networks, optimisers, noise, envs and buffer."""
        load_parts_state(self.actor_critic.parts, state)
