"""Registers the off-policy algorithms with rlox."""

from collections.abc import Iterable

from rlox.registry.specs import AlgorithmSpec, PresetsSpec, hookimpl

ALGORITHMS = (
    ("DQN", "dqn", "Deep Q-learning, with all of Rainbow, C51 and QR-DQN as options.",
     "https://www.nature.com/articles/nature14236"),
    ("SAC", "sac", "Soft actor-critic with twin critics and a learnt temperature.",
     "https://arxiv.org/abs/1812.05905"),
    ("DiscreteSAC", "discrete_sac", "Soft actor-critic for discrete actions.",
     "https://arxiv.org/abs/1910.07207"),
    ("CrossQ", "crossq",
     "Soft actor-critic with batch renormalization instead of target networks.",
     "https://arxiv.org/abs/1902.05605"),
    ("TD3", "td3", "Twin delayed deep deterministic policy gradient.",
     "https://arxiv.org/abs/1802.09477"),
    ("DDPG", "ddpg", "Deep deterministic policy gradient.", "https://arxiv.org/abs/1509.02971"),
)  # fmt: skip
"""Class, name, summary, and paper."""


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register CrossQ, DDPG, discrete SAC, DQN, SAC and TD3."""
    for row in ALGORITHMS:
        yield AlgorithmSpec.of("rlox_offpolicy", *row)


@hookimpl
def rlox_presets() -> Iterable[PresetsSpec]:
    """Register the tuned options of the off-policy algorithms."""
    yield PresetsSpec(
        "rlox-offpolicy",
        "Tuned options of the off-policy algorithms.",
        "rlox_offpolicy:presets.yaml",
    )
