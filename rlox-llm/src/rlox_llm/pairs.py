"""Preference pairs of completions and their loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from rlox.config.composition import selection
from rlox.reference.groups import DPOPair
from torch import Tensor

from rlox_llm.configs import PreferenceConfig
from rlox_llm.files import read_rows
from rlox_llm.losses import PreferenceTerms, dpo_loss
from rlox_llm.models import CausalModel
from rlox_llm.prompts import parse_rows, require_columns, token_row
from rlox_llm.tokens import Texts

__all__ = [
    "Pair",
    "pairs_loss",
    "parse_pairs",
    "reference_logps",
    "with_reference_logps",
    "zip_pairs",
]


@dataclass(frozen=True)
class Pair:
    """A prompt with a chosen and a rejected completion, as token ids (L,) each."""

    prompt: Tensor
    chosen: Tensor
    rejected: Tensor
    ref_logps: tuple[float, float] | None = None
    """Log-probabilities of the chosen and the rejected completion under the reference, if they were
    computed before."""


def parse_pairs(pairs: Any, device: torch.device, texts: Texts) -> list[Pair]:
    """Return preference pairs.

    Args:
        pairs: :class:`rlox.DPOPair` objects; mappings with the keys ``prompt``, ``chosen`` and
            ``rejected``, each token ids, a text or a chat; or a path or dataset of such mappings,
            see :func:`rlox_llm.files.read_rows`.
        device: where the token ids are to be.
        texts: turns texts and chats into token ids.

    Raises:
        ConfigError: there is text and no tokenizer.
        DatasetError: the file cannot be read, or a pair lacks a column.
        TypeError: something else was passed.
        ValueError: there is no pair, or one is empty.
    """
    pairs = read_rows(pairs)
    if not isinstance(pairs, Sequence):
        raise TypeError(
            f"pairs must be a list of rlox.DPOPair or the path of a JSONL file, got "
            f"{type(pairs).__name__}"
        )
    if not pairs:
        raise ValueError("pairs must hold at least one pair, got none")
    return [_parse(f"pairs[{i}]", pair, device, texts) for i, pair in enumerate(pairs)]


def _parse(what: str, pair: Any, device: torch.device, texts: Texts) -> Pair:
    if isinstance(pair, DPOPair):
        parts = {
            "prompt": pair.prompt_tokens,
            "chosen": pair.chosen_tokens,
            "rejected": pair.rejected_tokens,
        }
    elif isinstance(pair, Mapping):
        require_columns(what, pair, ("prompt", "chosen", "rejected"))
        prompt = pair["prompt"]
        parts = {"prompt": texts.prompt(f"{what} prompt", prompt)} | {
            name: texts.completion(f"{what} {name}", prompt, pair[name])
            for name in ("chosen", "rejected")
        }
    else:
        raise TypeError(
            f"{what} must be a rlox.DPOPair or a mapping with prompt, chosen and rejected, "
            f"got {type(pair).__name__}"
        )
    rows = {name: token_row(f"{what} {name}", ids, device) for name, ids in parts.items()}
    return Pair(rows["prompt"], rows["chosen"], rows["rejected"])


def zip_pairs(
    prompt: Any, chosen: Any, rejected: Any, device: torch.device, eos: tuple[int, ...]
) -> list[Pair]:
    """Return the pairs of three batches of B rows each.

    A completion ends with its first EOS; what follows it is filling.

    Raises:
        ValueError: the numbers of rows differ.
    """
    rows = [
        parse_rows(name, value, device)
        for name, value in (("prompt", prompt), ("chosen", chosen), ("rejected", rejected))
    ]
    if len({len(part) for part in rows}) != 1:
        raise ValueError(
            "prompt, chosen and rejected must have the same number of rows, got "
            f"{', '.join(str(len(part)) for part in rows)}"
        )
    return [Pair(p, _ended(c, eos), _ended(r, eos)) for p, c, r in zip(*rows, strict=True)]


def _ended(row: Tensor, eos: tuple[int, ...]) -> Tensor:
    ends = torch.isin(row, torch.tensor(eos, dtype=torch.long, device=row.device)).nonzero()
    return row[: int(ends[0]) + 1] if len(ends) else row


def pairs_loss(
    policy: CausalModel,
    reference: CausalModel,
    pairs: Sequence[Pair],
    config: PreferenceConfig,
) -> tuple[Tensor, PreferenceTerms]:
    """Return the loss of preference pairs and what it is made of.

    Chosen and rejected completions go through each model in one pass.
    """
    prompts, tokens, mask = _rows(pairs, policy.device)
    chosen, rejected = policy.logps(prompts, tokens, mask).sum(1).chunk(2)
    known = [pair.ref_logps for pair in pairs]
    if all(each is not None for each in known):
        refs = torch.tensor(known, dtype=chosen.dtype, device=chosen.device)
        ref_chosen, ref_rejected = refs[:, 0], refs[:, 1]
    else:
        ref_chosen, ref_rejected = reference_logps(reference, pairs)
    chosen_len, rejected_len = mask.sum(1).chunk(2)
    return dpo_loss(
        chosen,
        rejected,
        ref_chosen,
        ref_rejected,
        chosen_len=chosen_len,
        rejected_len=rejected_len,
        loss_type=config.loss_type,
        beta=config.beta,
        label_smoothing=config.label_smoothing,
        options=selection(config, "loss_type").options,
    )


def reference_logps(reference: CausalModel, pairs: Sequence[Pair]) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities (B,) of chosen and of rejected completions."""
    with torch.no_grad(), reference.mode(training=False):
        chosen, rejected = reference.logps(*_rows(pairs, reference.device)).sum(1).chunk(2)
    return chosen, rejected


def with_reference_logps(reference: CausalModel, pairs: Sequence[Pair], at_once: int) -> list[Pair]:
    """Return pairs that hold their log-probabilities under the reference.

    Args:
        reference: runs once over all pairs.
        pairs: of a dataset.
        at_once: pairs of one forward pass.
    """
    found = []
    for start in range(0, len(pairs), at_once):
        part = pairs[start : start + at_once]
        logps = torch.stack(reference_logps(reference, part), 1).tolist()
        found += [
            replace(pair, ref_logps=tuple(row)) for pair, row in zip(part, logps, strict=True)
        ]
    return found


def _rows(pairs: Sequence[Pair], device: torch.device) -> tuple[list[Tensor], Tensor, Tensor]:
    """Return prompts, tokens (2 B, T) and mask, all chosen completions first."""
    completions = [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]
    lengths = torch.tensor([len(row) for row in completions], device=device)
    tokens = torch.nn.utils.rnn.pad_sequence(completions, batch_first=True)
    mask = torch.arange(tokens.shape[1], device=device) < lengths[:, None]
    return [pair.prompt for pair in pairs] * 2, tokens, mask
