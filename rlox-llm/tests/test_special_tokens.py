"""EOS and padding tokens, from models, tokenizers and options."""

import pytest
import tokenizers
import torch
from models import (
    Bandit,
    count_sevens,
    gpt2,
    letter_tokenizer,
    llama,
    make_grpo,
    save_folder,
    sharpened,
)
from rlox.algorithms import DPO, BestOfN
from rlox_llm.tokens import Texts

PROMPTS = [[1, 2, 3], [4]]


def test_each_of_several_eos_ends_a_completion(tmp_path):
    """As in the generation config of a chat model."""
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
    """The model's own EOS comes first, and the option before both."""
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
    """Without a padding token, with the first EOS, or 0; ``completion_ids`` have no padding."""
    seen = {}

    def reward_fn(completions, prompts, completion_ids):
        seen.update(rows=completions, prompts=prompts, ids=completion_ids)
        return [0.0] * len(completions)

    make_grpo(Bandit(20), reward_fn, group_size=2, **options).train_step(PROMPTS)
    assert seen["prompts"].tolist() == [[1, 2, 3]] * 2 + [[filling, filling, 4]] * 2
    for row, prompt, ids in zip(seen["rows"], seen["prompts"], seen["ids"], strict=True):
        assert row.tolist() == [*prompt.tolist(), *ids.tolist()]
        assert options.get("eos_token_id") not in ids.tolist()[:-1]


@pytest.mark.parametrize("pad", [9, 3], ids=["a token of its own", "the EOS"])
@pytest.mark.parametrize("make", [llama, gpt2])
def test_named_filling_is_not_learnt_from(make, pad):
    """Prompts padded on either side and completions on the right equal rows without padding."""
    model = sharpened(make(eos_token_id=3))
    dpo = DPO(model, make(seed=1, eos_token_id=3), pad_token_id=pad)
    prompts, chosen, rejected = [[1, 2, 4], [5]], [[6, 3], [7, 7, 8, 3]], [[8, 8, 3], [6, 3]]
    loss, _ = dpo.compute_loss(prompts, chosen, rejected)
    filled, _ = dpo.compute_loss(
        torch.tensor([[pad, 1, 2, 4], [pad, 5, pad, pad]]),
        torch.tensor([[6, 3, pad, pad], [7, 7, 8, 3]]),
        torch.tensor([[8, 8, 3, pad], [6, 3, pad, pad]]),
    )
    assert float(filled.detach()) == pytest.approx(float(loss.detach()), abs=1e-5)
    grpo = make_grpo(model, pad_token_id=pad)
    assert [row.ids.tolist() for row in grpo.parse(torch.tensor([[pad, 1, 2], [pad, pad, 5]]))] == [
        [1, 2], [5],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("bos", "row", "prompt"),
    [
        (None, [5, 6, 0, 0], [5, 6]), (None, [0, 0, 5], [5]), (None, [0, 0], []),
        (0, [0, 5, 6], [0, 5, 6]), (0, [0, 0, 5, 0], [0, 5]), (0, [5, 6], [5, 6]), (0, [0], [0]),
    ],
)  # fmt: skip
def test_filling_that_is_the_eos_is_left_out_of_prompts(bos, row, prompt):
    """No prompt ends with it; if it is also the BOS, one stays at the beginning."""
    grpo = make_grpo(gpt2(eos_token_id=0, bos_token_id=bos), pad_token_id=0)
    if prompt:
        assert grpo.parse(torch.tensor([row]))[0].ids.tolist() == prompt
    else:
        with pytest.raises(ValueError, match="is empty"):
            grpo.parse(torch.tensor([row]))


def test_prompts_do_not_end_and_completions_end_once():
    """Whatever the tokenizer, the user and the chat template append to a text."""
    tokenizer = letter_tokenizer()
    tokenizer.backend_tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A <eos>", special_tokens=[("<eos>", 1)]
    )
    behind = "{% if m.role == 'assistant' %}a{% endif %}{% endfor %}"  # like a newline
    tokenizer.chat_template = tokenizer.chat_template.replace("{% endfor %}", behind)
    texts = Texts(tokenizer, (1,))
    assert tokenizer("ab")["input_ids"] == [3, 4, 1]
    assert texts.prompt("prompt", "ab") == [3, 4]
    assert texts.completion("chosen", "ab", "cd") == [5, 6, 1]
    assert texts.completion("chosen", "ab", "cd<eos>") == [5, 6, 1]
    chat, answer = [{"role": "user", "content": "ab"}], [{"role": "assistant", "content": "cd"}]
    assert texts.completion("chosen", chat, answer) == [5, 6, 1]
