"""Losses of language models as pure functions of log-probabilities."""

from __future__ import annotations

from rlox_llm.losses.pairwise import DPO_LOSSES, PreferenceBatch, PreferenceTerms, dpo_loss
from rlox_llm.losses.policy import (
    KL_ESTIMATORS,
    LOSS_TYPES,
    PolicyBatch,
    PolicyTerms,
    TokenLosses,
    grpo_loss,
    kl_per_token,
)

__all__ = [
    "DPO_LOSSES",
    "KL_ESTIMATORS",
    "LOSS_TYPES",
    "PolicyBatch",
    "PolicyTerms",
    "PreferenceBatch",
    "PreferenceTerms",
    "TokenLosses",
    "dpo_loss",
    "grpo_loss",
    "kl_per_token",
]
