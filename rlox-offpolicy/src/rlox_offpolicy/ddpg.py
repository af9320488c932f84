"""Deep deterministic policy gradient (Lillicrap et al. 2016, algorithm 1).

:mod:`rlox_offpolicy.td3` with one critic, a policy step after every critic step, and no noise on
the target actions.

Deviations from the paper:
    1. networks, learning rate, batch size and τ are those of the TD3 authors' code: two layers of
       256 units without batch normalisation or weight decay, actions into the first layer;
    2. before ``learning_starts`` actions are uniform;
    3. optional: Gaussian noise, prioritized replay, n-step targets;
    4. values are bootstrapped from the true final observation where an episode is truncated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from rlox.replay.algorithm import Network, ReplayAlgorithm

from rlox_offpolicy.configs import DDPGConfig
from rlox_offpolicy.td3 import TD3Metrics, TwinDelayed, deterministic_networks

if TYPE_CHECKING:
    from rlox_offpolicy.option_types import DDPGArguments, Unpack


@final
class DDPG(ReplayAlgorithm):
    """Deep deterministic policy gradient, for continuous actions.

    The arguments are those of :class:`rlox_offpolicy.td3.TD3`, with values (1, B) of one critic.
    """

    name = "ddpg"
    config_class = DDPGConfig
    metrics_class = TD3Metrics
    targets = ("policy", "critic")
    arguments = (
        "env_id", "n_envs", "seed", "policy", "critic", "buffer", "exploration", "logger",
        "callbacks",
    )  # fmt: skip
    if TYPE_CHECKING:

        def __init__(self, env_id: Any, *given: Any, **options: Unpack[DDPGArguments]) -> None: ...

    def make_networks(self, space: Any, size: int, **sizes: Any) -> dict[str, Network]:
        """Return the policy and one critic."""
        return deterministic_networks(space, size, n_critics=1, **sizes)

    def make_objective(self, size: int) -> TwinDelayed:
        """Return TD3's objective without noise and delay."""
        return TwinDelayed(0.0, 0.0, self.config.tau, policy_delay=1)
