"""Registers DreamerV3 with rlox."""

from collections.abc import Iterable

from rlox.registry.specs import AlgorithmSpec, PresetsSpec, hookimpl


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register DreamerV3."""
    yield AlgorithmSpec(
        name="dreamer_v3",
        summary="World model with an actor and a critic that learn in imagination.",
        config="rlox_dreamer.configs:DreamerV3Config",
        factory="rlox_dreamer.dreamer:DreamerV3",
        paper="https://arxiv.org/abs/2301.04104",
    )


@hookimpl
def rlox_presets() -> Iterable[PresetsSpec]:
    """Register the tuned options of DreamerV3."""
    yield PresetsSpec("rlox-dreamer", "Tuned options of DreamerV3.", "rlox_dreamer:presets.yaml")
