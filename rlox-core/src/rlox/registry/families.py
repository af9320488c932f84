"""Tables of rlox's own algorithms and other registered names: name, class and extra.

The facades (:mod:`rlox.algorithms`, :mod:`rlox.trainers`), the types of :func:`rlox.make`, the
remedies in errors about missing distributions, the tests and the reference follow from them.
Other distributions register their algorithms by entry point alone.
"""

from __future__ import annotations

from typing import NamedTuple


class AlgorithmRow(NamedTuple):
    """One algorithm of rlox's own distributions."""

    name: str
    """Registered name."""
    class_name: str
    extra: str
    """Extra of the distribution ``rlox-core`` that installs it; its package is ``rlox_<extra>``."""
    trainer: bool = True
    """Whether ``rlox.trainers`` has a trainer for it, ``<class name>Trainer``."""
    registered: bool = True
    """Whether :func:`rlox.make` builds it; not so for best-of-N sampling, which learns
    nothing."""
    short: str = ""
    """Name of its module, if it differs from the registered name."""

    @property
    def file(self) -> str:
        """Name of the module, in ``rlox.algorithms`` and in the family."""
        return self.short or self.name

    @property
    def module(self) -> str:
        """The family's module that defines the class."""
        return f"rlox_{self.extra}.{self.file}"

    @property
    def facade(self) -> str:
        """The documented path of the class's module."""
        return f"rlox.algorithms.{self.file}"


ALGORITHMS = (
    AlgorithmRow("a2c", "A2C", "onpolicy"),
    AlgorithmRow("appo", "APPO", "onpolicy"),
    AlgorithmRow("awac", "AWAC", "offline", trainer=False),
    AlgorithmRow("bc", "BC", "offline", trainer=False),
    AlgorithmRow("best_of_n", "BestOfN", "llm", trainer=False, registered=False),
    AlgorithmRow("cql", "CQL", "offline", trainer=False),
    AlgorithmRow("crossq", "CrossQ", "offpolicy"),
    AlgorithmRow("ddpg", "DDPG", "offpolicy"),
    AlgorithmRow("discrete_sac", "DiscreteSAC", "offpolicy"),
    AlgorithmRow("dpo", "DPO", "llm", trainer=False),
    AlgorithmRow("dqn", "DQN", "offpolicy"),
    AlgorithmRow("dreamer_v3", "DreamerV3", "dreamer", short="dreamer"),
    AlgorithmRow("fqe", "FQE", "offline", trainer=False),
    AlgorithmRow("grpo", "GRPO", "llm", trainer=False),
    AlgorithmRow("hybrid_ppo", "HybridPPO", "onpolicy"),
    AlgorithmRow("impala", "IMPALA", "onpolicy"),
    AlgorithmRow("independent_q", "IndependentQ", "marl"),
    AlgorithmRow("ippo", "IPPO", "marl"),
    AlgorithmRow("iql", "IQL", "offline", trainer=False),
    AlgorithmRow("mappo", "MAPPO", "marl"),
    AlgorithmRow("online_dpo", "OnlineDPO", "llm", trainer=False),
    AlgorithmRow("ppo", "PPO", "onpolicy"),
    AlgorithmRow("qmix", "QMIX", "marl"),
    AlgorithmRow("rl8_ppo", "RL8PPO", "rl8", trainer=False),
    AlgorithmRow("rl8_recurrent_ppo", "RL8RecurrentPPO", "rl8", trainer=False),
    AlgorithmRow("sac", "SAC", "offpolicy"),
    AlgorithmRow("sft", "SFT", "llm", trainer=False),
    AlgorithmRow("td3", "TD3", "offpolicy"),
    AlgorithmRow("td3_bc", "TD3BC", "offline", trainer=False),
    AlgorithmRow("vdn", "VDN", "marl"),
)

ELSEWHERE = {
    ("rlox_callbacks", "video"): "tools",
    ("rlox_commands", "dataset"): "offline",
    ("rlox_commands", "export"): "tools",
    ("rlox_commands", "film"): "tools",
    ("rlox_commands", "llm"): "llm",
    ("rlox_commands", "marl"): "marl",
    ("rlox_commands", "plot"): "tools",
    ("rlox_commands", "report"): "tools",
    ("rlox_commands", "tune"): "tools",
    ("rlox_commands", "verify"): "tools",
    ("rlox_commands", "worker"): "distributed",
    ("rlox_env_backends", "ale"): "atari",
    ("rlox_env_backends", "envpool"): "envpool",
    ("rlox_env_backends", "mujoco"): "mujoco",
    ("rlox_run_options", "sweeps"): "tools",
}
"""Extras of the other names that rlox's own distributions register, by hook and name."""


def extra_of(hook: str, name: str) -> str | None:
    """Return the extra that installs a hook's ``name``; ``None`` if none does."""
    algorithms = {("rlox_algorithms", row.name): row.extra for row in ALGORITHMS}
    return {**ELSEWHERE, **algorithms}.get((hook, name))
