"""Tests of ``rlox resume``, with an algorithm that counts instead of learning."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rlox.cli.runs.folder import RunFolder, checkpoints_in
from rlox.training import checkpoint

TRAIN = (
    "train", "counting", "--env", "CartPole-v1", "--eval-episodes", "2", "--total-timesteps", "80",
    "--checkpoint-freq", "16", "--eval-freq", "20", "--logger", "jsonl", "--logger", "csv",
)  # fmt: skip

LOGS = ("metrics.jsonl", "metrics.csv", "evaluations.csv")


def rows(folder, name="metrics.jsonl"):
    """Return the rows of a log without the columns that depend on time."""
    lines = Path(folder, name).read_text(encoding="utf-8").splitlines()
    if name.endswith(".csv"):
        speed = lines[0].split(",").index("env_steps_per_second") if "metrics" in name else None
        return [[cell for i, cell in enumerate(line.split(",")) if i != speed] for line in lines]
    parsed = [json.loads(line) for line in lines]
    return [{k: v for k, v in row.items() if k != "env_steps_per_second"} for row in parsed]


def draws(folder):
    """Return what a finished run drew."""
    final = checkpoint.read(Path(folder, "checkpoints/final.safetensors"))
    return final["state"]["algorithm"]["draws"].tolist()


def record(folder):
    """Return ``run.json``."""
    return json.loads(Path(folder, "run.json").read_text(encoding="utf-8"))


def crash_after(folder, step):
    """Make a finished run look as if it had been killed after env step ``step`` was saved."""
    for path in Path(folder, "checkpoints").iterdir():
        if path.stem != "best" and (path.stem == "final" or int(path.stem[5:]) > step):
            path.unlink()
    for name in ("metrics.jsonl", "evaluations.csv"):  # the evaluation at the end was not reached
        path = Path(folder, name)
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    values = {**record(folder), "status": "running", "evaluation": None}
    Path(folder, "run.json").write_text(json.dumps(values), encoding="utf-8")


@pytest.fixture
def whole(run, kept):
    """Train without an interruption, in the folders ``whole`` and ``cut``."""

    def make():
        for folder in ("whole", "cut"):
            result = run(*TRAIN, "--run-dir", folder)
            assert result.code == 0, result.err

    kept("resume", make)


@pytest.mark.parametrize("step", [16, 80])
@pytest.mark.usefixtures("whole")
def test_resumed_run_equals_the_uninterrupted_one(run, step):
    """Draws, logs, evaluations and the best model's step are the same; no row is twice there."""
    crash_after("cut", step)
    result = run("resume", "cut/run.json")
    assert result.code == 0, result.err
    assert draws("cut") == draws("whole")
    for name in LOGS:
        assert rows("cut", name) == rows("whole", name)
    assert record("cut")["status"] == "finished"
    assert record("cut")["evaluation"] == record("whole")["evaluation"]
    assert [each["env_steps"] for each in record("cut")["resumed"]] == [step]
    assert not Path("cut/.lock").exists()


def test_interrupted_training_records_its_seconds(run, counting, monkeypatch):
    """Also one that failed: it may be resumed."""

    def failing(*_):
        time.sleep(0.05)
        raise KeyboardInterrupt

    monkeypatch.setattr(counting.CountingAlgorithm, "iterate", failing)
    assert run(*TRAIN, "--run-dir", "cut").code == 130
    assert record("cut")["status"] == "interrupted"
    assert record("cut")["training_seconds"] >= 0.05


@pytest.mark.usefixtures("whole")
def test_run_that_was_trained_is_only_evaluated(run):
    """A crash during the evaluation at the end costs no training."""
    values = {**record("cut"), "status": "failed", "evaluation": None}
    Path("cut/run.json").write_text(json.dumps(values), encoding="utf-8")
    result = run("resume", "cut")
    assert result.code == 0, result.err
    assert rows("cut") == rows("whole")
    assert draws("cut") == draws("whole")
    assert record("cut")["evaluation"] == record("whole")["evaluation"]


