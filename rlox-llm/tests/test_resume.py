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
from models import count_sevens, llama, sharpened
from rlox.algorithms import GRPO
from rlox.logging import LoggerCallback

N = 4
"""Gradient steps of each half; an epoch of 10 rows has 3 iterations."""

OTHER_PROCESS = """
import json, sys
sys.path.insert(0, {here!r})
import test_resume as t
print(json.dumps(t.second_half({path!r})))
"""


class Rows(LoggerCallback):
    """Keeps the rows of the log, without their speeds."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []

    def on_train_step(self, step: int, metrics: Any) -> None:
        speed = "gradient_steps_per_second"
        self.rows.append([step, {k: v for k, v in metrics.items() if k != speed}])


def make(rows: Rows, path: str | None = None) -> Any:
    """Return an algorithm with an adapter; from a checkpoint, if given one."""
    arguments: dict[str, Any] = {
        "reward_fn": count_sevens, "dataset": torch.arange(30).reshape(10, 3) % 20,
        "model": sharpened(llama()), "logger": rows,
    }  # fmt: skip
    if path is not None:
        return GRPO.from_checkpoint(path, **arguments)
    return GRPO(
        **arguments, prompts_per_rollout=4, sampler="rlox", lora_rank=2, lora_dropout=0.1,
        dropout=True, learning_rate=0.01,
    )  # fmt: skip


def ending(algorithm: Any, rows: Rows) -> dict[str, Any]:
    """Return a hash of the parameters, the counters, and the rows of the log."""
    flat = torch.cat([p.detach().flatten() for p in algorithm.model.parameters()])
    digest = hashlib.sha256(flat.numpy().tobytes()).hexdigest()
    return {"hash": digest, "clock": algorithm.clock.state_dict(), "rows": rows.rows}


def second_half(path: str) -> dict[str, Any]:
    """Go on from a checkpoint, and return how it ended."""
    rows = Rows()
    restored = make(rows, path)
    restored.train(N)
    return ending(restored, rows)


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
def test_resuming_in_another_process_is_exact(tmp_path: Path) -> None:
    """Parameters, counters and log rows, and the dropout of the adapter."""
    pytest.importorskip("peft")
    log, first = Rows(), Rows()
    whole, half = make(log), make(first)
    whole.train(N)
    whole.train(N)
    half.train(N)
    path = str(tmp_path / "half")
    half.save(path)
    code = OTHER_PROCESS.format(here=str(Path(__file__).parent), path=path)
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    expected = json.loads(json.dumps(ending(whole, log)))
    assert first.rows == log.rows[: len(first.rows)]
    assert found == {**expected, "rows": expected["rows"][len(first.rows) :]}
    assert found["clock"]["prompts"] > 0
