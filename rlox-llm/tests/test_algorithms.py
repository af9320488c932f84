"""The algorithms for language models from a user's view."""

import copy

import numpy as np
import pytest
import rlox
import torch
from models import TinyLM, count_sevens, gpt2, llama, make_grpo, tiny_lm, weights
from rlox.algorithms import DPO, GRPO
from rlox_llm.generation import Sampling, complete
from rlox_llm.generators import make_generator
from rlox_llm.models import CausalModel
from rlox_llm.rewards import preferences

PROMPTS = torch.arange(12).reshape(4, 3)


def grpo(model=None, **options):
    """Return a GRPO that samples."""
    model = tiny_lm() if model is None else model
    options = {"sampler": "rlox", "learning_rate": 0.01, **options}
    return GRPO(model, copy.deepcopy(model), count_sevens, **options)


def test_the_documents_grpo_example_runs_and_says_why_it_cannot_learn():
    """Its generate takes the likeliest token, so groups are flat: one warning."""
    model, ref_model = TinyLM(), TinyLM()
    ref_model.load_state_dict(model.state_dict())
    for p in ref_model.parameters():
        p.requires_grad = False

    def reward_fn(completions, prompts):
        return [1.0 if 42 in c.tolist() else 0.0 for c in completions]

    algorithm = GRPO(
        model=model, ref_model=ref_model, reward_fn=reward_fn, group_size=4, kl_coef=0.1,
        max_new_tokens=8,
    )  # fmt: skip
    prompts = torch.randint(0, 100, (4, 5))
    with pytest.warns(RuntimeWarning, match="are the same, so that every advantage is 0") as caught:
        metrics = algorithm.train(prompts, n_epochs=3)
    assert sum("are the same" in str(one.message) for one in caught) == 1
    assert all(np.isfinite(metrics[name]) for name in ("loss", "mean_reward", "kl"))
    assert isinstance(algorithm.evaluate(prompts), float)


def test_the_documents_dpo_example_runs():
    """A step on tensors, and a training on pairs."""
    dpo = DPO(model=tiny_lm(), ref_model=tiny_lm(), beta=0.1)
    metrics = dpo.train_step(prompt=PROMPTS, chosen=PROMPTS[:, :2] + 1, rejected=PROMPTS + 2)
    assert metrics["loss"] == pytest.approx(np.log(2), abs=1e-6)
    pair = rlox.DPOPair(
        prompt_tokens=np.array([1, 2, 3], dtype=np.uint32),
        chosen_tokens=np.array([4, 5, 6, 7], dtype=np.uint32),
        rejected_tokens=np.array([8, 9], dtype=np.uint32),
    )
    metrics = dpo.train([pair], n_epochs=2)
    assert dpo.clock.gradient_steps == 3
    assert metrics["chosen_reward"] > metrics["rejected_reward"]
    loss, terms = dpo.compute_loss(PROMPTS, PROMPTS, PROMPTS + 1)
    assert loss.requires_grad
    assert set(terms) >= {"chosen_reward", "rejected_reward"}


def test_steps_equal_a_training():
    """Two ``train_step`` are a training of two epochs, bit for bit."""
    by_steps, trained = grpo(), grpo()
    for _ in range(2):
        last = by_steps.train_step(PROMPTS)
    metrics = trained.train(PROMPTS, n_epochs=2)
    assert torch.equal(weights(by_steps), weights(trained))
    speed = "gradient_steps_per_second"
    assert {k: v for k, v in last.items() if k != speed} == {
        k: v for k, v in metrics.items() if k != speed
    }


@pytest.mark.parametrize(
    ("make_model", "sampling"),
    [(tiny_lm, {}), (llama, {"temperature": 0.7, "top_k": 5, "top_p": 0.9}), (gpt2, {})],
)
def test_sampled_log_probabilities_are_those_that_are_learnt_from(make_model, sampling):
    """For every sampling model, in ragged batches, with an EOS."""
    model = CausalModel(make_model(), "model")
    prompts = [torch.tensor(row) for row in ([1, 2, 3], [4], [5, 6, 7])]
    options = Sampling(6, eos=(3, 11), **sampling)
    generator = make_generator("rlox", model)
    done = complete(generator, model, prompts, options, torch.Generator().manual_seed(0), 3)
    with torch.no_grad(), model.mode(training=False):
        logps = model.logps(done.prompts, done.tokens, done.mask, options.temperature)
    torch.testing.assert_close(done.logps, logps, atol=2e-5, rtol=0)
    ends = [bool(np.isin(row[mask].numpy()[-1], (3, 11)))
            for row, mask in zip(done.tokens, done.mask, strict=True)]  # fmt: skip
    assert ends == done.ended.tolist()


@pytest.mark.parametrize(
    ("make_model", "sampling", "n_steps"),
    [
        (tiny_lm, {}, 1),
        (llama, {"temperature": 0.8, "top_k": 6}, 3),
        (gpt2, {"temperature": 1.3, "top_p": 0.7, "min_p": 0.02}, 1),
    ],
    ids=["tiny_lm", "llama", "gpt2"],
)
def test_the_first_ratio_is_one(make_model, sampling, n_steps):
    """Old log-probabilities are computed like the new ones, with gradient or without."""
    algorithm = grpo(
        make_model(), num_iterations=n_steps, kl_coef=0.0, eos_token_id=3, epsilon=0.0,
        micro_batch_size=5, **sampling,
    )  # fmt: skip
    rollout = algorithm._roll_out(algorithm.parse([[1, 2, 3], [4], [5, 6]]))
    sums = algorithm._update(rollout)
    assert sums["clip_fraction"] == 0.0  # although any difference from 1 would be clipped


def test_global_generators_stay_as_they_are():
    """A model's own generate and dropout draw from the run's streams."""

    class Sampling(TinyLM):
        def generate(self, prompts, max_new_tokens=8):
            new = torch.randint(0, 20, (len(prompts), max_new_tokens))
            return torch.cat([prompts, new], 1)

    model = Sampling(20, 8)
    state = torch.get_rng_state()
    algorithm = make_grpo(model, dropout=True)
    algorithm.train_step(PROMPTS)
    algorithm.evaluate(PROMPTS)
    assert torch.equal(torch.get_rng_state(), state)


def test_rewards_may_be_bfloat16_with_a_gradient():
    """NumPy's truth values may answer preferences, too."""
    grpo = GRPO(
        tiny_lm(), None, lambda c, p: torch.ones(len(c), dtype=torch.bfloat16, requires_grad=True),
        kl_coef=0.0, sampler="rlox",
    )  # fmt: skip
    assert grpo.train_step([[1, 2]])["mean_reward"] == 1
    answers = preferences(lambda pairs: list(np.array([True, False])), [(torch.ones(1),) * 2] * 2)
    assert answers == [1, 0]


def test_accumulation_changes_nothing():
    """Eight rows at once equal four times two."""
    for loss_type in ("dapo", "luspo"):
        whole, parts = grpo(loss_type=loss_type), grpo(loss_type=loss_type, micro_batch_size=2)
        a, b = (algorithm.train_step(PROMPTS) for algorithm in (whole, parts))
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-6)
        torch.testing.assert_close(
            whole.optimizers["model"].gradients, parts.optimizers["model"].gradients
        )
