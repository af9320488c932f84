"""Registers the multi-agent algorithms, env backends and command with rlox."""

from collections.abc import Iterable

from rlox.registry.specs import AlgorithmSpec, CommandSpec, EnvBackendSpec, PresetsSpec, hookimpl

ALGORITHMS = (
    ("IndependentQ", "independent_q", "Independent Q-learning of several agents.", "1511.08779"),
    ("IPPO", "ippo", "Independent PPO for several agents.", "2011.09533"),
    ("MAPPO", "mappo", "Multi-agent PPO with centralised critics.", "2103.01955"),
    ("QMIX", "qmix", "Monotone mixing of several agents' action values.", "1803.11485"),
    ("VDN", "vdn", "Sums of several agents' action values.", "1706.05296"),
)
"""Class, name, summary, and paper on arXiv."""


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register the policy-gradient and the action-value algorithms."""
    for cls, name, summary, number in ALGORITHMS:
        paper = f"https://arxiv.org/abs/{number}"
        yield AlgorithmSpec.of("rlox_marl", cls, name, summary, paper, trains_teams=True)


@hookimpl
def rlox_env_backends() -> Iterable[EnvBackendSpec]:
    """Register PettingZoo's envs, and the vectorised ones in NumPy."""
    yield EnvBackendSpec(
        name="pettingzoo",
        summary="Envs of several agents by PettingZoo and mpe2.",
        factory="rlox_marl.envs:make_pettingzoo",
        priority=20,
        env_prefixes=("atari/", "butterfly/", "classic/", "mpe2/", "sisl/"),
        teams=True,
        processes=True,
    )
    yield EnvBackendSpec(
        name="vectorized",
        summary="Envs of several agents in NumPy, all copies at once.",
        factory="rlox_marl.envs:make_vectorized",
        env_ids=("mpe2/simple_spread_v3",),
        env_kwargs=("N", "local_ratio", "max_cycles", "continuous_actions"),
        priority=60,
        teams=True,
    )


@hookimpl
def rlox_commands() -> Iterable[CommandSpec]:
    """Register ``rlox marl``."""
    yield CommandSpec(
        name="marl",
        summary="Let trained policies of several agents play each other.",
        factory="rlox_marl.cli:marl_app",
    )


@hookimpl
def rlox_presets() -> Iterable[PresetsSpec]:
    """Register the tuned options of the algorithms for teams."""
    yield PresetsSpec(
        "rlox-marl", "Tuned options of the algorithms for teams.", "rlox_marl:presets.yaml"
    )
