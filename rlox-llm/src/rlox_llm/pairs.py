"""Preference pairs of completions, and their loss under a policy and its reference."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rlox.errors import DatasetError
from rlox.preferences import DPOPair
from torch import Tensor

from rlox_llm.configs import PreferenceConfig
from rlox_llm.losses import PreferenceTerms, dpo_loss
from rlox_llm.models import CausalModel
from rlox_llm.prompts import parse_rows, token_row

__all__ = ["Pair", "pairs_loss", "parse_pairs", "zip_pairs"]


@dataclass(frozen=True)
class Pair:
    """A prompt with a chosen and a rejected completion, as token ids (L,) each."""

    prompt: Tensor
    chosen: Tensor
    rejected: Tensor


def parse_pairs(pairs: Any, device: torch.device) -> list[Pair]:
    """Return preference pairs.

    Args:
        pairs: :class:`rlox.DPOPair` objects, mappings with the keys ``prompt``, ``chosen`` and
            ``rejected``, or the path of a JSONL file of such mappings.
        device: where the token ids are to be.

    Raises:
        DatasetError: the file cannot be read.
        TypeError: something else was passed.
        ValueError: there is no pair, or one is empty.
    """
    if isinstance(pairs, (str, Path)):
        pairs = _read(Path(pairs))
    if not isinstance(pairs, Sequence):
        raise TypeError(
            f"pairs must be a list of rlox.DPOPair or the path of a JSONL file, got "
            f"{type(pairs).__name__}"
        )
    if not pairs:
        raise ValueError("pairs must hold at least one pair, got none")
    found = []
    for i, pair in enumerate(pairs):
        if isinstance(pair, DPOPair):
            parts = (pair.prompt_tokens, pair.chosen_tokens, pair.rejected_tokens)
        elif isinstance(pair, Mapping) and {"prompt", "chosen", "rejected"} <= set(pair):
            parts = (pair["prompt"], pair["chosen"], pair["rejected"])
        else:
            raise TypeError(
                f"pairs[{i}] must be a rlox.DPOPair or a mapping with prompt, chosen and rejected, "
                f"got {type(pair).__name__}"
            )
        names = (f"pairs[{i}] {name}" for name in ("prompt", "chosen", "rejected"))
        found.append(
            Pair(*(token_row(n, part, device) for n, part in zip(names, parts, strict=True)))
        )
    return found


def _read(path: Path) -> list[Any]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        raise DatasetError(f"'{path}' is no JSONL file of preference pairs: {error}") from None


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
    completions = [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]
    prompts = [pair.prompt for pair in pairs] * 2
    lengths = torch.tensor([len(row) for row in completions], device=policy.device)
    tokens = torch.nn.utils.rnn.pad_sequence(completions, batch_first=True)
    mask = torch.arange(tokens.shape[1], device=policy.device) < lengths[:, None]
    chosen, rejected = policy.logps(prompts, tokens, mask).sum(1).chunk(2)
    with torch.no_grad(), reference.mode(training=False):
        ref_chosen, ref_rejected = reference.logps(prompts, tokens, mask).sum(1).chunk(2)
    chosen_len, rejected_len = lengths.chunk(2)
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
    )
