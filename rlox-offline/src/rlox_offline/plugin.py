"""Registers the offline algorithms with rlox."""

from collections.abc import Iterable

from rlox.registry.specs import AlgorithmSpec, CommandSpec, PresetsSpec, hookimpl


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register BC, TD3+BC, AWAC, IQL, CQL and FQE."""
    yield AlgorithmSpec(
        name="bc",
        summary="Behavioural cloning: supervised learning of a dataset's actions.",
        config="rlox_offline.configs:BCConfig",
        factory="rlox_offline.bc:BC",
        paper="https://papers.nips.cc/paper/95-alvinn-an-autonomous-land-vehicle-in-a-neural-network",
        needs=("dataset",),
    )
    yield AlgorithmSpec(
        name="td3_bc",
        summary="TD3 whose policy is pulled towards a dataset's actions.",
        config="rlox_offline.configs:TD3BCConfig",
        factory="rlox_offline.td3_bc:TD3BC",
        paper="https://arxiv.org/abs/2106.06860",
        needs=("dataset",),
    )
    yield AlgorithmSpec(
        name="awac",
        summary="Advantage-weighted actor-critic: actions imitated by their advantage.",
        config="rlox_offline.configs:AWACConfig",
        factory="rlox_offline.awac:AWAC",
        paper="https://arxiv.org/abs/2006.09359",
        needs=("dataset",),
    )
    yield AlgorithmSpec(
        name="iql",
        summary="Implicit Q-learning: values of a dataset's actions alone.",
        config="rlox_offline.configs:IQLConfig",
        factory="rlox_offline.iql:IQL",
        paper="https://arxiv.org/abs/2110.06169",
        needs=("dataset",),
    )
    yield AlgorithmSpec(
        name="cql",
        summary="Conservative Q-learning and Cal-QL: SAC, its critics pessimistic off the dataset.",
        config="rlox_offline.configs:CQLConfig",
        factory="rlox_offline.cql:CQL",
        paper="https://arxiv.org/abs/2006.04779",
        needs=("dataset",),
    )
    yield AlgorithmSpec(
        name="fqe",
        summary="Fitted Q evaluation: what a policy is worth, from a dataset alone.",
        config="rlox_offline.configs:FQEConfig",
        factory="rlox_offline.fqe:FQE",
        paper="https://arxiv.org/abs/1903.08738",
        needs=("dataset", "policy"),
    )


@hookimpl
def rlox_commands() -> Iterable[CommandSpec]:
    """Register ``rlox dataset``."""
    yield CommandSpec(
        name="dataset",
        summary="Look at recorded datasets, and record new ones.",
        factory="rlox_offline.cli:dataset_app",
    )


@hookimpl
def rlox_presets() -> Iterable[PresetsSpec]:
    """Register the tuned options of the offline algorithms."""
    yield PresetsSpec(
        "rlox-offline", "Tuned options of the offline algorithms.", "rlox_offline:presets.yaml"
    )
