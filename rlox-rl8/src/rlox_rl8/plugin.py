"""Registers the algorithms with rlox."""

from collections.abc import Iterable

from rlox.registry.specs import AlgorithmSpec, PresetsSpec, hookimpl

PAPER = "https://arxiv.org/abs/1707.06347"


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register both kinds of PPO on batched envs."""
    yield AlgorithmSpec(
        name="rl8_ppo",
        summary="PPO on batched envs that live on the learner's device.",
        config="rlox_rl8.configs:RL8PPOConfig",
        factory="rlox_rl8.rl8_ppo:RL8PPO",
        paper=PAPER,
    )
    yield AlgorithmSpec(
        name="rl8_recurrent_ppo",
        summary="rl8_ppo with recurrent policies and truncated backpropagation through time.",
        config="rlox_rl8.configs:RL8RecurrentPPOConfig",
        factory="rlox_rl8.rl8_recurrent_ppo:RL8RecurrentPPO",
        paper=PAPER,
    )


@hookimpl
def rlox_presets() -> Iterable[PresetsSpec]:
    """Register the tuned options of PPO on envs of tensors."""
    yield PresetsSpec(
        "rlox-rl8", "Tuned options of PPO on envs of tensors.", "rlox_rl8:presets.yaml"
    )