@pytest.mark.usefixtures("whole")
def test_damaged_checkpoint_is_reported_and_passed_over(run):
    """The one before it is taken, and the run still ends as if nothing had happened."""
    crash_after("cut", 48)
    newest = Path("cut/checkpoints/step-48.safetensors")
    data = newest.read_bytes()
    newest.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    result = run("resume", "cut")
    assert result.code == 0, result.err
    assert result.err.startswith("warning: 'cut/checkpoints/step-48.safetensors' is damaged")
    assert result.err.endswith("it is passed over\n")
    assert [each["env_steps"] for each in record("cut")["resumed"]] == [32]
    assert rows("cut") == rows("whole")
    assert checkpoint.steps_of(newest) == 48  # written again
    assert Path(f"{newest}.superseded").exists()


@pytest.mark.usefixtures("whole")
def test_run_goes_back_to_a_checkpoint_that_is_named(run, monkeypatch):
    """Later rows are cut and later checkpoints set aside, so that a crash then resumes right."""
    crash_after("cut", 64)
    with monkeypatch.context() as inside:
        inside.chdir("cut/checkpoints")
        result = run("resume", "step-32.safetensors")
    assert result.code == 0, result.err
    assert rows("cut") == rows("whole")
    names = sorted(path.name for path in Path("cut/checkpoints").iterdir())
    assert [name for name in names if name.endswith("superseded")] == [
        "step-48.safetensors.superseded", "step-64.safetensors.superseded",
    ]  # fmt: skip


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize(
    ("name", "kind"),
    [(".lock", "soft"), ("metrics.jsonl", "soft"), ("evaluations.csv", "soft"),
     ("run.json", "soft"), ("config.yaml", "soft"), ("checkpoints/new", "soft"),
     (".lock", "hard"), ("metrics.jsonl", "hard")],
)  # fmt: skip
def test_a_folder_with_links_is_not_resumed(run, name, kind):
    """A stranger's may lead to any file of its reader, and every one of them stays as it is."""
    crash_after("cut", 32)
    target, link = Path("secret"), Path("cut", name)
    target.write_bytes(link.read_bytes() if link.exists() else b"kept")
    before = target.read_bytes()
    link.unlink(missing_ok=True)
    link.symlink_to(target.absolute()) if kind == "soft" else link.hardlink_to(target)
    result = run("resume", "cut")
    assert result.code == 2
    assert f"'{link}' is a link, and runs are written to folders of regular files" in result.err
    assert target.read_bytes() == before


@pytest.mark.usefixtures("whole")
def test_what_cannot_be_resumed_is_reported(run):
    """One line each, and nothing is touched."""
    finished = run("resume", "whole")
    assert (finished.code, finished.out) == (2, "")
    assert "error: the run 'whole' is finished; to train its agent further, load" in finished.err
    assert "'none' is not a run folder: it does not exist" in run("resume", "none").err
    crash_after("cut", 0)
    before = Path("cut/metrics.jsonl").read_bytes()
    assert "holds no checkpoint to resume from" in run("resume", "cut").err
    Path("cut/run.json").write_text("{", encoding="utf-8")
    assert "error: 'cut/run.json' is damaged" in run("resume", "cut").err
    Path("cut/run.json").write_text(f'{{"status": "running", "training_seconds": {10**400}}}')
    assert "'cut/run.json' is damaged: training_seconds is 1000" in run("resume", "cut").err
    Path("cut/run.json").write_text('{"status": "running", "options": {"env": 3}}')
    assert "error: the run's options are damaged" in run("resume", "cut").err
    assert Path("cut/metrics.jsonl").read_bytes() == before


