"""Networks: actor-critics, policies, values, target networks, defaults and validation."""

from rlox.networks.actor_critics import (
    ActorCriticPolicy,
    ContinuousPolicy,
    DiscretePolicy,
    Policy,
    make_policy,
)
from rlox.networks.defaults import (
    EncodedCritics,
    EncodedPolicy,
    make_critics,
    make_deterministic_policy,
    make_discrete_critics,
    make_logits,
    make_q_network,
    make_squashed_gaussian,
)
from rlox.networks.policies import (
    DeterministicPolicy,
    GaussianPolicy,
    RecurrentPolicy,
    SquashedGaussianPolicy,
)
from rlox.networks.predict import (
    act,
    drawing_from,
    predict,
    predict_with_memory,
    taking_masks,
)
from rlox.networks.validate import (
    Shape,
    example_observations,
    refuse_network_options,
    require_actor,
    try_actor,
    try_network,
)
from rlox.networks.values import (
    DiscreteQNetwork,
    DuelingQNetwork,
    QNetwork,
    TwinQNetwork,
    ValueNetwork,
    polyak_update,
)

__all__ = [
    "ActorCriticPolicy",
    "ContinuousPolicy",
    "DeterministicPolicy",
    "DiscretePolicy",
    "DiscreteQNetwork",
    "DuelingQNetwork",
    "EncodedCritics",
    "EncodedPolicy",
    "GaussianPolicy",
    "Policy",
    "QNetwork",
    "RecurrentPolicy",
    "Shape",
    "SquashedGaussianPolicy",
    "TwinQNetwork",
    "ValueNetwork",
    "act",
    "drawing_from",
    "example_observations",
    "make_critics",
    "make_deterministic_policy",
    "make_discrete_critics",
    "make_logits",
    "make_policy",
    "make_q_network",
    "make_squashed_gaussian",
    "polyak_update",
    "predict",
    "predict_with_memory",
    "refuse_network_options",
    "require_actor",
    "taking_masks",
    "try_actor",
    "try_network",
]
