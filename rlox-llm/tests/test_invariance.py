"""Changes of form that affect neither loss nor gradient, and the effects of options."""

import copy

import numpy as np
import pytest
import torch
from models import Replay, count_sevens, gpt2, keep_gradients, llama, sharpened, tiny_lm
from rlox.algorithms import DPO, GRPO, SFT

ROWS = [[1, 2, 3], [4], [5, 6], [7, 8, 9]]
COMPLETIONS = {1: [[7, 3], [8, 8, 8]], 4: [[9], [7, 7]], 5: [[2, 2], [2, 2]], 7: [[7], [6, 5, 4]]}


def answers(prompts):
    """Return two completions of each prompt."""
    return [row for prompt in prompts for row in COMPLETIONS[prompt[0]]]


def other_model(model):
    """Return a reference of a model's kind."""
    return sharpened({"LlamaForCausalLM": llama, "GPT2LMHeadModel": gpt2}[type(model).__name__](1))


def step(prompts, model=None, **options):
    """Return metrics and gradients of a step of GRPO."""
    model = sharpened(llama()) if model is None else model
    options = {"kl_coef": 0.1, **options}
    grpo = GRPO(
        model, other_model(model) if options["kl_coef"] else None, count_sevens, group_size=2,
        max_new_tokens=3, generator=Replay(answers), max_grad_norm=None, pad_token_id=19, **options,
    )  # fmt: skip
    kept = keep_gradients(grpo)
    return grpo.train_step(prompts), kept[0]


def padded(side):
    """Return prompts padded like a tokenizer's."""
    ids, mask = torch.full((4, 5), 19), torch.zeros(4, 5, dtype=torch.long)
    for i, row in enumerate(ROWS):
        place = slice(5 - len(row), 5) if side == "left" else slice(0, len(row))
        ids[i, place], mask[i, place] = torch.tensor(row), 1
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize(
    ("make_model", "loss_type", "prompts", "options"),
    [
        (gpt2, "dapo", padded("left"), {}),
        (gpt2, "grpo", padded("right"), {}),
        (llama, "dapo", [ROWS[i] for i in (2, 0, 3, 1)], {}),
        (llama, "grpo", ROWS, {"micro_batch_size": 2}),
        (llama, "dapo", ROWS, {"micro_batch_size": 3}),
    ],
    ids=["left", "right", "order", "4 × 2", "3 + 3 + 2"],
)
def test_form_changes_nothing(make_model, loss_type, prompts, options):
    """Padding on either side, order and accumulation have no effect."""
    model = sharpened(make_model())
    metrics, gradients = step(ROWS, copy.deepcopy(model), loss_type=loss_type)
    others, other_gradients = step(prompts, model, loss_type=loss_type, **options)
    for name in ("loss", "kl", "mean_reward", "flat_groups", "clip_fraction"):
        assert others[name] == pytest.approx(metrics[name], abs=1e-6, rel=1e-6), name
    scale = float(gradients.norm())
    torch.testing.assert_close(other_gradients, gradients, atol=1e-6 * max(scale, 1.0), rtol=1e-5)


def by_single_rows(model, reference, beta):
    """Return GRPO's loss and KL from rows that go through the models alone, without padding."""
    losses, kls = [], []
    for prompt in ROWS:
        completions = COMPLETIONS[prompt[0]]
        rewards = np.array([row.count(7) for row in completions], np.float64)
        advantages = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
        for row, advantage in zip(completions, advantages.tolist(), strict=True):
            logps, ref_logps = (
                m(torch.tensor([prompt + row])).logits[0, len(prompt) - 1 : -1].log_softmax(1)[
                    range(len(row)), row
                ]
                for m in (model, reference)
            )  # fmt: skip
            ratio, difference = (logps - logps.detach()).exp(), ref_logps.detach() - logps
            kl = ratio * (difference.exp() - difference - 1)
            losses.append(-advantage * ratio + beta * kl)
            kls.append(kl)
    return torch.cat(losses).mean(), torch.cat(kls).mean()