@pytest.mark.usefixtures("whole")
def test_run_folder_is_not_shared(run):
    """While one process trains in a folder, no other resumes there; a dead one holds nothing."""
    crash_after("cut", 48)
    code = (
        "import sys; from pathlib import Path; from rlox.cli.runs.folder import RunFolder\n"
        "with RunFolder(Path('cut')).lock(): print('locked', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "locked\n"
    result = run("resume", "cut")
    assert result.code == 2
    assert "error: another process is training in the run folder 'cut'" in result.err
    process.kill()
    process.communicate()
    assert run("resume", "cut").code == 0


@pytest.mark.usefixtures("whole")
def test_what_a_killed_process_wrote_half_is_removed(run):
    """Its temporary file is no checkpoint, and goes when the run is resumed."""
    crash_after("cut", 48)
    part = Path("cut/checkpoints/.step-64.safetensors.12345.tmp")
    part.write_bytes(b"half of")
    result = run("resume", "cut")
    assert result.code == 0, result.err
    assert not part.exists()
    assert draws("cut") == draws("whole")


def test_latest_checkpoint_is_the_one_of_most_env_steps(counting, tmp_path):
    """Neither file times nor names decide; the end comes before what is as late."""
    folder = RunFolder(tmp_path)
    for name, steps in (("final", 16), ("step-16", 16), ("interrupted", 24), ("best", 24)):
        algorithm = counting.CountingAlgorithm("CartPole-v1")
        algorithm.train(steps)
        algorithm.save(folder.checkpoint(name))
    saved, damaged = checkpoints_in(tmp_path)
    assert [each.path.stem for each in saved] == ["interrupted", "best", "final", "step-16"]
    assert damaged == []


def test_killed_process_is_resumed_by_another(run, start, hold):
    """After SIGKILL and Ctrl-C in real processes the run ends as one that nothing stopped."""
    long = (*TRAIN[:6], "--checkpoint-freq", "80", "--total-timesteps", "2400")
    assert run(*long, "--run-dir", "whole", "--quiet").code == 0
    hold(1_200)
    process = start(*long, "--run-dir", "cut", "--quiet")
    wait_for_checkpoint(process)
    process.send_signal(signal.SIGKILL)
    process.wait(120)
    latest = max(saved_steps("cut"))
    hold(2_000)
    process = start("resume", "cut", "--quiet")
    wait_for_checkpoint(process, beyond=latest)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "to finish: rlox resume cut" in err
    hold(None)
    assert run("resume", "cut", "--quiet").code == 0
    assert len(record("cut")["resumed"]) == 2
    assert draws("cut") == draws("whole")
    assert rows("cut") == rows("whole")


def test_command_that_is_printed_finishes_a_run_on_an_imported_env(
    run, counting, tmp_path, monkeypatch
):
    """It names the env, as no file may say which module is imported."""
    module = tmp_path / "site-packages" / "envs_of_a_stranger.py"
    module.write_text(
        "import gymnasium\n"
        "entry = 'gymnasium.envs.classic_control:CartPoleEnv'\n"
        "gymnasium.register('Strange-v0', entry, max_episode_steps=9)\n",
        encoding="utf-8",
    )
    env = "envs_of_a_stranger:Strange-v0"
    train = ("train", "counting", "--env", env, "--eval-episodes", 2, "--total-timesteps", 80)
    iterate = counting.CountingAlgorithm.iterate

    def interrupted(self, hooks):
        signal.raise_signal(signal.SIGINT)
        return iterate(self, hooks)

    with monkeypatch.context() as patch:
        patch.setattr(counting.CountingAlgorithm, "iterate", interrupted)
        err = run(*train, "--run-dir", "cut").err
    command = err.strip().partition("to finish: rlox ")[2].split()
    assert command == ["resume", "cut", "--env", env]
    result = run(*command)
    assert result.code == 0, result.err
    assert record("cut")["status"] == "finished"


def saved_steps(folder):
    """Return the env steps of the whole checkpoints; a killed process may leave a part of one."""
    paths = Path(folder, "checkpoints").glob("step-*.safetensors")
    return [int(path.stem.removeprefix("step-")) for path in paths]


def wait_for_checkpoint(process, beyond=0):
    """Wait until a checkpoint after ``beyond`` env steps is there."""
    deadline = time.monotonic() + 120
    while max(saved_steps("cut"), default=0) <= beyond:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.skipif(sys.platform == "win32", reason="limits the size of files")
def test_a_run_whose_log_cannot_grow_is_finished_later(run):
    """One line says how; then the logs are those of a run that always had room."""
    import resource

    long = [*TRAIN, "--total-timesteps", 1_600, "--seed", 0]  # a log larger than other files
    assert run(*long, "--run-dir", "whole").code == 0
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    room = Path("whole/metrics.jsonl").stat().st_size // 2
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as Python does
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        result = run(*long, "--run-dir", "full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert (result.code, result.err.count("\n")) == (2, 1), result.err
    assert "the disk of 'full' is full" in result.err
    assert "rlox resume full" in result.err
    assert run("resume", "full").code == 0
    assert rows("full") == rows("whole")
    assert draws("full") == draws("whole")
