"""Registers the offline algorithms with rlox."""

from collections.abc import Iterable

from rlox.registry.specs import AlgorithmSpec, CommandSpec, PresetsSpec, hookimpl

ALVINN = "https://papers.nips.cc/paper/95-alvinn-an-autonomous-land-vehicle-in-a-neural-network"
ARXIV = "https://arxiv.org/abs/"

ALGORITHMS = (
    ("BC", "bc", "Behavioural cloning: supervised learning of a dataset's actions.", ALVINN),
    ("TD3BC", "td3_bc", "TD3 whose policy is pulled towards a dataset's actions.",
     ARXIV + "2106.06860"),
    ("AWAC", "awac", "Advantage-weighted actor-critic: actions imitated by their advantage.",
     ARXIV + "2006.09359"),
    ("IQL", "iql", "Implicit Q-learning: values of a dataset's actions alone.",
     ARXIV + "2110.06169"),
    ("CQL", "cql",
     "Conservative Q-learning and Cal-QL: SAC, its critics pessimistic off the dataset.",
     ARXIV + "2006.04779"),
    ("FQE", "fqe", "Fitted Q evaluation: the value of a policy, from a dataset alone.",
     ARXIV + "1903.08738"),
)  # fmt: skip
"""Class, name, summary, and paper."""


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register BC, TD3+BC, AWAC, IQL, CQL and FQE."""
    for cls, name, summary, paper in ALGORITHMS:
        needs = ("dataset", "policy") if name == "fqe" else ("dataset",)
        yield AlgorithmSpec.of("rlox_offline", cls, name, summary, paper, needs=needs)


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
