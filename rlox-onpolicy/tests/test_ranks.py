"""Several ranks: one rank's step, one policy, agreed counts, moments and stops."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rlox.algorithms import PPO
from rlox.testing import run_in_ranks
from rlox.training import checkpoint

pytestmark = pytest.mark.timeout(600)  # two interpreters import torch on a busy machine

STEP = """
import json, sys
import numpy as np
import torch
import rlox
from rlox.batches.rollout import estimate_advantages
from rlox.batches.rollout import keep_envs
from rlox.ranks import join_ranks, leave_ranks
from rlox.rollouts import RolloutCollector
from rlox.training.hooks import Hooks

path, given = sys.argv[1], json.loads(sys.argv[2])
ranks = join_ranks()
size, rank = (1, 0) if ranks is None else (ranks.size, ranks.rank)
for name, options in given.items():
    if "batch_size" in options:
        options["batch_size"] //= size
    algorithm = rlox.make(name.split()[0], env="CartPole-v1", seed=0, backend="torch",
                          n_envs=4 // size, n_steps=16, hidden=8, **options)
    collector = RolloutCollector("CartPole-v1", 4, 5)
    acting = algorithm.policy
    acting.generator = torch.Generator().manual_seed(3)
    unroll = collector.unroll(acting, 16)
    mine = keep_envs(unroll, np.arange(4) // (4 // size) == rank)
    batch = mine if name == "impala" else estimate_advantages(mine, acting, 0.99, 0.95)
    if options.get("env_backend") == "tensors":
        own = algorithm.learner.collect(16, Hooks(algorithm))
        for field in ("obs", "actions", "log_probs", "values", "advantages", "returns"):
            getattr(own, field).copy_(getattr(batch, field))
        batch = own
    objective = algorithm._objective(algorithm.schedules.at(0, 1_000))
    terms = algorithm.learner.update(batch, objective, 1e-2, Hooks(algorithm))
    np.save(f"{path}-{name}-{size}-{rank}.npy", algorithm.optimizer.parameters.numpy())
    algorithm.close()
"""

TRAIN = """
import hashlib
from rlox.callbacks import Callback
from rlox.errors import RloxError

class StopsLate(Callback):
    def __init__(self, at):
        self.at = at

    def on_step(self, *, step, algo):
        return not (rank == 1 and step >= self.at)

def train(work):
    callbacks = [StopsLate(work["stop"])] if "stop" in work else []
    algorithm = rlox.make(work["name"], env="CartPole-v1", callbacks=callbacks, **work["options"])
    for _ in range(work.get("times", 1)):
        algorithm.train(work["steps"])
    flat = algorithm.optimizers["policy"].parameters.numpy()
    preprocessor = algorithm.collector.preprocessor
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
    if "save" in work:
        algorithm.save(work["save"])
    algorithm.close()
    return found

found = []
for work in json.loads(sys.argv[3]):
    try:
        found.append(train(work))
    except RloxError as error:
        found.append(str(error))
open(f"{path}-{rank}.json", "w").write(json.dumps(found))
leave_ranks()
"""

STEPS = {
    "a2c": {"normalize_advantages": True},
    "ppo": {"batch_size": 64, "n_epochs": 2},
    "ppo tensors": {"batch_size": 64, "n_epochs": 2, "env_backend": "tensors"},
    "impala": {"n_actors": 1, "unrolls_per_update": 1},
}


def require_success(done: list[subprocess.CompletedProcess[str]]) -> None:
    """Show the output of the first failing rank."""
    for rank, process in enumerate(done):
        assert process.returncode == 0, f"rank {rank}: {process.stderr}"


def trained(path: Path, size: int, *works: dict[str, Any], **steps: Any) -> list[list[Any]]:
    """Return each rank's reports on some trainings, one after the other, after some steps."""
    arguments = str(path), json.dumps(steps), json.dumps(works)
    require_success(run_in_ranks(STEP + TRAIN, *arguments, size=size))
    found = [json.loads(Path(f"{path}-{r}.json").read_text(encoding="utf-8")) for r in range(size)]
    return [list(each) for each in zip(*found, strict=True)]


OPTIONS = {
    "n_envs": 2, "n_steps": 16, "batch_size": 16, "n_epochs": 2, "hidden": 8, "seed": None,
    "normalize_observations": True, "target_kl": 1e-7,
}  # fmt: skip
ACTORS = {
    "n_actors": 2, "n_envs": 2, "n_steps": 8, "hidden": 8, "seed": 1, "queue_size": 2,
    "normalize_observations": True,
}  # fmt: skip


def test_two_ranks_train_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take the steps of one rank, with half its envs each, and keep one policy.

    The policy is the same after many steps and epochs cut at a target KL, and one rank goes on with
    it. Seed, counts, moments and evaluations are equal on both ranks; random draws are not. A stop
    on one rank stops all, at the end of the iteration in which a callback asked for it.
    """
    saved = str(tmp_path / "saved.rlox")
    works: list[dict[str, Any]] = [
        {"name": "ppo", "options": OPTIONS, "steps": 640, "times": 2, "save": saved},
        {"name": "impala", "options": ACTORS, "steps": 320},
        {"name": "ppo", "options": {**OPTIONS, "target_kl": None}, "steps": 10_000, "stop": 80},
        {"name": "ppo", "options": {**OPTIONS, "backend": "native"}, "steps": 64},
    ]
    path = tmp_path / "ranks"
    ppo, impala, stopped, native = trained(path, 2, *works, **STEPS)
    monkeypatch.setattr(sys, "argv", ["alone", str(path), json.dumps(STEPS)])
    exec(STEP, {})
    for name in STEPS:  # standardised advantages, value loss, clipped gradients
        found = [np.load(f"{path}-{name}-{of}.npy") for of in ("2-0", "2-1", "1-0")]
        np.testing.assert_array_equal(*found[:2])
        np.testing.assert_allclose(found[0], found[2], rtol=0, atol=1e-5)
    for one, other in (ppo, impala):
        assert one.pop("draw") != other.pop("draw")
        assert one == other
        assert one["finite"]
        assert one["moments"][0][2] >= one["env_steps"]
    assert ppo[0]["env_steps"] == 1_280
    assert ppo[0]["iterations"] == 20
    assert ppo[0]["gradient_steps"] < 20 * 4  # some epochs were stopped, on both ranks alike
    assert ppo[0]["learner"].startswith("torch")
    assert impala[0]["env_steps"] == 320
    assert [each["env_steps"] for each in stopped] == [128, 128]
    if find_spec("rlox_native"):
        assert all("gradients of several ranks cannot be averaged" in each for each in native)
    with PPO.from_checkpoint(saved) as alone:
        alone.train(192)
        assert alone.clock.env_steps == 1_280 + 192


@pytest.mark.slow
def test_a_signal_at_one_rank_interrupts_all(tmp_path: Path) -> None:
    """Rank 0, which got no signal, saves all ranks' parts and records no finished run.

    A signal received twice, from the terminal and from ``torchrun``, counts once.
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
    options = (
        "train", "a2c", "--env", "CartPole-v1", "--n-envs", "2", "--n-steps", "8", "--quiet",
        "--total-timesteps", "640", "--eval-episodes", "1", "--run-dir", str(run),
    )  # fmt: skip
    done = run_in_ranks(code, *options, size=2)
    codes = [process.returncode for process in done]
    assert codes == [128 + signal.SIGTERM] * 2, [process.stderr for process in done]
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert (record["status"], record["env_steps"]) == ("interrupted", 96)
    assert [path.stem for path in run.glob("checkpoints/*.safetensors")] == ["interrupted"]
    saved = checkpoint.read(run / "checkpoints" / "interrupted.safetensors")
    assert (saved["n_ranks"], len(saved["parts"])) == (2, 1)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="/proc is Linux's")
def test_no_thread_outlives_the_ranks() -> None:
    """Gloo's threads sometimes abort Python's exit; a later import must not keep the group."""
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
