"""Registers the on-policy algorithms with rlox."""

from collections.abc import Iterable

from rlox.registry.specs import AlgorithmSpec, PresetsSpec, hookimpl

ALGORITHMS: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    ("A2C", "a2c", "Synchronous advantage actor-critic.", "1602.01783", ()),
    ("APPO", "appo", "PPO's surrogate near a target network, on actors' unrolls.", "1912.00167",
     ("worker_addresses",)),
    ("HybridPPO", "hybrid_ppo", "PPO on native envs, collected by a Rust thread.", "1707.06347",
     ()),
    ("IMPALA", "impala", "Actors, and a learner that corrects their lag by V-trace.", "1802.01561",
     ()),
    ("PPO", "ppo", "Proximal policy optimisation with the clipped surrogate.", "1707.06347", ()),
)  # fmt: skip
"""Class, name, summary, paper on arXiv, and optional arguments."""


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register PPO, HybridPPO, A2C, APPO and IMPALA."""
    for cls, name, summary, number, takes in ALGORITHMS:
        paper = f"https://arxiv.org/abs/{number}"
        yield AlgorithmSpec.of("rlox_onpolicy", cls, name, summary, paper, takes=takes)


@hookimpl
def rlox_presets() -> Iterable[PresetsSpec]:
    """Register the tuned options of the on-policy algorithms."""
    yield PresetsSpec(
        "rlox-onpolicy", "Tuned options of the on-policy algorithms.", "rlox_onpolicy:presets.yaml"
    )
