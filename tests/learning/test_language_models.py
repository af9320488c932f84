"""Small language models learn to reverse words: GRPO as TRL's, DPO, OnlineDPO and best-of-N."""

import copy
import json
import tempfile
import time
import warnings
from pathlib import Path

import language_task as words
import numpy as np
import pytest
import torch
from rlox_llm.best_of_n import BestOfN
from rlox_llm.dpo import DPO
from rlox_llm.grpo import GRPO
from rlox_llm.online_dpo import OnlineDPO
from rlox_llm.prompts import parse_prompts

SCORES = Path(__file__).parents[2] / "scores" / "language-models"
SEEDS, UPDATES, EVERY, PROMPTS, GROUP, RATE = 3, 80, 20, 16, 8, 1e-4


def keep(name, result):
    """Write a result to ``scores/``."""
    SCORES.mkdir(exist_ok=True)
    (SCORES / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(name, result, flush=True)


def rlox_curve(start, task, seed):
    """Return the accuracy on the test after every ``EVERY`` updates."""
    grpo = GRPO(
        copy.deepcopy(start), None, words.reward, group_size=GROUP, kl_coef=0.0, seed=seed,
        max_new_tokens=words.LIMIT, learning_rate=RATE, prompts_per_rollout=PROMPTS,
        dataset=task.train, torch_threads=1,
    )  # fmt: skip
    curve = []
    for _ in range(UPDATES // EVERY):
        grpo.train(EVERY)
        curve.append(words.accuracy(grpo.model, task.test))
    return curve


def trl_curve(start, task, seed):
    """Return the same of TRL's trainer, from the same weights, at equal options."""
    import datasets
    import tokenizers
    import transformers
    import trl

    tokens = ["<pad>", "<eos>", "=", *words.LETTERS]
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({t: i for i, t in enumerate(tokens)}, unk_token="<pad>")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    made.decoder = tokenizers.decoders.Fuse()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>"
    )
    model = copy.deepcopy(start)
    curve = []

    class Evaluation(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step % EVERY == 0:
                curve.append(words.accuracy(model, task.test))

    def reward(prompts, completion_ids, **_):
        asked = [tokenizer(prompt)["input_ids"] for prompt in prompts]
        pairs = zip(asked, completion_ids, strict=True)
        return [float(list(done) == words.answer(prompt)) for prompt, done in pairs]

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = trl.GRPOTrainer(
            model=model, reward_funcs=reward, processing_class=tokenizer, callbacks=[Evaluation()],
            args=trl.GRPOConfig(
                output_dir=folder, use_cpu=True, bf16=False, gradient_checkpointing=False,
                report_to="none", per_device_train_batch_size=PROMPTS * GROUP, beta=0.0,
                num_generations=GROUP, max_completion_length=words.LIMIT, learning_rate=RATE,
                lr_scheduler_type="constant", max_steps=UPDATES, save_strategy="no", seed=seed,
                logging_steps=10**6, disable_tqdm=True, weight_decay=0.0,
            ),
            train_dataset=datasets.Dataset.from_list(
                [{"prompt": "".join(tokens[i] for i in prompt)} for prompt in task.train]
            ),
        )  # fmt: skip
        trainer.train()
    return curve


@pytest.mark.learn
def test_grpo_learns_no_less_than_trls():
    """At equal prompts, completions and updates, from the same fine-tuned weights."""
    torch.set_num_threads(1)
    task = words.make_task()
    ends = []
    for seed in range(SEEDS):
        start = words.supervised(seed, task)
        before = words.accuracy(start, task.test)
        began = time.process_time()
        ours = rlox_curve(start, task, seed)
        middle = time.process_time()
        theirs = trl_curve(start, task, seed)
        keep(
            f"grpo-reverse-words-seed-{seed}",
            {
                "start": before, "every": EVERY, "prompts": PROMPTS, "group": GROUP,
                "learning_rate": RATE, "rlox": ours, "trl": theirs,
                "cpu_seconds": {"rlox": round(middle - began, 1),
                                "trl": round(time.process_time() - middle, 1)},
            },
        )  # fmt: skip
        assert ours[-1] > before + 0.1
        ends.append((ours[-1], theirs[-1]))
    mean, of_trl = np.mean(ends, axis=0)
    assert mean >= of_trl - 0.03


def wrong_by_a_letter(prompts, rng):
    """Return pairs of the right answer and one with a letter changed."""
    found = []
    for prompt in prompts:
        right = words.answer(prompt)
        wrong = list(right)
        wrong[int(rng.integers(len(wrong) - 1))] = int(rng.integers(3, 11))
        if wrong != right:
            found.append({"prompt": prompt, "chosen": right, "rejected": wrong})
    return found


def prefer(rows):
    """Return which row of each pair has more letters at their place."""

    def right(row):
        ids = [i for i in row.tolist() if i != words.PAD]
        at = ids.index(words.ASKS)
        want, got = words.answer(ids[: at + 1]), ids[at + 1 :]
        return sum(a == b for a, b in zip(want, got, strict=False)) - abs(len(want) - len(got))

    return [int(right(b) > right(a)) for a, b in rows]


def dpo_curve(start, task, seed):
    """Return the accuracy on pairs that DPO has not seen, before and after every 100 steps."""
    rng = np.random.default_rng(seed)
    unseen = {tuple(prompt) for prompt in task.test}
    more = [prompt for prompt in words.make_task(5, 4000).train if tuple(prompt) not in unseen]
    dpo = DPO(
        copy.deepcopy(start), copy.deepcopy(start), learning_rate=3e-4, batch_size=32, seed=seed,
        dataset=wrong_by_a_letter(more, rng), torch_threads=1, precompute_ref_log_probs=True,
    )  # fmt: skip
    held_out = wrong_by_a_letter(task.test, rng)
    curve = [dpo.evaluate(held_out)]
    for _ in range(3):
        dpo.train(100)
        curve.append(dpo.evaluate(held_out))
    return curve


def online_curve(start, task, seed):
    """Return the exact answers of OnlineDPO, before and after every ``EVERY`` updates."""
    online = OnlineDPO(
        copy.deepcopy(start), copy.deepcopy(start), prefer, learning_rate=1e-4, seed=seed,
        max_new_tokens=words.LIMIT, dataset=task.train, prompts_per_rollout=64, torch_threads=1,
    )  # fmt: skip
    curve = [words.accuracy(online.model, task.test)]
    for _ in range(3):
        online.train(EVERY)
        curve.append(words.accuracy(online.model, task.test))
    return curve


def best_of_n_curve(start, task, seed):
    """Return the exact answers of the best of 1, 2, 4 and 8 samples."""
    found = {}
    for n in (1, 2, 4, 8):
        best = BestOfN(start, words.reward, n=n, max_new_tokens=words.LIMIT, seed=seed)
        rows = parse_prompts(task.test, best.policy.device, best.texts)
        found[str(n)] = float(np.mean(best.reward_fn(best.best(rows), 0)))
    return found


@pytest.mark.learn
@pytest.mark.parametrize("seed", range(SEEDS))
def test_preferences_are_learnt(seed):
    """DPO ranks more than 95 % of pairs that it has not seen; the others rise above the start."""
    torch.set_num_threads(1)
    task = words.make_task()
    start = words.supervised(seed, task)
    dpo = dpo_curve(start, task, seed)
    online = online_curve(start, task, seed)
    best = best_of_n_curve(start, task, seed)
    keep(
        f"preferences-reverse-words-seed-{seed}",
        {"dpo_pair_accuracy": dpo, "dpo_every": 100, "online_dpo_accuracy": online,
         "online_dpo_every": EVERY, "best_of_n_accuracy": best},
    )  # fmt: skip
    assert dpo[-1] > 0.95
    assert online[-1] > online[0]
    assert best["1"] < best["2"] < best["4"] < best["8"]
