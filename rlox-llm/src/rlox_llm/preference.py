"""Preference pairs of completions, and the base of DPO and OnlineDPO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import torch
from rlox.config.composition import selection
from rlox.errors import ConfigError
from rlox.kernels.reference.groups import DPOPair
from rlox.registry.table import get_registry
from rlox.training.hooks import Hooks, StopTraining
from torch import Tensor

from rlox_llm.language import LanguageAlgorithm
from rlox_llm.losses import PreferenceTerms, dpo_loss
from rlox_llm.losses.pairwise import preference_loss
from rlox_llm.models import CausalModel
from rlox_llm.prompts import listed_rows, padded_completions, parse_completions, parse_rows
from rlox_llm.tokens import Texts


@dataclass(frozen=True)
class DPOMetrics:
    """Metrics of one gradient step on preference pairs."""

    loss: float
    """The loss."""
    chosen_reward: float
    """Mean of β (log π - log π_ref) of the chosen completions."""
    rejected_reward: float
    """The same of the rejected completions."""
    accuracy: float
    """Share of pairs whose chosen completion has the higher reward."""
    margin: float
    """Mean difference of the two rewards."""
    learning_rate: float
    """Adam's step size."""


@dataclass(frozen=True)
class Pair:
    """A prompt with a chosen and a rejected completion, as token ids (L,) each."""

    prompt: Tensor
    chosen: Tensor
    rejected: Tensor
    ref_logps: tuple[float, float] | None = None
    """Log-probabilities of the chosen and the rejected completion under the reference, if
    precomputed."""


def parse_pairs(pairs: Any, device: torch.device, texts: Texts) -> list[Pair]:
    """Return preference pairs.

    Args:
        pairs: :class:`rlox.DPOPair` objects; mappings with the keys ``prompt``, ``chosen`` and
            ``rejected``, each token ids, a text or a chat; or a path or dataset of such mappings,
            see :func:`rlox_llm.prompts.read_rows`.
        device: device of the token ids.
        texts: turns texts and chats into token ids.

    Raises:
        ConfigError: a text has no tokenizer.
        DatasetError: the file cannot be read, or a pair lacks a column.
        TypeError: something else was passed.
        ValueError: there is no pair, or one is empty.
    """
    columns, found = ("chosen", "rejected"), []
    for i, pair in enumerate(listed_rows("pairs", pairs)):
        row = pair
        if isinstance(pair, DPOPair):
            row = {name: getattr(pair, f"{name}_tokens") for name in ("prompt", *columns)}
        prompt, chosen, rejected = parse_completions(f"pairs[{i}]", row, columns, device, texts)
        found.append(Pair(prompt, chosen, rejected))
    return found


def zip_pairs(
    prompt: Any, chosen: Any, rejected: Any, device: torch.device, texts: Texts
) -> list[Pair]:
    """Return the pairs of three batches of B rows each.

    A completion ends with its first EOS; tokens after it are padding.

    Raises:
        ValueError: the numbers of rows differ.
    """
    rows = [
        parse_rows(name, value, device, texts, completion=name != "prompt")
        for name, value in (("prompt", prompt), ("chosen", chosen), ("rejected", rejected))
    ]
    if len({len(part) for part in rows}) != 1:
        raise ValueError(
            "prompt, chosen and rejected must have the same number of rows, got "
            f"{', '.join(str(len(part)) for part in rows)}"
        )
    eos = texts.eos
    return [Pair(p, _ended(c, eos), _ended(r, eos)) for p, c, r in zip(*rows, strict=True)]


def _ended(row: Tensor, eos: tuple[int, ...]) -> Tensor:
    ends = torch.isin(row, torch.tensor(eos, dtype=torch.long, device=row.device)).nonzero()
    return row[: int(ends[0]) + 1] if len(ends) else row


