"""Losses of language models as pure functions of log-probabilities."""

from __future__ import annotations

from rlox_llm.losses.batches import PolicyBatch, PreferenceBatch, TokenLosses
from rlox_llm.losses.divergence import KL_ESTIMATORS, kl_per_token
from rlox_llm.losses.group_relative import PolicyTerms, grpo_loss
from rlox_llm.losses.pairwise import DPO_LOSSES
from rlox_llm.losses.policy import LOSS_TYPES
from rlox_llm.losses.preference import PreferenceTerms, dpo_loss
from rlox_llm.losses.vespo import VespoWeights

__all__ = [
    "DPO_LOSSES",
    "KL_ESTIMATORS",
    "LOSS_TYPES",
    "PolicyBatch",
    "PolicyTerms",
    "PreferenceBatch",
    "PreferenceTerms",
    "TokenLosses",
    "VespoWeights",
    "dpo_loss",
    "grpo_loss",
    "kl_per_token",
]
