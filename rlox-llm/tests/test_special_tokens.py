"""Tokens that end completions and fill rows up, wherever models and tokenizers name them."""

import pytest
from models import Bandit, count_sevens, letter_tokenizer, llama, make_grpo, save_folder, sharpened
from rlox.algorithms import BestOfN

PROMPTS = [[1, 2, 3], [4]]


def test_each_of_several_eos_ends_a_completion(tmp_path):
    """As a generation config of a chat model names them."""
    pytest.importorskip("transformers")
    folder = save_folder(tmp_path / "model")
    model = llama(vocab_size=11, eos_token_id=1, pad_token_id=0)
    model.generation_config.eos_token_id = [1, 5, 7]
    sharpened(model, 2.0).save_pretrained(str(folder))
    grpo = make_grpo(folder, group_size=16, max_new_tokens=6)
    assert grpo.eos == (1, 5, 7)
    done = grpo._roll_out(grpo.parse(["ab=", "c="])).completions
    rows = [row[mask].tolist() for row, mask in zip(done.tokens, done.mask, strict=True)]
    assert {row[-1] for row, ended in zip(rows, done.ended, strict=True) if ended} == {1, 5, 7}
    assert not any(token in (1, 5, 7) for row in rows for token in row[:-1])


@pytest.mark.parametrize("own", [None, 4])
def test_a_model_without_eos_takes_the_tokenizers(own):
    """Its own comes first, and an option before both."""
    model = llama(vocab_size=11, eos_token_id=own)
    expected = (1,) if own is None else (own,)
    given = {"tokenizer": letter_tokenizer()}
    assert make_grpo(model, **given).eos == expected
    assert BestOfN(model, count_sevens, **given).sampling.eos == expected
    chosen = make_grpo(model, eos_token_id=(2, 3), **given)
    assert chosen.eos == (2, 3)


@pytest.mark.parametrize(
    ("options", "filling"),
    [({}, 0), ({"eos_token_id": 3}, 3), ({"eos_token_id": 3, "pad_token_id": 9}, 9)],
    ids=["0", "the EOS", "the option"],
)
def test_rows_are_filled_up_before_their_prompts(options, filling):
    """Without a padding token by the first EOS, or 0; completions come by name without filling."""
    seen = {}

    def reward_fn(completions, prompts, completion_ids):
        seen.update(rows=completions, prompts=prompts, ids=completion_ids)
        return [0.0] * len(completions)

    make_grpo(Bandit(20), reward_fn, group_size=2, **options).train_step(PROMPTS)
    assert seen["prompts"].tolist() == [[1, 2, 3]] * 2 + [[filling, filling, 4]] * 2
    for row, prompt, ids in zip(seen["rows"], seen["prompts"], seen["ids"], strict=True):
        assert row.tolist() == [*prompt.tolist(), *ids.tolist()]
        assert options.get("eos_token_id") not in ids.tolist()[:-1]
