"""GRPO and DPO next to TRL's trainers, at equal work and threads; on the CPU, or ``--device cuda``.

    python benchmarks/llm.py [--rounds 15] [--size 400m] [--bf16] [--device cuda]

The contenders take turns, so that other work on the machine slows both. Hardly any completion ends
before its limit; both sample, score, and take a gradient step on each rollout, with a reference.
Ratios are of wall time and of the process's CPU time, which depends little on other work. The time
of parts is measured afterwards, with clocks around the same parts of both.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from clocks import clock_of, gpu_of
from measure import Part, machine, peak_mib, ratio_summary, time_by_part, write

Layout = Literal["auto", "padded"]
Contender = tuple[Callable[[], Any], list[Part]]

PAD, EOS = 0, 1
PROMPTS, GROUP, PAIRS = 8, 8, 32
SIZES: dict[str, dict[str, Any]] = {
    "2m": {
        "vocab_size": 2048, "hidden_size": 128, "intermediate_size": 344, "num_hidden_layers": 4,
        "num_attention_heads": 4, "max_position_embeddings": 128,
    },
    "400m": {
        "vocab_size": 32_768, "hidden_size": 896, "intermediate_size": 4864,
        "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
        "max_position_embeddings": 512,
    },
}  # fmt: skip
"""Llamas; the larger one has the sizes of Qwen 2.5's smallest, and a smaller vocabulary."""
LENGTHS = {"2m": (24, 16), "400m": (128, 64)}
"""Tokens of a prompt and of a completion."""
CHOSEN: dict[str, Any] = {"device": "cpu", "size": "2m", "bf16": False}


def make_model() -> Any:
    """Return a Llama of the chosen size."""
    import transformers

    ends: dict[str, Any] = {"eos_token_id": EOS, "bos_token_id": None, "pad_token_id": PAD}
    config = transformers.LlamaConfig(**SIZES[CHOSEN["size"]], **ends)
    torch.manual_seed(0)
    with torch.device(CHOSEN["device"]):
        made: Any = transformers.LlamaForCausalLM(config)
    return made.eval()


def on_gpu() -> bool:
    """Return whether the models are on a GPU."""
    return bool(CHOSEN["device"] == "cuda")


def vocabulary() -> int:
    """Return the size of the model's vocabulary."""
    return int(SIZES[CHOSEN["size"]]["vocab_size"])


def make_tokenizer() -> Any:
    """Return a tokenizer of one word a token."""
    import tokenizers
    import transformers

    words = {f"w{i:04d}": i for i in range(vocabulary())}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0000"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast: Any = transformers.PreTrainedTokenizerFast
    return fast(tokenizer_object=made, pad_token="w0000", eos_token="w0001")


def text(ids: Any) -> str:
    """Return token ids as text."""
    return " ".join(f"w{int(i):04d}" for i in ids)


def rows(n: int, width: int) -> np.ndarray[Any, Any]:
    """Return random token ids."""
    return np.random.default_rng(0).integers(2, vocabulary(), (n, width))


def reward_of(ids: Any) -> float:
    """Return a cheap reward that differs from completion to completion."""
    return float(sum(ids) % 7)


def rlox_parts(algorithm: Any) -> list[Part]:
    """Return the timed parts of a step of rlox."""
    optimizer = algorithm.optimizers["model"]
    return [
        (algorithm.reference, "score", "reference"), (algorithm.policy, "score", "forward"),
        (optimizer, "backward", "backward"), (optimizer, "apply", "Adam"),
    ]  # fmt: skip


def rlox_grpo(folder: Path, layout: Layout = "auto") -> Contender:
    """Return a function that takes one gradient step, and where its parts are."""
    import rlox_llm.language
    from rlox_llm.grpo import GRPO

    prompt, completion = LENGTHS[CHOSEN["size"]]
    model = make_model()
    grpo = GRPO(
        model, copy.deepcopy(model), lambda rows, prompts, completion_ids: [
            reward_of(ids.tolist()) for ids in completion_ids
        ],
        group_size=GROUP, kl_coef=0.04, max_new_tokens=completion, learning_rate=1e-5,
        prompts_per_rollout=PROMPTS, layout=layout, bf16=CHOSEN["bf16"],
    )  # fmt: skip
    prompts = torch.from_numpy(rows(PROMPTS, prompt)).to(CHOSEN["device"])
    sampling = (rlox_llm.language, "complete", "sampling")
    return lambda: grpo.train_step(prompts), [sampling, *rlox_parts(grpo)]


