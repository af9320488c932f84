"""Registers the off-policy algorithms with rlox."""

from collections.abc import Iterable

from rlox.registry.specs import AlgorithmSpec, PresetsSpec, hookimpl


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register CrossQ, DDPG, discrete SAC, DQN, SAC and TD3."""
    yield AlgorithmSpec(
        name="dqn",
        summary="Deep Q-learning, with all of Rainbow, C51 and QR-DQN as options.",
        config="rlox_offpolicy.configs:DQNConfig",
        factory="rlox_offpolicy.dqn:DQN",
        paper="https://www.nature.com/articles/nature14236",
    )
    yield AlgorithmSpec(
        name="sac",
        summary="Soft actor-critic with twin critics and a learnt temperature.",
        config="rlox_offpolicy.configs:SACConfig",
        factory="rlox_offpolicy.sac:SAC",
        paper="https://arxiv.org/abs/1812.05905",
    )
    yield AlgorithmSpec(
        name="discrete_sac",
        summary="Soft actor-critic for discrete actions.",
        config="rlox_offpolicy.configs:DiscreteSACConfig",
        factory="rlox_offpolicy.discrete_sac:DiscreteSAC",
        paper="https://arxiv.org/abs/1910.07207",
    )
    yield AlgorithmSpec(
        name="crossq",
        summary="Soft actor-critic with batch renormalization instead of target networks.",
        config="rlox_offpolicy.crossq_config:CrossQConfig",
        factory="rlox_offpolicy.crossq:CrossQ",
        paper="https://arxiv.org/abs/1902.05605",
    )
    yield AlgorithmSpec(
        name="td3",
        summary="Twin delayed deep deterministic policy gradient.",
        config="rlox_offpolicy.configs:TD3Config",
        factory="rlox_offpolicy.td3:TD3",
        paper="https://arxiv.org/abs/1802.09477",
    )
    yield AlgorithmSpec(
        name="ddpg",
        summary="Deep deterministic policy gradient.",
        config="rlox_offpolicy.configs:DDPGConfig",
        factory="rlox_offpolicy.ddpg:DDPG",
        paper="https://arxiv.org/abs/1509.02971",
    )


@hookimpl
def rlox_presets() -> Iterable[PresetsSpec]:
    """Register the tuned options of the off-policy algorithms."""
    yield PresetsSpec(
        "rlox-offpolicy",
        "Tuned options of the off-policy algorithms.",
        "rlox_offpolicy:presets.yaml",
    )
