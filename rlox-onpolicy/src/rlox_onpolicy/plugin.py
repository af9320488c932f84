"""Registers the on-policy algorithms with rlox."""

from collections.abc import Iterable

from rlox.registry.specs import AlgorithmSpec, PresetsSpec, hookimpl


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register PPO, HybridPPO, A2C, APPO and IMPALA."""
    yield AlgorithmSpec(
        name="a2c",
        summary="Synchronous advantage actor-critic.",
        config="rlox_onpolicy.configs:A2CConfig",
        factory="rlox_onpolicy.a2c:A2C",
        paper="https://arxiv.org/abs/1602.01783",
    )
    yield AlgorithmSpec(
        name="appo",
        summary="PPO's surrogate near a target network, on the unrolls of actors.",
        config="rlox_onpolicy.actor_options:APPOConfig",
        factory="rlox_onpolicy.appo:APPO",
        paper="https://arxiv.org/abs/1912.00167",
        takes=("worker_addresses",),
    )
    yield AlgorithmSpec(
        name="hybrid_ppo",
        summary="PPO on native envs, collected by a Rust thread.",
        config="rlox_onpolicy.configs:HybridPPOConfig",
        factory="rlox_onpolicy.hybrid_ppo:HybridPPO",
        paper="https://arxiv.org/abs/1707.06347",
    )
    yield AlgorithmSpec(
        name="impala",
        summary="Actors beside a learner that corrects their lag by V-trace.",
        config="rlox_onpolicy.actor_options:IMPALAConfig",
        factory="rlox_onpolicy.impala:IMPALA",
        paper="https://arxiv.org/abs/1802.01561",
    )
    yield AlgorithmSpec(
        name="ppo",
        summary="Proximal policy optimisation with the clipped surrogate.",
        config="rlox_onpolicy.configs:PPOConfig",
        factory="rlox_onpolicy.ppo:PPO",
        paper="https://arxiv.org/abs/1707.06347",
    )


@hookimpl
def rlox_presets() -> Iterable[PresetsSpec]:
    """Register the tuned options of the on-policy algorithms."""
    yield PresetsSpec(
        "rlox-onpolicy", "Tuned options of the on-policy algorithms.", "rlox_onpolicy:presets.yaml"
    )
