"""A run that was killed and resumed equals one that was not, to the bit; threads change nothing."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import rlox
from rlox.training import checkpoint

GUARD = 400
"""Seconds after which a process is taken to hang; a busy machine takes minutes to start one."""

pytestmark = pytest.mark.timeout(3 * GUARD)

TEAM = ("--n-envs", 8, "--n-steps", 25, "--batch-size", 200, "--n-epochs", 2, "--hidden", 16,
        "--normalize-values", "value_norm", "--env-kwargs", "{N: 2}")  # fmt: skip
REPLAY = ("--hidden", "8,6", "--train-freq", 64, "--gradient-steps", 4)
SAVED = (*REPLAY, "--save-replay-buffer")

RUNS = {
    "ppo": ("CartPole-v1", "--n-envs", 4, "--n-steps", 64, "--batch-size", 64, "--hidden", 16),
    "dqn": ("CartPole-v1", *SAVED, "--buffer", "prioritized", "--n-step", 3),
    "mappo": ("mpe2/simple_spread_v3", *TEAM),
    "sac": ("Pendulum-v1", *SAVED),
    "crossq": ("Pendulum-v1", *SAVED, "--critic-hidden", 8, "--renorm-warm-up", 9),
    "rl8_ppo": ("CartPole-v1", "--n-envs", 8, "--horizon", 16, "--sgd-minibatch-size", 64),
    "dreamer_v3": ("CartPole-v1", "--save-replay-buffer", "--learning-starts", 50, "--hidden", 8,
                   "--units", 8, "--batch-size", 4, "--seq-len", 8, "--train-ratio", 1),
}  # fmt: skip
"""Algorithm, env and flags of what is killed; ``nox -s slow`` does all but DQN."""


@pytest.fixture(autouse=True)
def _workplace(tmp_path, monkeypatch):
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)


NEVER_ENDING = """
import time
from rlox.training import loop

iterate = loop._iterate

def iterate_but_for_the_end(algorithm, hooks):
    while algorithm.clock.env_steps >= algorithm.clock.target - {left}:
        time.sleep(0.01)
    return iterate(algorithm, hooks)

loop._iterate = iterate_but_for_the_end
"""


def parameter_hash(state):
    """Return a hash of everything that an algorithm learnt and knows, arrays bit for bit."""
    digest = hashlib.sha256()

    def add(value):
        if isinstance(value, dict):
            for key in sorted(value):
                digest.update(key.encode())
                add(value[key])
        elif hasattr(value, "tobytes"):
            digest.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
        else:
            digest.update(repr(value).encode())

    add(state)
    return digest.hexdigest()


def result(folder):
    """Return a finished run's parameter hash and its logs without the columns of time."""
    state = checkpoint.read(f"{folder}/checkpoints/final.safetensors")["state"]
    table = Path(folder, "metrics.csv").read_text(encoding="utf-8").splitlines()
    return (
        parameter_hash(state["algorithm"]),
        metrics(folder),
        [line.rsplit(",", 1)[0] for line in table],
        scalars(folder),
    )


