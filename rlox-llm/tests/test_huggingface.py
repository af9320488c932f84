"""Hugging Face's models, tokenizers, adapters and datasets, all made here."""

import copy
import json

import numpy as np
import pytest
import rlox
import torch
from models import (
    count_sevens,
    gpt2,
    letter_tokenizer,
    llama,
    make_grpo,
    of_transformers,
    save_folder,
    sharpened,
    tiny_lm,
    with_adapter,
)
from rlox.algorithms import DPO, GRPO, SFT, BestOfN
from rlox.errors import CheckpointError, ConfigError, DatasetError
from rlox_llm.generation import Sampling, complete
from rlox_llm.generators import make_generator
from rlox_llm.models import CausalModel
from rlox_llm.prompts import read_rows
from rlox_llm.rewards import ClassifierReward
from rlox_llm.tokens import Texts

transformers = pytest.importorskip("transformers")
ROWS = [{"prompt": "ab=", "answer": "ba"}, {"prompt": "cde=", "answer": "edc"}]
CHAT = [{"role": "user", "content": "ab"}]


def same_letters(completions, prompts, texts, answer):
    """Reward letters in the right position."""
    pairs = zip(texts, answer, strict=True)
    return [sum(a == b for a, b in zip(t, right, strict=False)) for t, right in pairs]


@pytest.fixture(name="folder")
def fixture_folder(tmp_path):
    """Return a folder with a Llama and a tokenizer."""
    return save_folder(tmp_path / "model")


def test_a_folder_is_a_model_a_tokenizer_and_a_reference(folder):
    """Texts are tokenized, and the reward function gets texts and columns."""
    seen = {}

    def reward_fn(completions, prompts, texts, answer):
        seen.update(texts=texts, answer=answer, rows=completions)
        return same_letters(completions, prompts, texts, answer)

    grpo = GRPO(str(folder), None, reward_fn, group_size=3, dataset=ROWS, max_new_tokens=4)
    metrics = grpo.train(2)
    assert grpo.eos == (1,)
    assert grpo.pad == 0
    assert metrics["kl"] > 0
    assert seen["answer"] == ["ba"] * 3 + ["edc"] * 3
    assert all(isinstance(text, str) and "<" not in text for text in seen["texts"])
    assert seen["rows"][0][:4].tolist() == [0, 3, 4, 2]
    assert grpo.evaluate() >= 0


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", "saved", "object"])
def test_datasets_are_files_folders_and_objects(suffix, tmp_path, folder):
    """JSONL, Parquet, folders saved by ``datasets``, and its objects."""
    datasets = pytest.importorskip("datasets")
    given = tmp_path / f"rows{suffix}"
    made = datasets.Dataset.from_list(ROWS)
    if suffix == ".jsonl":
        given.write_text("\n".join(json.dumps(row) for row in ROWS) + "\n")
    elif suffix == ".parquet":
        made.to_parquet(str(given))
    elif suffix == "saved":
        made.save_to_disk(str(given))
    else:
        given = made
    assert read_rows(given) == ROWS
    grpo = make_grpo(folder, same_letters, dataset=given)
    assert [prompt.ids.tolist() for prompt in grpo.parse(given)] == [[3, 4, 2], [5, 6, 7, 2]]
    assert grpo.train(1)["prompts"] == 2


def test_chats_go_through_the_template(folder):
    """Chats as prompts, and as completions of pairs and examples."""
    grpo = make_grpo(folder)
    assert grpo.parse([CHAT])[0].ids.tolist() == [3, 4, 2]
    answer = [{"role": "assistant", "content": "ba"}]
    sft = SFT(folder, dataset=[{"prompt": CHAT, "completion": answer}])
    example = sft.parse([{"prompt": CHAT, "completion": answer}])[0]
    assert (example.prompt.tolist(), example.completion.tolist()) == ([3, 4, 2], [4, 3, 1])
    text = sft.parse([{"prompt": "ab=", "completion": "ba"}])[0]
    assert text.completion.tolist() == example.completion.tolist()


