"""Registers the algorithms with rlox."""

from collections.abc import Iterable

from rlox.registry.specs import AlgorithmSpec, PresetsSpec, hookimpl

PAPER = "https://arxiv.org/abs/1707.06347"


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register both kinds of PPO on batched envs."""
    summary = "PPO on batched envs that live on the learner's device."
    yield AlgorithmSpec.of("rlox_rl8", "RL8PPO", "rl8_ppo", summary, PAPER)
    summary = "rl8_ppo with recurrent policies and truncated backpropagation through time."
    yield AlgorithmSpec.of("rlox_rl8", "RL8RecurrentPPO", "rl8_recurrent_ppo", summary, PAPER)


@hookimpl
def rlox_presets() -> Iterable[PresetsSpec]:
    """Register the tuned options of PPO on envs of tensors."""
    yield PresetsSpec(
        "rlox-rl8", "Tuned options of PPO on envs of tensors.", "rlox_rl8:presets.yaml"
    )