def trl_arguments(folder: Path, n: int) -> dict[str, Any]:
    """Return the arguments of both TRL trainers."""
    return {
        "output_dir": str(folder), "use_cpu": not on_gpu(), "bf16": CHOSEN["bf16"],
        "report_to": "none", "gradient_checkpointing": False, "per_device_train_batch_size": n,
        "save_strategy": "no", "logging_steps": 10**6, "disable_tqdm": True, "learning_rate": 1e-5,
        "max_grad_norm": 1.0,
    }  # fmt: skip


def trl_parts(trainer: Any) -> list[Part]:
    """Return the last timed parts of a step of TRL."""
    return [
        (trainer.accelerator, "backward", "backward"),
        (trainer.accelerator, "clip_grad_norm_", "Adam"), (trainer.optimizer, "step", "Adam"),
    ]  # fmt: skip


def stepping(trainer: Any) -> Any:
    """Return a function that takes one gradient step of a trainer like its own loop."""
    trainer.create_optimizer_and_scheduler(10**6)
    trainer.current_gradient_accumulation_steps = 1
    loader = iter(trainer.get_train_dataloader())

    def step() -> None:
        nonlocal loader
        try:
            batch = next(loader)
        except StopIteration:
            loader = iter(trainer.get_train_dataloader())
            batch = next(loader)
        trainer.training_step(trainer.model, batch, None)
        trainer.accelerator.clip_grad_norm_(trainer.model.parameters(), 1.0)
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
        trainer.model.zero_grad()
        trainer.state.global_step += 1

    return step


def trl_grpo(folder: Path) -> Contender:
    """Return a function that takes one gradient step, and where its parts are."""
    import datasets
    import transformers

    trl: Any = importlib.import_module("trl")

    make_model().save_pretrained(folder / "model")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model")
    prompt, completion = LENGTHS[CHOSEN["size"]]
    arguments = trl.GRPOConfig(
        **trl_arguments(folder, PROMPTS * GROUP), num_generations=GROUP, beta=0.04,
        max_completion_length=completion, shuffle_dataset=False,
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model=model,
        reward_funcs=lambda completion_ids, **_: [reward_of(ids) for ids in completion_ids],
        args=arguments, processing_class=make_tokenizer(),
        train_dataset=datasets.Dataset.from_list(
            [{"prompt": text(row)} for row in rows(PROMPTS, prompt)]
        ),
    )  # fmt: skip
    step = stepping(trainer)

    def scored() -> str:
        return "forward" if torch.is_grad_enabled() else "reference"

    return step, [
        (trainer, "_generate", "sampling"),
        (trainer, "_get_per_token_logps_and_entropies", scored), *trl_parts(trainer),
    ]  # fmt: skip


def rlox_dpo(folder: Path, layout: Layout = "auto") -> Contender:
    """Return a function that takes one gradient step, and where its parts are."""
    from rlox_llm.dpo import DPO

    prompt, completion = LENGTHS[CHOSEN["size"]]
    model = make_model()
    found = rows(PAIRS, prompt + 2 * completion)
    ends = np.full((PAIRS, 1), EOS)
    dpo = DPO(
        model, copy.deepcopy(model), learning_rate=1e-5, batch_size=PAIRS,
        layout=layout, bf16=CHOSEN["bf16"],
        dataset=[
            {"prompt": row[:prompt], "chosen": np.append(row[prompt:-completion], end),
             "rejected": np.append(row[-completion:], end)}
            for row, end in zip(found, ends, strict=True)
        ],
    )  # fmt: skip
    return lambda: dpo.train(1), rlox_parts(dpo)


def trl_dpo(folder: Path) -> Contender:
    """Return a function that takes one gradient step, and where its parts are."""
    import datasets
    import transformers

    trl: Any = importlib.import_module("trl")

    make_model().save_pretrained(folder / "model")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model")
    prompt, completion = LENGTHS[CHOSEN["size"]]
    found = rows(PAIRS, prompt + 2 * completion)
    trainer = trl.DPOTrainer(
        model=model, args=trl.DPOConfig(**trl_arguments(folder, PAIRS)),
        processing_class=make_tokenizer(),
        train_dataset=datasets.Dataset.from_list(
            [{"prompt": text(row[:prompt]), "chosen": " " + text(row[prompt:-completion]),
              "rejected": " " + text(row[-completion:])} for row in found]
        ),
    )  # fmt: skip
    step = stepping(trainer)
    return step, [
        (trainer.ref_model, "forward", "reference"), (trainer.model, "forward", "forward"),
        *trl_parts(trainer),
    ]  # fmt: skip


