"""Several ranks: one rank's step, one policy, agreed counts, moments and stops."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rlox.testing import run_in_ranks
from rlox.training import checkpoint

pytestmark = pytest.mark.timeout(600)  # of two interpreters that import torch on a busy machine

STEP = """
import json, sys
import numpy as np
import torch
import rlox
from rlox.batches.rollout import estimate_advantages
from rlox.batches.unrolls import keep_envs
from rlox.ranks import join_ranks, leave_ranks
from rlox.rollouts import RolloutCollector
from rlox.training.hooks import Hooks

name, path, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
ranks = join_ranks()
size, rank = (1, 0) if ranks is None else (ranks.size, ranks.rank)
algorithm = rlox.make(name, env="CartPole-v1", seed=0, backend="torch", n_envs=4 // size,
                      n_steps=16, hidden=8, **options)
collector = RolloutCollector("CartPole-v1", 4, 5)
acting = algorithm.policy
acting.generator = torch.Generator().manual_seed(3)
unroll = collector.unroll(acting, 16)
mine = keep_envs(unroll, np.arange(4) // (4 // size) == rank)
batch = mine if name == "impala" else estimate_advantages(mine, acting, 0.99, 0.95)
objective = algorithm._objective(algorithm.schedules.at(0, 1_000))
terms = algorithm.learner.update(batch, objective, 1e-2, Hooks(algorithm))
np.save(f"{path}-{size}-{rank}.npy", algorithm.optimizer.parameters.numpy())
algorithm.close()
leave_ranks()
"""

TRAIN = """
import hashlib, json, sys
import numpy as np
import rlox
from rlox.callbacks import Callback
from rlox.ranks import join_ranks, leave_ranks

path, work = sys.argv[1], json.loads(sys.argv[2])
ranks = join_ranks()
rank = 0 if ranks is None else ranks.rank

class StopsLate(Callback):
    def on_step(self, *, step, algo):
        return not (rank == 1 and step >= work["stop"])

callbacks = [StopsLate()] if "stop" in work else []
if "from" in work:
    algorithm = rlox.algorithms.PPO.from_checkpoint(work["from"], callbacks=callbacks)
else:
    algorithm = rlox.make(work["name"], env="CartPole-v1", callbacks=callbacks, **work["options"])
for _ in range(work.get("times", 1)):
    algorithm.train(work["steps"])
flat = algorithm.optimizer.parameters.numpy()
collector = algorithm.agent.collector
preprocessor = collector.preprocessor
found = {
    "hash": hashlib.sha256(flat.tobytes()).hexdigest(),
    "finite": bool(np.isfinite(flat).all()),
    "env_steps": algorithm.clock.env_steps,
    "gradient_steps": algorithm.clock.gradient_steps,
    "iterations": algorithm.clock.iterations,
    "seed": algorithm.streams.seed,
    "learner": str(algorithm.learner),
    "moments": None if preprocessor is None else [
        [m.mean.tolist(), m.variance.tolist(), m.count] for m in preprocessor.moments.values()],
    "returns": algorithm.evaluate(n_episodes=1, max_steps=500).returns.tolist(),
    "draw": int(algorithm.streams.numpy("probe").integers(2**62)),
}
if rank == 0 and "save" in work:
    algorithm.save(work["save"])
open(f"{path}-{rank}.json", "w").write(json.dumps(found))
algorithm.close()
leave_ranks()
"""


def require_success(done: list[subprocess.CompletedProcess[str]]) -> None:
    """Show what the first failing rank printed."""
    for rank, process in enumerate(done):
        assert process.returncode == 0, f"rank {rank}: {process.stderr}"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a2c", {"normalize_advantages": True}),
        ("ppo", {"batch_size": 32, "n_epochs": 2}),
        ("impala", {"n_actors": 1, "unrolls_per_update": 1}),
    ],
)
def test_two_ranks_take_one_ranks_step(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    """With half the envs each: standardised advantages, value loss, clipped gradients."""
    for size in (1, 2):
        given = dict(options)
        if "batch_size" in given:
            given["batch_size"] = 64 // size
        require_success(run_in_ranks(STEP, name, str(tmp_path / "p"), json.dumps(given), size=size))
    found = [np.load(tmp_path / f"p-2-{rank}.npy") for rank in range(2)]
    np.testing.assert_array_equal(*found)
    alone = np.load(tmp_path / "p-1-0.npy")
    np.testing.assert_allclose(found[0], alone, rtol=0, atol=1e-5)


def trained(tmp_path: Path, size: int, **work: Any) -> list[dict[str, Any]]:
    """Return what each rank reports of a training."""
    path = tmp_path / f"ranks-{size}"
    require_success(run_in_ranks(TRAIN, str(path), json.dumps(work), size=size))
    return [
        json.loads(Path(f"{path}-{rank}.json").read_text(encoding="utf-8")) for rank in range(size)
    ]


PPO = {
    "n_envs": 2, "n_steps": 16, "batch_size": 16, "n_epochs": 2, "hidden": 8, "seed": None,
    "normalize_observations": True, "target_kl": 1e-7,
}  # fmt: skip


def test_ranks_keep_one_policy_and_go_on_as_others(tmp_path: Path) -> None:
    """After many steps, through an agreed stop at a target KL; then with one rank and with three.

    Seed, counts, moments and evaluations are the same on both ranks; what they draw is not.
    """
    saved = tmp_path / "saved.rlox"
    one, other = trained(
        tmp_path, 2, name="ppo", options=PPO, steps=3_200, times=2, save=str(saved)
    )
    assert one.pop("draw") != other.pop("draw")
    assert one == other
    assert one["finite"]
    assert one["env_steps"] == 6_400
    assert one["iterations"] == 100
    assert one["gradient_steps"] < 100 * 4  # some epochs were stopped, on both ranks alike
    assert one["moments"][0][2] >= 6_400
    assert one["learner"].startswith("torch")
    for size in (1, 3):
        found = trained(tmp_path, size, **{"from": str(saved)}, steps=192)
        assert len({each.pop("draw") for each in found}) == size
        assert all(each == found[0] for each in found)
        assert found[0]["env_steps"] == 6_400 + 192


@pytest.mark.slow
def test_four_ranks_keep_one_policy_over_a_thousand_steps(tmp_path: Path) -> None:
    """Parameters, moments and counts are equal, bit for bit; draws differ."""
    options = {"n_envs": 1, "n_steps": 8, "hidden": 8, "seed": 2, "normalize_observations": True}
    found = trained(tmp_path, 4, name="a2c", options=options, steps=32_000)
    assert len({each.pop("draw") for each in found}) == 4
    assert all(each == found[0] for each in found)
    assert found[0]["gradient_steps"] == 1_000
    assert found[0]["env_steps"] == 32_000


def test_a_stop_on_one_rank_is_a_stop_on_all(tmp_path: Path) -> None:
    """At the end of the iteration in which a callback asked for it."""
    options = {**PPO, "target_kl": None}
    found = trained(tmp_path, 2, name="ppo", options=options, steps=10_000, stop=80)
    assert [each["env_steps"] for each in found] == [128, 128]


def test_actors_of_two_ranks_share_moments(tmp_path: Path) -> None:
    """IMPALA's learners take in what the actors of both ranks have seen."""
    options = {
        "n_actors": 2, "n_envs": 2, "n_steps": 8, "hidden": 8, "seed": 1, "queue_size": 2,
        "normalize_observations": True,
    }  # fmt: skip
    one, other = trained(tmp_path, 2, name="impala", options=options, steps=1_280)
    assert one.pop("draw") != other.pop("draw")
    assert one == other
    assert one["env_steps"] == 1_280
    assert one["moments"][0][2] >= 1_280


def test_the_native_learner_refuses_ranks(tmp_path: Path) -> None:
    """With the reason."""
    pytest.importorskip("rlox_native")
    work = {"name": "ppo", "options": {**PPO, "backend": "native"}, "steps": 64}
    done = run_in_ranks(TRAIN, str(tmp_path / "native"), json.dumps(work), size=2)
    for process in done:
        assert process.returncode != 0
    assert any("gradients of several ranks cannot be averaged" in each.stderr for each in done)


A2C_FOR_640_STEPS = ("train", "a2c", "--env", "CartPole-v1", "--n-envs", "2", "--n-steps", "8",
                     "--total-timesteps", "640", "--eval-episodes", "1", "--quiet")  # fmt: skip


def test_the_command_line_trains_in_ranks(tmp_path: Path) -> None:
    """Rank 0 alone makes the run folder, logs and saves; the steps of both are counted."""
    code = "import sys; from rlox.cli import main; sys.argv[0] = 'rlox'; main()"
    run = tmp_path / "run"
    done = run_in_ranks(code, *A2C_FOR_640_STEPS, "--run-dir", str(run), size=2)
    require_success(done)
    assert "evaluation return" in done[0].stdout
    assert not done[1].stdout
    rows = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(rows) >= 20
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert record["env_steps"] == 640


def test_a_signal_at_one_rank_interrupts_all(tmp_path: Path) -> None:
    """Rank 0, which got none, saves all ranks' parts and records no finished run.

    A signal that a rank gets twice, from the terminal and from ``torchrun``, is one.
    """
    code = (
        "import os, signal, sys\n"
        "from rlox.algorithms import A2C\n"
        "from rlox.cli import main\n"
        "iterate = A2C.iterate\n"
        "def interrupted(self, hooks):\n"
        "    if os.environ['RANK'] == '1' and self.clock.iterations == 2:\n"
        "        for _ in 'terminal', 'torchrun':\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return iterate(self, hooks)\n"
        "A2C.iterate = interrupted\n"
        "sys.argv[0] = 'rlox'\n"
        "main()"
    )
    run = tmp_path / "run"
    done = run_in_ranks(code, *A2C_FOR_640_STEPS, "--run-dir", str(run), size=2)
    codes = [process.returncode for process in done]
    assert codes == [128 + signal.SIGTERM] * 2, [process.stderr for process in done]
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert (record["status"], record["env_steps"]) == ("interrupted", 96)
    assert [path.stem for path in run.glob("checkpoints/*.safetensors")] == ["interrupted"]
    saved = checkpoint.read(run / "checkpoints" / "interrupted.safetensors")
    assert (saved["n_ranks"], len(saved["parts"])) == (2, 1)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="/proc is Linux's")
def test_no_thread_outlives_the_ranks() -> None:
    """Gloo's would abort Python's exit now and then; what is imported meanwhile keeps no group."""
    code = (
        "import os\n"
        "from rlox.ranks import join_ranks, leave_ranks\n"
        "ranks = join_ranks()\n"
        "import torch._dynamo\n"
        "ranks.total(1, 'a number'), ranks.gather_text('a', 'a text')\n"
        "print(len(os.listdir('/proc/self/task')) > 1)\n"
        "leave_ranks()\n"
        "print(len(os.listdir('/proc/self/task')))\n"
    )
    done = run_in_ranks(code, size=2)
    require_success(done)
    assert [process.stdout.split() for process in done] == [["True", "1"]] * 2
