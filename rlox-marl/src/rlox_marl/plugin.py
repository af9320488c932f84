"""Registers the multi-agent algorithms and their env backends with rlox."""

from collections.abc import Iterable

from rlox.registry.hookspecs import hookimpl
from rlox.registry.specs import AlgorithmSpec, EnvBackendSpec


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register MAPPO and IPPO."""
    yield AlgorithmSpec(
        name="ippo",
        summary="Independent PPO for several agents.",
        config="rlox_marl.configs:IPPOConfig",
        factory="rlox_marl.ippo:IPPO",
        paper="https://arxiv.org/abs/2011.09533",
    )
    yield AlgorithmSpec(
        name="mappo",
        summary="Multi-agent PPO with centralised critics.",
        config="rlox_marl.configs:MAPPOConfig",
        factory="rlox_marl.mappo:MAPPO",
        paper="https://arxiv.org/abs/2103.01955",
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
