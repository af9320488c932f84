"""Losses of language models as pure functions of log-probabilities."""

from __future__ import annotations

from rlox_llm.losses.pairwise import PreferenceBatch, PreferenceTerms, dpo_loss
from rlox_llm.losses.policy import (
    KL_ESTIMATORS,
    PolicyBatch,
    PolicyTerms,
    TokenLosses,
    grpo_loss,
    kl_per_token,
)

__all__ = [
    "KL_ESTIMATORS",
    "PolicyBatch",
    "PolicyTerms",
    "PreferenceBatch",
    "PreferenceTerms",
    "TokenLosses",
    "dpo_loss",
    "grpo_loss",
    "kl_per_token",
]