@pytest.mark.parametrize(("make_model", "side"), [(llama, "right"), (gpt2, "left")])
def test_filled_up_prompts_give_the_numbers_of_single_rows(make_model, side):
    """Also with learnt positions, which TRL counts from the padding on the left."""
    model = sharpened(make_model()).eval()
    expected, kl = by_single_rows(model, other_model(model).eval(), 0.1)
    gradients = torch.autograd.grad(expected, list(model.parameters()))
    metrics, found = step(padded(side), model)
    assert metrics["loss"] == pytest.approx(float(expected.detach()), abs=2e-5, rel=2e-5)
    assert metrics["kl"] == pytest.approx(float(kl.detach()), abs=2e-5, rel=2e-5)
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    assert float((found - flat).norm() / flat.norm()) < 2e-4


@pytest.mark.parametrize(
    ("factory", "change"),
    [(DPO, {"micro_batch_size": 3}), (DPO, {"layout": "packed"}), (SFT, {"micro_batch_size": 2})],
    ids=str,
)
def test_form_changes_nothing_of_pairs_and_examples(factory, change):
    """Rows of different lengths: in parts, packed, or in another order."""
    rows = [
        {"prompt": row, "chosen": row[::-1] * 2, "rejected": [3], "completion": [4, *row]}
        for row in ROWS * 2
    ]

    def gradients(order=False, **options):
        model = sharpened(llama())
        references = {} if factory is SFT else {"ref_model": sharpened(llama(1))}
        algorithm = factory(model, **references, batch_size=8, max_grad_norm=None, **options)
        kept = keep_gradients(algorithm)
        return algorithm.train(rows[::-1] if order else rows), kept[0]

    metrics, expected = gradients()
    others, found = gradients(**change)
    for name in metrics.keys() - {"gradient_steps_per_second"}:
        assert others[name] == pytest.approx(metrics[name], abs=1e-6, rel=1e-6), name
    scale = float(expected.norm())
    torch.testing.assert_close(found, expected, atol=1e-6 * max(scale, 1.0), rtol=1e-5)


def test_flat_groups_can_be_left_out_of_the_work():
    """Loss and gradient stay, with one flat group of four, or with all flat."""
    metrics, gradients = step(ROWS, kl_coef=0.0)
    others, other_gradients = step(ROWS, kl_coef=0.0, filter_flat_groups=True)
    assert metrics["flat_groups"] == 0.25
    assert others["loss"] == pytest.approx(metrics["loss"], abs=1e-7)
    torch.testing.assert_close(other_gradients, gradients, atol=1e-7, rtol=1e-6)
    with pytest.warns(RuntimeWarning, match="are the same"):
        flat, nothing = step([ROWS[2]], kl_coef=0.0, filter_flat_groups=True)
    assert flat["loss"] == 0
    assert not nothing.any()


def test_a_reference_follows_the_policy():
    """It moves a part of the way at fixed intervals, and checkpoints hold its weights."""
    model, reference = tiny_lm(), tiny_lm(1)
    grpo = GRPO(
        model, reference, count_sevens, learning_rate=0.01, sampler="rlox", sync_ref_model=True,
        ref_model_sync_steps=2, ref_model_mixup_alpha=0.25,
    )  # fmt: skip
    before = copy.deepcopy(reference.state_dict())
    grpo.train_step(ROWS)
    torch.testing.assert_close(reference.state_dict(), before)
    grpo.train_step(ROWS)
    after = reference.state_dict()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(after[name], 0.75 * before[name] + 0.25 * value)


def test_references_run_once_or_at_every_step():
    """Both give the same numbers; after the single run the reference is not used."""
    pairs = [{"prompt": row, "chosen": [7, 7], "rejected": [3]} for row in ROWS]
    trained = []
    for precompute in (False, True):
        reference = sharpened(llama(1))
        dpo = DPO(
            sharpened(llama()), reference, dataset=pairs, batch_size=2, learning_rate=1e-3,
            precompute_ref_log_probs=precompute,
        )  # fmt: skip
        if precompute:
            reference.forward = None
        trained.append(dpo.train(4)["loss"])
    assert trained[0] == pytest.approx(trained[1], abs=1e-5)