def test_supervised_fine_tuning_learns_by_heart(folder):
    """Answers end with an EOS, and the likeliest completion is the answer."""
    rows = [{"prompt": row["prompt"], "completion": row["answer"]} for row in ROWS]
    sft = SFT(folder, learning_rate=0.01, dataset=rows)
    first = sft.train(1)
    last = sft.train(60)
    assert last["loss"] < 0.05 < first["loss"]
    assert last["token_accuracy"] == 1.0
    assert sft.predict(["ab=", "cde="], max_new_tokens=4)[:, -4:].tolist() == [
        [4, 3, 1, 0],
        [7, 6, 5, 1],
    ]
    assert sft.evaluate() == pytest.approx(-last["loss"], abs=0.05)


@pytest.mark.parametrize("kind", ["grpo", "dpo"])
def test_an_adapter_is_trained_saved_and_resumed(kind, folder, tmp_path):
    """The base stays; N + save + N equals 2 N, dropout too; the reference has no adapter."""

    def make(path=None):
        if kind == "dpo":
            pairs = [{"prompt": "ab=", "chosen": "ba", "rejected": "ab"}]
            arguments = {"dataset": pairs}
        else:
            arguments = {"dataset": ROWS, "reward_fn": same_letters}
        factory = {"grpo": GRPO, "dpo": DPO}[kind]
        if path is not None:
            return factory.from_checkpoint(path, model=str(folder), **arguments)
        return factory(
            str(folder), lora_rank=2, lora_dropout=0.1, dropout=True, learning_rate=0.05,
            **arguments,
        )  # fmt: skip

    whole, half = make(), make()
    base = {k: v.clone() for k, v in whole.model.state_dict().items() if "lora" not in k}
    whole.train(2)
    whole.train(2)
    half.train(2)
    path = tmp_path / "half.safetensors"
    half.save(path)
    restored = make(path)
    restored.train(2)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, restored.model.state_dict()[name]), name
        if name in base:
            assert torch.equal(tensor, base[name])
    saved = rlox.training.checkpoint.read(path)["state"]["algorithm"]["model"]["trained"]
    assert saved
    assert all("lora" in name for name in saved)
    if whole.reference is not None:
        assert whole.reference.adapter_off
        rows, tokens = [torch.tensor([3, 4, 2])], torch.tensor([[4, 3]])
        mask = torch.ones(1, 2, dtype=torch.bool)
        plain = CausalModel(transformers.AutoModelForCausalLM.from_pretrained(folder), "model")
        torch.testing.assert_close(
            whole.reference.logps(rows, tokens, mask), plain.logps(rows, tokens, mask)
        )
        difference = whole.policy.logps(rows, tokens, mask) - plain.logps(rows, tokens, mask)
        assert float(difference.detach().abs().max()) > 1e-4


def test_another_base_than_the_adapters_is_refused(folder, tmp_path):
    """Checkpoints hold the digest of frozen weights."""
    grpo = GRPO(folder, None, count_sevens, lora_rank=2, dataset=ROWS)
    grpo.train(1)
    grpo.save(tmp_path / "saved")
    other = save_folder(tmp_path / "other", seed=1)
    with pytest.raises(CheckpointError, match="frozen part are not those"):
        GRPO.from_checkpoint(tmp_path / "saved", model=other, reward_fn=count_sevens)


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
def test_a_model_of_peft_is_its_own_reference_while_new():
    """A trained adapter needs a separate reference."""
    model = with_adapter(llama())
    dpo = DPO(model, learning_rate=0.1)
    prompts = torch.arange(12).reshape(4, 3)
    assert dpo.train_step(prompts, prompts, prompts.flip(1))["loss"] == pytest.approx(np.log(2))
    with pytest.raises(ConfigError, match="adapter has been trained"):
        DPO(model)
    with pytest.raises(ConfigError, match="has an adapter of peft; leave out lora_rank"):
        DPO(model, lora_rank=2)
    head = with_adapter(llama(), modules_to_save=["lm_head"])
    assert DPO(head).reference.adapter_off
    with torch.no_grad():
        head.lm_head.modules_to_save.default.weight.mul_(2.0)
    with pytest.raises(ConfigError, match="adapter has been trained"):
        DPO(head)