class PreferenceAlgorithm(LanguageAlgorithm):
    """An algorithm that minimises a loss of preference pairs."""

    needs_reference: ClassVar[bool] = True
    reference: CausalModel

    def prepare(self, given: Mapping[str, Any]) -> None:
        """Find the loss, and check the options against it.

        Raises:
            ConfigError: an option contradicts the loss.
        """
        cfg = self.config
        if cfg.loss_type == "exo_pair" and not cfg.label_smoothing:
            raise ConfigError("loss_type='exo_pair' needs label_smoothing above 0; 1e-3 is common")
        adds_up = get_registry().get("rlox_preference_losses", cfg.loss_type).spec.adds_up
        if not adds_up and cfg.micro_batch_size is not None:
            raise ConfigError(
                f"loss_type='{cfg.loss_type}' compares the pairs of a batch, which cannot be split "
                "into parts; leave out micro_batch_size"
            )
        self._loss = preference_loss(cfg.loss_type, selection(cfg, "loss_type").options)
        super().prepare(given)

    def pairs_loss(self, pairs: Sequence[Pair]) -> tuple[Tensor, PreferenceTerms]:
        """Return the loss of preference pairs and its terms."""
        cfg = self.config
        return dpo_loss(
            **self.pairs_logps(pairs), loss_type=self._loss, beta=cfg.beta,
            label_smoothing=cfg.label_smoothing,
        )  # fmt: skip

    def pairs_logps(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        """Return log-probabilities and lengths (B,) of completions, the arguments of ``dpo_loss``.

        Chosen and rejected completions go through each model in one pass.
        """
        prompts, tokens, mask = _rows(pairs)
        chosen, rejected = self.policy.logps(prompts, tokens, mask).sum(1).chunk(2)
        known = [pair.ref_logps for pair in pairs]
        if all(each is not None for each in known):
            refs = torch.tensor(known, dtype=chosen.dtype, device=chosen.device).unbind(1)
        else:
            refs = self.reference_logps(pairs)
        chosen_len, rejected_len = mask.sum(1).chunk(2)
        return {
            "policy_chosen": chosen, "policy_rejected": rejected, "ref_chosen": refs[0],
            "ref_rejected": refs[1], "chosen_len": chosen_len, "rejected_len": rejected_len,
        }  # fmt: skip

    def reference_logps(self, pairs: Sequence[Pair]) -> tuple[Tensor, ...]:
        """Return the log-probabilities (B,) of chosen and of rejected completions."""
        with torch.no_grad(), self.reference.mode(training=False):
            return self.reference.logps(*_rows(pairs)).sum(1).chunk(2)

    def with_reference_logps(self, pairs: Sequence[Pair], at_once: int) -> list[Pair]:
        """Return pairs that hold their log-probabilities under the reference.

        Args:
            pairs: pairs of a dataset.
            at_once: number of pairs in one forward pass.
        """
        found = []
        for start in range(0, len(pairs), at_once):
            part = pairs[start : start + at_once]
            logps = torch.stack(self.reference_logps(part), 1).tolist()
            found += [
                replace(pair, ref_logps=tuple(row)) for pair, row in zip(part, logps, strict=True)
            ]
        return found

    def learn_pairs(self, hooks: Hooks, pairs: Sequence[Pair]) -> dict[str, float]:
        """Take one gradient step on pairs; return the loss and its terms."""

        def loss_of(part: slice) -> tuple[Tensor, dict[str, float]]:
            share = len(pairs[part]) / len(pairs)
            loss, terms = self.pairs_loss(pairs[part])
            numbers = {"loss": loss.detach(), **asdict(terms)}
            return loss * share, {name: share * float(each) for name, each in numbers.items()}

        metrics = self.learn(len(pairs), loss_of)
        n_tokens = sum(len(pair.chosen) + len(pair.rejected) for pair in pairs)
        self.count(hooks, len(pairs), 2 * len(pairs), n_tokens)
        with suppress(StopTraining):
            hooks.train_batch(lambda: metrics)
        return metrics


def _rows(pairs: Sequence[Pair]) -> tuple[list[Tensor], Tensor, Tensor]:
    """Return prompts, tokens (2 B, T) and mask, all chosen completions first."""
    completions = [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]
    return [pair.prompt for pair in pairs] * 2, *padded_completions(completions)
