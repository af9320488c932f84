"""Registers the multi-agent algorithms, env backends and command with rlox."""

from collections.abc import Iterable

from rlox.registry.hookspecs import hookimpl
from rlox.registry.specs import AlgorithmSpec, CommandSpec, EnvBackendSpec, PresetsSpec


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register the algorithms of policy gradients and of action values."""
    yield AlgorithmSpec(
        name="independent_q",
        summary="Independent Q-learning of several agents.",
        config="rlox_marl.configs:IndependentQConfig",
        factory="rlox_marl.independent_q:IndependentQ",
        paper="https://arxiv.org/abs/1511.08779",
        trains_teams=True,
    )
    yield AlgorithmSpec(
        name="ippo",
        summary="Independent PPO for several agents.",
        config="rlox_marl.configs:IPPOConfig",
        factory="rlox_marl.ippo:IPPO",
        paper="https://arxiv.org/abs/2011.09533",
        trains_teams=True,
    )
    yield AlgorithmSpec(
        name="mappo",
        summary="Multi-agent PPO with centralised critics.",
        config="rlox_marl.configs:MAPPOConfig",
        factory="rlox_marl.mappo:MAPPO",
        paper="https://arxiv.org/abs/2103.01955",
        trains_teams=True,
    )
    yield AlgorithmSpec(
        name="qmix",
        summary="Monotone mixing of several agents' action values.",
        config="rlox_marl.configs:QMIXConfig",
        factory="rlox_marl.qmix:QMIX",
        paper="https://arxiv.org/abs/1803.11485",
        trains_teams=True,
    )
    yield AlgorithmSpec(
        name="vdn",
        summary="Sums of several agents' action values.",
        config="rlox_marl.configs:VDNConfig",
        factory="rlox_marl.vdn:VDN",
        paper="https://arxiv.org/abs/1706.05296",
        trains_teams=True,
    )


@hookimpl
def rlox_env_backends() -> Iterable[EnvBackendSpec]:
    """Register PettingZoo's envs, and those whose copies NumPy steps all at once."""
    yield EnvBackendSpec(
        name="pettingzoo",
        summary="Envs of several agents by PettingZoo and mpe2.",
        factory="rlox_marl.envs.backends:make_pettingzoo",
        priority=20,
        env_prefixes=("atari/", "butterfly/", "classic/", "mpe2/", "sisl/"),
        teams=True,
        processes=True,
    )
    yield EnvBackendSpec(
        name="vectorized",
        summary="Envs of several agents in NumPy, all copies at once.",
        factory="rlox_marl.envs.backends:make_vectorized",
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