@pytest.mark.parametrize(
    ("make_model", "layout"), [(llama, "shared_prefix"), (gpt2, "shared_prefix"), (llama, "packed")]
)
def test_layouts_agree(make_model, layout):
    """Log-probabilities, entropies and gradients of ragged rows in any order."""
    model = sharpened(make_model())
    parts = [torch.tensor(row) for row in ([1, 2, 3], [4], [5, 6])]
    prompts = [parts[i] for i in (0, 0, 1, 2, 1)]
    drawn = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 20, (5, 4), generator=drawn)
    mask = torch.arange(4) < torch.tensor([4, 2, 3, 1, 4])[:, None]
    weights = torch.randn(5, 4, generator=drawn)
    found = []
    for name in ("padded", layout):
        causal = CausalModel(model, "model", layout=name)
        with causal.mode(training=False):
            scores = causal.score(prompts, tokens, mask, 0.7, entropies=True)
        loss = (scores.logps * weights).sum() + scores.entropies.sum()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        found.append((scores.logps.detach(), scores.entropies.detach(), gradients))
    (logps, entropies, gradients), (others, other_entropies, other_gradients) = found
    torch.testing.assert_close(logps, others, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(entropies, other_entropies, atol=2e-5, rtol=1e-5)
    for one, other in zip(gradients, other_gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("make_model", [llama, gpt2])
def test_prompts_sampled_together_are_those_sampled_alone(make_model):
    """Greedy completions of ragged prompts agree, with an EOS at different tokens."""
    model = CausalModel(sharpened(make_model()), "model")
    prompts = [torch.tensor(row) for row in ([1, 2, 3, 4, 5], [4], [5, 6, 7])]
    params = Sampling(6, eos=(3, 11, 7), greedy=True)
    stream = torch.Generator()
    ours, theirs = (make_generator(name, model) for name in ("rlox", "transformers"))
    together = complete(ours, model, prompts, params, stream, 2)
    other = complete(theirs, model, prompts, params, stream, 2)
    for i, prompt in enumerate(prompts):
        alone = complete(ours, model, [prompt], params, stream)
        expected = alone.tokens[0][alone.mask[0]].tolist()
        for done in (together, other):
            for row in (2 * i, 2 * i + 1):
                assert done.tokens[row][done.mask[row]].tolist() == expected
    torch.testing.assert_close(together.logps, other.logps, atol=2e-5, rtol=1e-5)


def test_gradient_checkpointing_and_bfloat16_change_little():
    """The step is the same up to rounding, and exactly the same with checkpointing."""
    prompts = torch.arange(12).reshape(4, 3)
    base = sharpened(llama())

    def step(**options):
        dpo = DPO(copy.deepcopy(base), copy.deepcopy(base), layout="padded", **options)
        loss, metrics = dpo.compute_loss(prompts, prompts + 1, prompts.flip(1))
        loss.backward()
        return dpo.optimizers["model"].gradients.clone(), metrics

    plain, _ = step()
    checkpointed, _ = step(gradient_checkpointing=True)
    torch.testing.assert_close(plain, checkpointed)
    rounded, metrics = step(bf16=True)
    assert np.isfinite(metrics["loss"])
    assert float((plain - rounded).norm() / plain.norm()) < 0.1
    assert float((plain - rounded).norm()) > 0
    with pytest.raises(ConfigError, match="needs a model of transformers"):
        DPO(tiny_lm(), tiny_lm(1), gradient_checkpointing=True)


def test_a_sequence_classifier_rewards():
    """The reward is its only logit for prompt and completion without padding, or their text."""
    classifier = of_transformers(
        "Llama", kind="ForSequenceClassification", hidden_size=16, intermediate_size=32,
        num_hidden_layers=1, num_attention_heads=2, num_labels=1, pad_token_id=0,
    )  # fmt: skip
    done = make_grpo(llama(), [classifier, count_sevens], reward_weights=(1.0, 0.5))._roll_out(
        make_grpo().parse([[1, 2, 3], [4]])
    )
    row = done.completions
    whole = torch.cat([row.prompts[-1], row.tokens[-1][row.mask[-1]]])
    sevens = float((row.tokens[-1][row.mask[-1]] == 7).sum())
    expected = float(classifier.eval()(whole[None]).logits.detach()) + 0.5 * sevens
    assert done.rewards[-1] == pytest.approx(expected, abs=1e-5)
    with pytest.raises(ConfigError, match="num_labels=1, got LlamaForCausalLM"):
        GRPO(llama(), None, llama(), kl_coef=0.0)
    reading = ClassifierReward(classifier, letter_tokenizer())
    texts = Texts(letter_tokenizer(), (1,))
    ids = [torch.tensor([3, 4])]
    given = reading(ids, torch.tensor([[3]]), ids, ids, [texts.text([3, 4, 2])])
    assert float(given) == pytest.approx(
        float(classifier(torch.tensor([[3, 4, 2]])).logits.detach()), abs=1e-6
    )


WRONG = [
    ("no folder", lambda f: GRPO("nowhere", None, count_sevens), ConfigError,
     "there is no folder 'nowhere'"),
    ("an empty folder", lambda f: GRPO(f.parent, None, count_sevens), ConfigError,
     "holds no causal model"),
    ("a folder without a tokenizer", lambda f: BestOfN(llama(), count_sevens, tokenizer=f.parent),
     ConfigError, "holds no tokenizer"),
    ("an unknown column",
     lambda f: make_grpo(f, lambda c, p, answr: 0).train_step(ROWS), ConfigError,
     "asks for 'answr', which the dataset does not have; .*did you mean 'answer'"),
    ("texts without a tokenizer",
     lambda f: make_grpo(llama(), lambda c, p, texts: 0).train_step([[1]]),
     ConfigError, "texts of completions needs a tokenizer"),
    ("a chat after a text", lambda f: SFT(f).train_step([{"prompt": "a", "completion": CHAT}]),
     ConfigError, "is a chat, so its prompt must be one"),
    ("layout of another model", lambda f: SFT(tiny_lm(), layout="packed"), ConfigError,
     "layout='packed' needs a causal model of transformers"),
    ("sampler of another model",
     lambda f: make_grpo(sampler="transformers"),
     ConfigError, "sampler='transformers' needs a model of transformers"),
    ("layers that are not there", lambda f: SFT(f, lora_rank=2, lora_target_modules=("x",)),
     ConfigError, "no LoRA adapter fits the model"),
    ("a reference to move that has no weights",
     lambda f: GRPO(f, None, count_sevens, lora_rank=2, sync_ref_model=True), ConfigError,
     "sync_ref_model moves a reference with weights of its own"),
    ("flat groups with a reference", lambda f: GRPO(f, None, count_sevens, filter_flat_groups=True),
     ConfigError, "set both to 0"),
    ("no reference to move",
     lambda f: make_grpo(f, sync_ref_model=True), ConfigError,
     "kl_coef=0 has none"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "kind", "message"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG]
)
def test_wrong_call(call, kind, message, folder):
    """The message says what was expected."""
    with pytest.raises(kind, match=message):
        call(folder)


def test_lines_end_at_newlines_alone(tmp_path):
    """Unicode separators belong to their text, a BOM to no row; errors name the line."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a\xe2\x80\xa8b"}\r\n\n{"prompt": "c"}\n')
    assert read_rows(path) == [{"prompt": "a\u2028b"}, {"prompt": "c"}]
    path.write_text('{"prompt": "a"}\n\n{"prompt":\n')
    with pytest.raises(DatasetError, match="line 3: "):
        read_rows(path)
