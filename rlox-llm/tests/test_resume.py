"""Resuming in another process, in the middle of an epoch, is exact."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from models import count_sevens, llama, sharpened, tiny_lm
from rlox.algorithms import DPO, GRPO, SFT, OnlineDPO
from rlox.logging import LoggerCallback

N = 4
"""Gradient steps of each half; an epoch of 10 rows has 3 iterations."""

KINDS = ["grpo", "online_dpo", "dpo", "sft", "grpo-lora", "dpo-lora"]

OTHER_PROCESS = """
import json, sys
sys.path.insert(0, {here!r})
import test_resume as t
print(json.dumps(t.second_half({kind!r}, {path!r})))
"""


class Rows(LoggerCallback):
    """Keeps the rows of the log, without their speeds."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []

    def on_train_step(self, step: int, metrics: Any) -> None:
        speed = "gradient_steps_per_second"
        self.rows.append([step, {k: v for k, v in metrics.items() if k != speed}])


def first_is_better(pairs: Any) -> list[int]:
    """Prefer the completion that was sampled first."""
    return [0] * len(pairs)


def make(kind: str, rows: Rows, path: str | None = None) -> Any:
    """Return an algorithm; from a checkpoint into a model with other weights, if given one."""
    name, _, adapter = kind.partition("-")
    prompts = torch.arange(30).reshape(10, 3) % 20
    pairs = [{"prompt": row, "chosen": row + 0, "rejected": row.flip(0)} for row in prompts]
    answers = [{"prompt": row, "completion": row.flip(0)} for row in prompts]
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "grpo": (GRPO, {"reward_fn": count_sevens, "dataset": prompts}),
        "online_dpo": (OnlineDPO, {"preference_fn": first_is_better, "dataset": prompts}),
        "dpo": (DPO, {"dataset": pairs}),
        "sft": (SFT, {"dataset": answers}),
    }
    factory, arguments = kinds[name]
    seed = 5 if path is not None and not adapter else 0  # an adapter's base must be the same
    arguments["model"] = sharpened(llama(seed)) if adapter else tiny_lm(seed)
    arguments["logger"] = rows
    if name != "sft" and not adapter:
        arguments["ref_model"] = tiny_lm(1)
    if path is not None:
        return factory.from_checkpoint(path, **arguments)
    sampled = {"prompts_per_rollout": 4, "sampler": "rlox"}
    size = {"batch_size": 4} if name in ("dpo", "sft") else sampled
    lora = {"lora_rank": 2, "lora_dropout": 0.1, "dropout": True} if adapter else {}
    return factory(**arguments, **size, **lora, learning_rate=0.01)


def ending(algorithm: Any, rows: Rows) -> dict[str, Any]:
    """Return a hash of the parameters, the counters, and the rows of the log."""
    flat = torch.cat([p.detach().flatten() for p in algorithm.model.parameters()])
    digest = hashlib.sha256(flat.numpy().tobytes()).hexdigest()
    return {"hash": digest, "clock": algorithm.clock.state_dict(), "rows": rows.rows}


def second_half(kind: str, path: str) -> dict[str, Any]:
    """Go on from a checkpoint, and return how it ended."""
    rows = Rows()
    restored = make(kind, rows, path)
    restored.train(N)
    return ending(restored, rows)


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_resuming_in_another_process_is_exact(kind: str, tmp_path: Path) -> None:
    """Parameters, counters and log rows; with an adapter, its dropout too."""
    pytest.importorskip("peft") if kind.endswith("lora") else None
    log, first = Rows(), Rows()
    whole, half = make(kind, log), make(kind, first)
    whole.train(N)
    whole.train(N)
    half.train(N)
    path = str(tmp_path / "half")
    half.save(path)
    code = OTHER_PROCESS.format(here=str(Path(__file__).parent), kind=kind, path=path)
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    expected = json.loads(json.dumps(ending(whole, log)))
    assert first.rows == log.rows[: len(first.rows)]
    assert found == {**expected, "rows": expected["rows"][len(first.rows) :]}
    assert found["clock"]["prompts"] > 0
