"""Tokens that end completions and fill rows up, wherever models and tokenizers name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from models import Bandit, count_sevens, letter_tokenizer, llama, save_folder, sharpened
from rlox.algorithms import GRPO, BestOfN

PROMPTS = [[1, 2, 3], [4]]


def test_each_of_several_eos_ends_a_completion(tmp_path: Path) -> None:
    """As a generation config of a chat model names them."""
    pytest.importorskip("transformers")
    folder = save_folder(tmp_path / "model")
    model: Any = llama(vocab_size=11, eos_token_id=1, pad_token_id=0)
    model.generation_config.eos_token_id = [1, 5, 7]
    sharpened(model, 2.0).save_pretrained(str(folder))
    grpo = GRPO(folder, None, count_sevens, kl_coef=0.0, group_size=16, max_new_tokens=6)
    assert grpo.eos == (1, 5, 7)
    done = grpo._roll_out(grpo.parse(["ab=", "c="])).completions
    rows = [row[mask].tolist() for row, mask in zip(done.tokens, done.mask, strict=True)]
    assert {row[-1] for row, ended in zip(rows, done.ended, strict=True) if ended} == {1, 5, 7}
    assert not any(token in (1, 5, 7) for row in rows for token in row[:-1])


@pytest.mark.parametrize("own", [None, 4])
def test_a_model_without_eos_takes_the_tokenizers(own: int | None) -> None:
    """Its own comes first, and an option before both."""
    model = llama(vocab_size=11, eos_token_id=own)
    expected = (1,) if own is None else (own,)
    given: dict[str, Any] = {"tokenizer": letter_tokenizer()}
    assert GRPO(model, None, count_sevens, kl_coef=0.0, **given).eos == expected
    assert BestOfN(model, count_sevens, **given).sampling.eos == expected
    chosen = GRPO(model, None, count_sevens, kl_coef=0.0, eos_token_id=(2, 3), **given)
    assert chosen.eos == (2, 3)


def rows_given(**options: Any) -> tuple[list[Any], torch.Tensor]:
    """Return what the reward function gets."""
    seen: dict[str, Any] = {}

    def reward_fn(completions: Any, prompts: Any) -> list[float]:
        seen.update(completions=completions, prompts=prompts)
        return [0.0] * len(completions)

    model = Bandit(20)
    GRPO(model, None, reward_fn, kl_coef=0.0, **options).train_step(PROMPTS)
    return seen["completions"], seen["prompts"]


@pytest.mark.parametrize(
    ("options", "filling"),
    [({}, 0), ({"eos_token_id": 3}, 3), ({"eos_token_id": 3, "pad_token_id": 9}, 9)],
    ids=["0", "the EOS", "the option"],
)
def test_without_a_padding_token_rows_are_filled_up_all_the_same(
    options: dict[str, Any], filling: int
) -> None:
    """With the first EOS, or 0: what is filled up is known by its place, not by its token."""
    completions, prompts = rows_given(**options)
    assert prompts[-1].tolist() == [filling, filling, 4]
    assert completions[-1][:3].tolist() == [filling, filling, 4]
    n = options.get("eos_token_id")
    assert all(n not in row[3:-1].tolist() for row in completions)