def measure(contenders: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Return wall and CPU seconds of a step of each contender, in turn."""
    wall_clock = clock_of(CHOSEN["device"]) if on_gpu() else time.perf_counter
    wall: dict[str, list[float]] = {name: [] for name in contenders}
    cpu: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, step in contenders.items():
            before = wall_clock(), time.process_time()
            step()
            if turn:  # the first warms up
                wall[name].append(wall_clock() - before[0])
                cpu[name].append(time.process_time() - before[1])
    return {"wall": wall, "cpu": cpu}


CONTENDERS: dict[str, Callable[[Path], Contender]] = {
    "rlox_grpo": rlox_grpo, "trl_grpo": trl_grpo, "rlox_dpo": rlox_dpo, "trl_dpo": trl_dpo,
    "rlox_padded_grpo": partial(rlox_grpo, layout="padded"),
    "rlox_padded_dpo": partial(rlox_dpo, layout="padded"),
}  # fmt: skip


def peak(name: str) -> dict[str, float]:
    """Return the largest resident memory of this process after some steps, and what they added."""
    with tempfile.TemporaryDirectory() as folder:
        step, _ = CONTENDERS[name](Path(folder))
        before = peak_mib()
        for _ in range(5):
            step()
        return {"peak": round(peak_mib(), 1), "by_steps": round(peak_mib() - before, 1)}


def peak_elsewhere(name: str) -> Any:
    """Return the peak of a new process with one contender."""
    command = [sys.executable, __file__, "--peak", name]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(result.stdout.splitlines()[-1])


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--peak", choices=CONTENDERS, help="print the peak memory of one, in MB")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--size", default="2m", choices=SIZES)
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16")
    arguments = parser.parse_args()
    CHOSEN.update({name: getattr(arguments, name) for name in CHOSEN})
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if arguments.peak:
        print(json.dumps(peak(arguments.peak)))
        return
    prompt, completion = LENGTHS[arguments.size]
    results: dict[str, Any] = {
        "machine": machine(["torch", "transformers", "trl", "rlox-llm"]) | gpu_of(arguments.device),
        "work": {"model": {"llama": SIZES[arguments.size], "bf16": arguments.bf16},
                 "prompt": prompt, "completion": completion, "prompts": PROMPTS, "group": GROUP,
                 "pairs": PAIRS, "threads": 1, "rounds": arguments.rounds},
    }  # fmt: skip
    # layouts differ in their number of passes, which may cost more on a GPU than their tokens
    contenders = ("rlox", "trl", "rlox_padded") if on_gpu() else ("rlox", "trl")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        done = {"grpo": PROMPTS * GROUP * completion, "dpo": PAIRS}
        for name, unit in (("grpo", "tokens_per_second"), ("dpo", "pairs_per_second")):
            made = {who: CONTENDERS[f"{who}_{name}"](path) for who in contenders}
            found = measure({who: step for who, (step, _) in made.items()}, arguments.rounds)
            results[name] = {
                clock: {
                    "median_seconds": {k: round(float(np.median(v)), 4) for k, v in times.items()},
                    unit: {k: round(done[name] / float(np.median(v))) for k, v in times.items()},
                    **{f"trl_over_{who}": ratio_summary(np.array(times["trl"]), np.array(v))
                       for who, v in times.items() if who != "trl"},
                }
                for clock, times in found.items()
            }  # fmt: skip
            clock = clock_of(arguments.device)
            results[name]["ms_by_part" if on_gpu() else "cpu_ms_by_part"] = {
                who: time_by_part(*contender, arguments.rounds, clock)
                for who, contender in made.items()
            }
            print(name, results[name], flush=True)
    if not on_gpu():
        results["peak_mb"] = {name: peak_elsewhere(name) for name in CONTENDERS}
        print(results["peak_mb"], flush=True)
    size = "" if arguments.size == "2m" else f"_{arguments.size}"
    write(f"llm{'_cuda' if on_gpu() else ''}{size}", results)


if __name__ == "__main__":
    main()