def scalars(folder):
    """Return what TensorBoard shows of a run."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(folder)
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
        if "per_second" not in tag
    }


@pytest.mark.parametrize(
    "algorithm",
    [pytest.param(name, marks=[] if name == "dqn" else pytest.mark.slow) for name in RUNS],
)
def test_killed_and_resumed_run_equals_the_uninterrupted_one(algorithm, run):
    """SIGKILL at a random moment after a checkpoint, then another process: same bits, same logs."""
    env, *options = RUNS[algorithm]
    command = (
        "train", algorithm, "--env", env, *options, "--total-timesteps", 6_000,
        "--checkpoint-freq", 1_000, "--eval-freq", 3_000, "--eval-episodes", 2, "--quiet",
        "--logger", "jsonl", "--logger", "csv", "--logger", "tensorboard",
    )  # fmt: skip
    kill_at_random(command)
    time.sleep(1)  # TensorBoard reads files in the order of the second that they are named by
    finish_both(command, run)
    assert result("cut") == result("whole")


@pytest.mark.parametrize(("trained", "resumed"), [("gymnasium:", ""), ("", "gymnasium:")])
def test_a_run_that_goes_on_with_new_episodes_says_so(run, trained, resumed):
    """Gymnasium's envs have no state: neither record nor last line takes it for the whole run."""
    given = ("ppo", "--env", f"{trained}Pendulum-v1", "--n-envs", 1, "--n-steps", 32,
             "--batch-size", 32, "--eval-episodes", 1, "--quiet")  # fmt: skip
    result = run("train", *given, "--total-timesteps", 96, "--checkpoint-freq", 32,
                 "--run-dir", "cut")  # fmt: skip
    assert result.code == 0, result.err
    for name in ("final", "step-96"):
        Path(f"cut/checkpoints/{name}.safetensors").unlink()
    record = json.loads(Path("cut/run.json").read_text()) | {"status": "running"}
    Path("cut/run.json").write_text(json.dumps(record))
    result = run("resume", "cut", "--env", f"{resumed}Pendulum-v1")
    assert result.code == 0, result.err
    assert "new episodes begin" in json.loads(Path("cut/run.json").read_text())["differs"]
    assert result.out.splitlines()[-1].startswith("differs")


@pytest.mark.slow
def test_without_its_buffer_a_killed_run_loses_nothing_before_its_checkpoint(run):
    """Up to there the logs are the uninterrupted run's; what follows learns from a new buffer."""
    command = (
        "train", "dqn", "--env", "CartPole-v1", *REPLAY, "--learning-starts", 200,
        "--total-timesteps", 6_000, "--checkpoint-freq", 1_000, "--quiet", "--logger", "jsonl",
    )  # fmt: skip
    kill_at_random(command)
    saved = max(checkpoint.steps_of(path) for path in Path("cut").glob("checkpoints/step-*"))
    assert 1_000 <= saved < 6_000
    assert "holds no replay buffer" in finish_both(command, run)
    cut, whole = (
        [row for row in metrics(folder) if row["kind"] == "train"] for folder in ("cut", "whole")
    )
    before = [row for row in whole if row["step"] <= saved]
    assert cut[: len(before)] == before
    assert [row["step"] for row in cut] == [row["step"] for row in whole]
    assert [row["q_loss"] is None for row in cut] == [row["q_loss"] is None for row in whole]
    assert cut[-1]["q_loss"] is not None
    assert json.loads(Path("cut/run.json").read_text())["status"] == "finished"


def kill_at_random(command):
    """Start a run in the folder ``cut`` and kill it at a random moment after a checkpoint.

    It waits before its end, which a fast machine may reach first.
    """
    code = NEVER_ENDING.format(left=2_000) + "\nimport rlox.cli; rlox.cli.main()"
    killed = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, command), "--run-dir", "cut"],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + GUARD
        while not list(Path("cut").glob("checkpoints/step-*.safetensors")):
            assert killed.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.2))
    finally:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    assert json.loads(Path("cut/run.json").read_text())["status"] == "running"


def finish_both(command, run):
    """Resume the killed run, and do the same without interruption; return the first's errors."""
    resumed, whole = run("resume", "cut", "--quiet"), run(*command, "--run-dir", "whole")
    assert (resumed[0], whole[0]) == (0, 0), (resumed, whole)
    return resumed[2]


def metrics(folder):
    """Return a run's rows of metrics without the columns of time."""
    lines = Path(folder, "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [{k: v for k, v in row.items() if k != "env_steps_per_second"} for row in rows]


@pytest.mark.parametrize(("algorithm", "env_backend"), [("ppo", "native"), ("dqn", "gymnasium")])
def test_a_checkpoint_goes_on_with_another_number_of_envs(algorithm, env_backend):
    """In new episodes, whether or not the envs' state is in the file."""
    options = {"n_envs": 2, "hidden": 8, "env_backend": env_backend}
    with rlox.make(algorithm, "CartPole-v1", **options) as before:
        episodes = before.train(256)["episodes"]
        before.save("checkpoint")
    with type(before).from_checkpoint("checkpoint", n_envs=4) as after:
        assert after.train(512)["episodes"] > episodes
        assert after.config.n_envs == 4
