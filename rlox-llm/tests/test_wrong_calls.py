"""Errors of wrong calls state the expectation and the remedy."""

import copy
import math

import pytest
import torch
from models import Bandit, TinyLM, count_sevens, llama, tiny_lm
from models import make_grpo as grpo
from rlox.algorithms import DPO, GRPO, OnlineDPO
from rlox.errors import CheckpointError, ConfigError, DatasetError
from torch import nn

PROMPTS = torch.arange(12).reshape(4, 3)


def online(preference_fn, **options):
    """Return an OnlineDPO that samples."""
    return OnlineDPO(tiny_lm(), tiny_lm(), preference_fn, sampler="rlox", **options)


def rewarding(answer):
    """Return a GRPO whose reward function returns ``answer``'s result."""
    return grpo(None, lambda completions, prompts: answer(completions))


class Wrong(TinyLM):
    """Its generate returns a function of the prompts."""

    def __init__(self, answer):
        super().__init__(20, 8)
        self.answer = answer

    def generate(self, prompts, max_new_tokens=8):
        return self.answer(prompts)


class Headless(nn.Module):
    """Returns no logits."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return torch.zeros(*x.shape) + self.weight


def with_shared_weights():
    """Pass a reference that shares an embedding with the model."""
    model, other = tiny_lm(), tiny_lm()
    other.embed = model.embed
    DPO(model, other)


def dpo():
    """Return a DPO."""
    return DPO(tiny_lm(), tiny_lm(1))


CALLS = [
    ("too few rewards", lambda: rewarding(lambda c: [1.0]).train_step(PROMPTS),
     ValueError, "must return 16 rewards, one for each completion, got 1"),
    ("one text", lambda: rewarding(lambda c: "good").train_step(PROMPTS),
     TypeError, "must return a number for each completion, got str"),
    ("rewards by key", lambda: rewarding(lambda c: dict.fromkeys(range(16), 1.0))
     .train_step(PROMPTS), TypeError, "must return a number for each completion, got dict"),
    ("no reward", lambda: rewarding(lambda c: [None] * len(c)).train_step(PROMPTS),
     ValueError, "no completion got a reward"),
    ("rewards of TRL", lambda: grpo(None, lambda completions, **kwargs: [0.0]), ConfigError,
     r"must take \(completions, prompts, ...\) in this order"),
    ("rewards in TRL's order", lambda: grpo(None, lambda prompts, completions, **kwargs: [0.0]),
     ConfigError, r"must take \(completions, prompts, ...\) in this order"),
    ("a reward that is not a function", lambda: grpo(None, [1.0]), TypeError, "must be callable"),
    ("nan", lambda: rewarding(lambda c: [math.nan] * len(c)).train_step(PROMPTS),
     ValueError, "returned nan for completion 0, expected a finite number"),
    ("no reward function", lambda: GRPO(tiny_lm(), tiny_lm()), ConfigError, "needs reward_fn="),
    ("weights", lambda: grpo(reward_weights=(1.0, 2.0)), ConfigError,
     "reward_weights must hold 1 numbers, one for each reward_fn, got 2"),
    ("nothing trainable", lambda: grpo(model=tiny_lm().requires_grad_(False)), ConfigError,
     "nothing would learn"),
    ("no reference", lambda: GRPO(tiny_lm(), None, count_sevens), ConfigError,
     "needs ref_model=.*, or kl_coef=0, which needs none"),
    ("shared weights", with_shared_weights, ConfigError, "shares its parameters with model"),
    ("no module", lambda: grpo(model=lambda x: x), TypeError, "model must be a torch.nn.Module"),
    ("no logits", lambda: grpo(model=Headless()).train_step(PROMPTS), ValueError,
     r"must return logits \(B, L, V\)"),
    ("k1", lambda: grpo(kl_coef=0.1, kl_estimator="k1", use_bias_correction_kl=False),
     ConfigError, "gradient of kl_estimator='k1' alone is 0 in expectation"),
    ("loss", lambda: grpo(loss_type="ppo"), ConfigError, r"^unknown policy loss 'ppo'.*\)$"),
    ("prompts of text", lambda: grpo().train_step(["hello"]), ConfigError,
     "needs a tokenizer"),
    ("one text as prompts", lambda: grpo().train_step("hello"), DatasetError,
     "put a single text into a list"),
    ("no prompts", lambda: grpo().train_step([]), ValueError, "at least one row"),
    ("an empty prompt", lambda: grpo().train_step([[1], []]), ValueError, r"prompts\[1\] is empty"),
    ("floats", lambda: grpo().train_step(torch.rand(2, 3)), TypeError, "must be integers"),
    ("ids outside", lambda: grpo().train_step([[1, 20]]), ValueError, "outside its vocabulary"),
    ("ids outside logits", lambda: grpo(model=Bandit(3)).train_step([[5]]), ValueError,
     "token id 5 lies outside the vocabulary of the model, which has 3 tokens"),
    ("context", lambda: grpo(model=llama(), max_new_tokens=30).train_step(PROMPTS), ValueError,
     "pass the context of the model, 32 tokens"),
    ("a pair beyond the context",
     lambda: DPO(llama(), llama(1)).train_step([[1] * 20], [[2] * 13], [[3]]), ValueError,
     "has 33 tokens, which pass the context of the model, 32 tokens"),
    ("a mask of another shape",
     lambda: grpo().train_step({"input_ids": PROMPTS, "attention_mask": PROMPTS[:2]}), ValueError,
     "attention_mask must have shape"),
    ("generate without new tokens",
     lambda: grpo(model=Wrong(lambda p: p), sampler="auto").train_step(PROMPTS), ValueError,
     "returned no new tokens"),
    ("generate without prompts",
     lambda: grpo(model=Wrong(lambda p: p + 1), sampler="auto").train_step(PROMPTS), ValueError,
     "must begin with the prompts"),
    ("generate returns a list",
     lambda: grpo(model=Wrong(lambda p: p.tolist()), sampler="auto").train_step(PROMPTS),
     ValueError, "must return rows"),
    ("no generate", lambda: grpo(model=Bandit(), sampler="model"), ConfigError,
     r"needs a generate\(prompt_ids, max_new_tokens\)"),
    ("nothing to evaluate on", lambda: grpo().evaluate(), ConfigError, "pass rows to evaluate on"),
    ("no steps", lambda: grpo(dataset=PROMPTS).train(0), ValueError, "n_gradient_steps must be"),
    ("nothing to finish", lambda: grpo(dataset=PROMPTS).train(), ValueError,
     "no interrupted training"),
    ("no new tokens", lambda: grpo().predict(PROMPTS, max_new_tokens=0), ValueError,
     "max_new_tokens must be"),
    ("an adapter's scale", lambda: grpo(lora_alpha=8.0), ConfigError, "set lora_rank"),
    ("rows of no table", lambda: grpo(num_completions_to_print=3), ConfigError,
     "only log_completions=True makes"),
    ("an EOS outside", lambda: grpo(model=llama(), eos_token_id=20), ConfigError,
     "eos_token_id=20 lies outside the vocabulary of the model, 20 tokens"),
    ("a prompt beyond the context",
     lambda: grpo(model=llama(), dataset=[[1], [1] * 30]), DatasetError,
     r"prompts\[1\] has 30 tokens, which with max_new_tokens=8 pass the context"),
    ("a missing column",
     lambda: grpo(dataset=[{"prompt": [1], "answer": 2}, {"prompt": [3]}]), DatasetError,
     r"prompts\[1\] has the columns prompt, and prompts\[0\] prompt, answer"),
    ("another answer", lambda: online(lambda pairs: [2] * len(pairs)).train_step(PROMPTS),
     ValueError, "must answer 0 if the first row is better, 1 if the second is, got 2"),
    ("rows of pairs", lambda: dpo().train_step(PROMPTS, PROMPTS, PROMPTS[:1]), ValueError,
     "the same number of rows, got 4, 4, 1"),
    ("pairs of something else", lambda: dpo().train([1]), TypeError, r"pairs\[0\] must be a map"),
    ("aot in parts", lambda: DPO(tiny_lm(), tiny_lm(), loss_type="aot", micro_batch_size=2),
     ConfigError, "leave out micro_batch_size"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "kind", "message"), [case[1:] for case in CALLS], ids=[case[0] for case in CALLS]
)
def test_wrong_call(call, kind, message):
    """The message says what was expected."""
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize("what", ["reference", "dataset", "model"])
def test_checkpoints_of_other_parts_are_refused(what, tmp_path):
    """Another reference, another dataset, another model."""
    model = tiny_lm()
    made = GRPO(model, copy.deepcopy(model), count_sevens, sampler="rlox", dataset=PROMPTS)
    made.train(1)
    made.save(str(tmp_path / "saved"))
    arguments = {"ref_model": tiny_lm(), "dataset": PROMPTS, "model": tiny_lm(3)}
    wrong = {"reference": {"ref_model": tiny_lm(7)}, "dataset": {"dataset": PROMPTS[:2]},
             "model": {"model": tiny_lm(3, 21)}}  # fmt: skip
    message = {"reference": "weights of the ref_model are not those", "dataset": "of 4 rows",
               "model": "has shape"}  # fmt: skip
    arguments.update(wrong[what])
    with pytest.raises(CheckpointError, match=message[what]):
        GRPO.from_checkpoint(tmp_path / "saved", reward_fn=count_sevens, **arguments)


def test_a_closed_algorithm_trains_no_more():
    """Neither by steps nor on rows passed to it."""
    algorithm = grpo()
    algorithm.close()
    with pytest.raises(RuntimeError, match="was closed"):
        algorithm.train_step(PROMPTS)
    with pytest.raises(RuntimeError, match="was closed"):
        algorithm.train(PROMPTS)


def test_a_failed_reward_function_leaves_the_model_as_it_was():
    """The next step then learns from its own rows."""
    answers = iter([[1.0], None])

    def reward_fn(completions, prompts):
        return next(answers) or count_sevens(completions, prompts)

    algorithm = grpo(None, reward_fn)
    before = copy.deepcopy(algorithm.model.state_dict())
    with pytest.raises(ValueError, match="must return 16 rewards"):
        algorithm.train_step(PROMPTS)
    torch.testing.assert_close(algorithm.model.state_dict(), before)
    assert algorithm.train_step(PROMPTS)["prompts"] == 4
