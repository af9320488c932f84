"""Algorithms for language models: GRPO, DPO, OnlineDPO, best-of-N, and their losses.

Names resolve on first use, so that the registry and the command line do not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rlox.errors import suggest

if TYPE_CHECKING:
    from rlox_llm.best_of_n import BestOfN
    from rlox_llm.dpo import DPO
    from rlox_llm.grpo import GRPO
    from rlox_llm.language import LanguageAlgorithm
    from rlox_llm.losses import dpo_loss, grpo_loss, kl_per_token
    from rlox_llm.online_dpo import OnlineDPO
    from rlox_llm.sft import SFT

__version__ = "2.0.0.dev0"

__all__ = [
    "DPO",
    "GRPO",
    "SFT",
    "BestOfN",
    "LanguageAlgorithm",
    "OnlineDPO",
    "dpo_loss",
    "grpo_loss",
    "kl_per_token",
]

HOMES = {
    "BestOfN": "best_of_n", "LanguageAlgorithm": "language", "OnlineDPO": "online_dpo",
    **dict.fromkeys(("dpo_loss", "grpo_loss", "kl_per_token"), "losses"),
}  # fmt: skip
"""Modules of the names; others are in one of their own."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        home = HOMES.get(name, name.lower())
        return getattr(importlib.import_module(f"rlox_llm.{home}"), name)
    raise AttributeError(f"module 'rlox_llm' has no '{name}'{suggest(name, __all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
