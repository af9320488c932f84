"""Tests of :mod:`rlox.cli`, with an algorithm that counts instead of learning."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

import pytest
import yaml
from rlox.cli.flags import given_options
from rlox.config.model import (
    Config,
    ScheduleValue,
    choice,
    coefficient,
    count,
    flag,
    schedule,
)
from rlox.config.schedules import Linear
from rlox.errors import PluginWarning
from rlox.training import checkpoint

TRAIN = ("train", "counting", "--env", "CartPole-v1", "--eval-episodes", "2")

TOOLS = 'a distribution that is not installed; run: pip install "rlox-core[tools]"'


class KindsConfig(Config):
    """One field of each kind."""

    seed: int | None = count(3, ge=0, unit="1", help="fixes the draws", source="here")
    n_steps: int = count(4, unit="env steps", help="rollout [T]", source="table 3")
    rate: ScheduleValue = schedule("linear(1e-3, 0)", help="step size", source="here")
    bonus: float = coefficient(0.5, unit="1/nats", help="weight", source="here")
    clip_it: bool = flag(True, help="clips", source="here")
    how: Literal["sync", "async"] = choice("sync", help="where", source="here")


def record(folder):
    """Return a run folder's ``run.json``."""
    return json.loads(Path(folder, "run.json").read_text(encoding="utf-8"))


def config(folder):
    """Return a run folder's ``config.yaml``."""
    return yaml.safe_load(Path(folder, "config.yaml").read_text(encoding="utf-8"))


# flags


def test_help_shows_meaning_unit_source_default_and_choices(run):
    """The help of a training command is the config's documentation."""
    result = run("train", "counting", "--help")
    text = " ".join(result.out.split())
    assert result.code == 0
    for expected in (
        "--n-steps INTEGER rollout length T (env steps per env; test) [default: 4]",
        "--seed INTEGER|none fixes every random draw (test) [default: 42]",
        "--env ID",
        "Counts instead of learning.",
        "https://example.org/paper",
    ):
        assert expected in text


def test_flag_texts_mean_what_the_config_says():
    """Numbers, schedules, choices and none come out of a flag's text as from Python."""
    given = given_options(
        KindsConfig,
        {"seed": "none", "n_steps": "8", "rate": "linear(3e-4, 0)", "bonus": "3e-4",
         "clip_it": False, "how": None},
    )  # fmt: skip
    assert "how" not in given
    resolved = KindsConfig(**given)
    assert resolved.seed is None
    assert resolved.n_steps == 8
    assert resolved.rate == Linear(start=3e-4, end=0.0)
    assert resolved.bonus == 3e-4
    assert resolved.clip_it is False
    text = "{kind: piecewise, points: [[0, 0.1], [100, 0.01]]}"
    resolved = KindsConfig(**given_options(KindsConfig, {"rate": text}))
    assert str(resolved.rate).startswith("kind='piecewise'")


# errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "countng"), "unknown algorithm 'countng'; did you mean 'counting'"),
        (("train", "ppo", "--env", "CartPole-v1"), 'pip install "rlox-core[onpolicy]"'),
        (("train", "counting"), "missing option '--env'"),
        ((*TRAIN, "--n-env", "3"), "no such option: --n-env; did you mean '--n-envs'"),
        ((*TRAIN, "--n-envs", "0"), "n_envs: expected greater than or equal to 1, got 0"),
        ((*TRAIN, "--total-timesteps", "0"), "invalid value for '--total-timesteps'"),
        ((*TRAIN, "--total-timesteps", "1.5"), "such as 500000, 5e5 or 500k, got '1.5'"),
        ((*TRAIN, "--logger", "jsnl"), "unknown logger 'jsnl'; did you mean 'jsonl'"),
        ((*TRAIN, "--callback", "evil"), "unknown callback 'evil'; did you mean 'eval'"),
        ((*TRAIN, "--config", "none.yaml"), "config file 'none.yaml' cannot be read"),
        (("eval", "nothing"), "checkpoint 'nothing' does not exist"),
        (("resume", "a/nothing.safetensors"), "'a/nothing.safetensors' is not a run folder: it"),
        (("eval", "p.rlox"), "the policy file 'p.rlox' does not exist"),
        (("eval", "."), "folder '.' holds no checkpoints/*.safetensors"),
        (("lst",), "no such command 'lst'; did you mean 'list'"),
        (("plot", "runs"), f"the command 'plot' needs {TOOLS}"),
        (("worker",), "the command 'worker' needs a distribution that is not installed"),
        ((*TRAIN, "--seeds", "3"), f"the option --seeds needs {TOOLS}"),
        ((*TRAIN, "--callback", "video"), f"the callback 'video' needs {TOOLS}"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_line_before_any_work(run, arguments, message):
    """A mistake ends with exit code 2 and one line on stderr, and leaves no file."""
    result = run(*arguments)
    assert result.code == 2
    assert result.err.startswith("error: ")
    assert message in result.err
    assert result.err.count("\n") == 1
    assert result.out == ""
    assert list(Path.cwd().iterdir()) == []


def test_used_run_folder_is_refused(run, tmp_path):
    """Nothing is overwritten; the error names the remedy."""
    file = tmp_path / "used" / "notes.txt"
    file.parent.mkdir()
    file.write_text("keep me", encoding="utf-8")
    result = run(*TRAIN, "--run-dir", file.parent)
    assert result.code == 2
    assert "is not empty; name another with --run-dir" in result.err
    assert [path.name for path in file.parent.iterdir()] == ["notes.txt"]


def test_run_folder_that_is_a_link_to_nothing_is_refused(run, tmp_path):
    """The error names the link and the remedy, and no folder is made."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "disk" / "runs")
    result = run(*TRAIN, "--run-dir", link)
    assert result.code == 2
    assert f"'{link}' is a link that leads nowhere; make the folder" in result.err
    assert not (tmp_path / "disk").exists()


# training


def test_run_folder_holds_config_record_metrics_and_checkpoint(run, counting):
    """A finished run can be understood and gone on with from its folder alone."""
    result = run(*TRAIN, "--total-timesteps", 20, "--seed", 5)
    assert result.code == 0, result.err
    [folder] = Path("runs").iterdir()
    assert re.fullmatch(r"counting-CartPole-v1-5-\d{8}-\d{6}", folder.name)
    names = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    assert names == ["checkpoints/final.safetensors", "config.yaml", "metrics.jsonl", "run.json"]
    run_json = record(folder)
    assert run_json["status"] == "finished"
    assert (run_json["algorithm"], run_json["env"]) == ("counting", "CartPole-v1")
    assert (run_json["seed"], run_json["total_timesteps"], run_json["env_steps"]) == (5, 20, 24)
    assert set(run_json["evaluation"]) == {"mean", "std", "n_episodes"}
    assert run_json["command"].startswith("rlox train counting --env CartPole-v1")
    assert {"python", "numpy", "gymnasium", "rlox-core"} <= set(run_json["versions"])
    assert run_json["started"] <= run_json["ended"]
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [(row["kind"], row["step"]) for row in rows] == [
        ("train", 8), ("train", 16), ("train", 24), ("eval", 24),
    ]  # fmt: skip
    final = folder / "checkpoints/final.safetensors"
    assert counting.CountingAlgorithm.from_checkpoint(final).clock.env_steps == 24


def test_config_of_a_run_repeats_it(run):
    """The resolved config, a drawn seed included, gives the same draws again."""
    run(*TRAIN, "--total-timesteps", 40, "--seed", "none", "--run-dir", "a")
    run(*TRAIN, "--total-timesteps", 40, "--config", "a/config.yaml", "--run-dir", "b")
    draws = [
        checkpoint.read(f"{name}/checkpoints/final.safetensors")["state"]["algorithm"]["draws"]
        for name in "ab"
    ]
    assert config("a")["seed"] is not None
    assert draws[0].tolist() == draws[1].tolist()


def test_slash_of_an_env_id_makes_no_folder(run, monkeypatch):
    """Ids with a namespace name one folder."""
    import gymnasium

    gymnasium.register("pets/Cart-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv",
                       max_episode_steps=10)  # fmt: skip
    try:
        result = run(*TRAIN[:2], "--env", "pets/Cart-v0", "--total-timesteps", 8)
    finally:
        del gymnasium.registry["pets/Cart-v0"]
    assert result.code == 0, result.err
    [folder] = Path("runs").iterdir()
    assert folder.name.startswith("counting-pets_Cart-v0-42-")


def test_checkpoints_and_evaluations_come_at_multiples_across_rollouts(run):
    """Checkpoints end the iteration that passes a multiple, evaluations the vector step."""
    result = run(
        *TRAIN, "--total-timesteps", 32, "--checkpoint-freq", 10, "--eval-freq", 15,
        "--run-dir", "run",
    )  # fmt: skip
    assert result.code == 0, result.err
    names = sorted(path.name for path in Path("run/checkpoints").iterdir())
    assert names == ["best.safetensors", "final.safetensors", *(
        f"step-{step}.safetensors" for step in (16, 24, 32)
    )]  # fmt: skip
    rows = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if row["kind"] == "eval"] == [16, 30, 32]


def test_callbacks_by_name_write_into_the_run_folder(run):
    """The working directory stays as it was."""
    result = run(*TRAIN, "--total-timesteps", 10_000, "--n-envs", 500, "--callback", "checkpoint",
                 "--run-dir", "run")  # fmt: skip
    assert result.code == 0, result.err
    assert Path("run/checkpoints/step-10000.safetensors").is_file()
    assert [path.name for path in Path.cwd().iterdir()] == ["run"]


def test_failed_run_is_recorded_as_failed(run, counting, monkeypatch):
    """An error of the disk ends with one line, and run.json says that the run failed."""

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(counting.CountingAlgorithm, "save", fail)
    result = run(*TRAIN, "--total-timesteps", 8, "--run-dir", "run")
    assert result.code == 2
    assert result.err == (
        "error: the disk of 'run' is full (No space left on device); free some space, then: "
        "rlox resume run\n"
    )
    assert record("run")["status"] == "failed"


# signals


def wait_until(process, condition):
    """Wait until something is true of what a process has written."""
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_until_training(process):
    """Wait for the first line of metrics."""
    metrics = Path("run/metrics.jsonl")
    wait_until(process, lambda: metrics.exists() and metrics.stat().st_size > 0)


def test_signal_stops_training_with_a_checkpoint_that_loads(counting, start):
    """SIGTERM saves a consistent state and says where, as Ctrl-C does."""
    process = start(*TRAIN, "--total-timesteps", 10**9, "--run-dir", "run", "--quiet")
    wait_until_training(process)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 143, (out, err)
    assert err.count("\n") == 1
    assert "saved run/checkpoints/interrupted.safetensors" in err
    restored = counting.CountingAlgorithm.from_checkpoint("run/checkpoints/interrupted.safetensors")
    run_json = record("run")
    assert run_json["status"] == "interrupted"
    assert run_json["env_steps"] == restored.clock.env_steps > 0


WATCHING = """
import pathlib, rlox
from rlox.callbacks import Callback

class Watching(Callback):
    def on_train_batch(self, **kwargs):
        pathlib.Path("updating").touch()
        if any(getattr(each, "signal", None) for each in kwargs["algo"].callbacks.callbacks):
            pathlib.Path("noticed").touch()

@rlox.hookimpl
def rlox_callbacks():
    yield rlox.CallbackSpec("watching", "Says in files how far it is.", __name__ + ":Watching")
"""


def test_second_ctrl_c_aborts_at_once(start, install, monkeypatch):
    """Where the iteration does not end, the second signal does not wait for it."""
    install("rlox-watching", WATCHING)
    monkeypatch.setenv("RLOX_PLUGINS", "rlox-counting,rlox-watching")
    process = start(
        *TRAIN, "--total-timesteps", 10**9, "--run-dir", "run", "--quiet",
        "--n-updates", 10**9, "--callback", "watching",
    )  # fmt: skip
    for awaited in ("updating", "noticed"):
        wait_until(process, Path(awaited).exists)
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert record("run")["status"] == "interrupted"
    assert not Path("run/checkpoints").exists()


def test_signal_handlers_are_restored(run):
    """After a run, signals do what they did before."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    run(*TRAIN, "--total-timesteps", 8)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


# eval, list, explain


def test_eval_takes_a_run_folder_or_a_file(run):
    """Whatever its name, the checkpoint of the most env steps is taken."""
    run(*TRAIN, "--total-timesteps", 8, "--run-dir", "run")
    final = Path("run/checkpoints/final.safetensors")
    of_file = run("eval", final, "--episodes", 3, "--json")
    assert run("eval", "run", "--episodes", 3, "--json") == of_file
    values = json.loads(of_file.out)
    assert values["algorithm"] == "counting"
    assert values["env"] == "CartPole-v1"
    assert values["min"] <= values["mean"] <= values["max"]
    assert values["mean_length"] == values["mean"]
    interrupted = final.rename(final.with_name("interrupted.safetensors"))
    assert json.loads(run("eval", "run", "--json").out)["checkpoint"] == str(interrupted)
    newest = interrupted.rename(final.with_name("step-8.safetensors"))
    assert json.loads(run("eval", "run", "--json").out)["checkpoint"] == str(newest)


def test_eval_takes_the_best_of_a_run_folder(run):
    """--best names the checkpoint that --eval-freq keeps, and says so where there is none."""
    run(*TRAIN, "--total-timesteps", 16, "--run-dir", "run", "--eval-freq", 10)
    found = json.loads(run("eval", "run", "--best", "--json").out)
    assert found["checkpoint"] == "run/checkpoints/best.safetensors"
    Path(found["checkpoint"]).unlink()
    result = run("eval", "run", "--best")
    assert result.code == 2
    assert "holds no checkpoints/best.safetensors; --eval-freq makes one" in result.err


def test_list_warns_of_names_claimed_twice(run, install, monkeypatch, plugin):
    """A conflict costs its own name only, and asking for that name says why."""
    install("rlox-copycat", plugin)
    monkeypatch.setenv("RLOX_PLUGINS", "rlox-counting,rlox-copycat")
    result = run("list")
    assert result.code == 0
    assert result.err.startswith("warning: the name 'counting'")
    assert "gymnasium" in result.out
    assert "is claimed by the distributions" in run(*TRAIN).err


@pytest.mark.parametrize(
    ("name", "kind"),
    [("timing", "callbacks"), ("jsonl", "loggers"), ("uniform", "replay buffers"),
     ("gymnasium", "env backends")],
)  # fmt: skip
def test_explain_knows_every_kind_of_plugin(run, name, kind):
    """The kind, the distribution and what it is; an algorithm of the name goes first."""
    result = run("explain", name)
    assert result.code == 0
    assert re.search(rf"kind +{kind}\n", result.out)
    assert "rlox-core" in result.out


@pytest.mark.parametrize(
    ("words", "expected"),
    [("rlox tr", "train"), ("rlox train count", "counting"),
     ("rlox train counting --total", "--total-timesteps")],
)  # fmt: skip
def test_the_shell_completes(run, counting, monkeypatch, words, expected):
    """Commands, algorithms and their flags, as the script of ``--install-completion`` asks."""
    monkeypatch.setenv("_RLOX_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert expected in run().out.split()


def test_explain_reports_the_learner_for_an_env(run):
    """The line is there for an env only, and options without one are refused."""
    shown = run("explain", "counting", "--env", "CartPole-v1").out.splitlines()
    assert "learner there is no choice" in [" ".join(line.split()) for line in shown]
    assert "learner" not in run("explain", "counting").out
    assert "pass --env too" in run("explain", "counting", "--config", "a.yaml").err


# start-up


def test_broken_plugin_is_one_warning_line(start, install, monkeypatch, plugin):
    """A plugin that cannot be imported, and a config that cannot, leave the rest working."""
    install("rlox-broken", "import no_such_module_anywhere")
    half = plugin.replace('"counting"', '"half"').replace("counting_config:", "gone:")
    install("rlox-half", half)
    monkeypatch.setenv("RLOX_PLUGINS", "rlox-counting,rlox-broken,rlox-half")
    # completion makes the commands of all algorithms
    monkeypatch.setenv("_RLOX_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "rlox train ")
    monkeypatch.setenv("COMP_CWORD", "2")
    out, err = start().communicate(timeout=120)
    assert out.split() == ["counting"]
    assert err.startswith("warning: rlox plugin 'rlox-broken' failed: ModuleNotFoundError")
    assert err.count("\n") == 1


def test_help_and_list_import_no_torch():
    """Looking around loads neither torch nor gymnasium's envs."""
    code = (
        "import contextlib, sys, rlox.cli\n"
        "for words in ('--help', 'list', 'train counting --help'):\n"
        "    sys.argv[1:] = words.split()\n"
        "    with contextlib.suppress(SystemExit): rlox.cli.main()\n"
        "    print({'torch', 'gymnasium'} & set(sys.modules), file=sys.stderr)"
    )
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.stderr == 3 * "set()\n"


RUN_OPTIONS = """
from typing import Annotated

import rlox
import typer

Twice = Annotated[int, typer.Option(help="how often")]

def train(name, config, options, *, twice: Twice = 1):
    print(name, config.n_envs, options.env, twice)
    return None if twice == 1 else 10 * twice

def resume(run, env, parts, quiet, *, twice: Twice = 1):
    print(run, env, parts, quiet, twice)
    return None if twice == 1 else 10 * twice

@rlox.hookimpl
def rlox_run_options():
    yield rlox.RunOptionsSpec("twice", "Twice.", __name__ + ":train", __name__ + ":resume")
"""


def test_a_plugin_adds_options_to_train_and_resume(run, install, monkeypatch):
    """Its functions take the run over, or leave it to core."""
    install("rlox-twice", RUN_OPTIONS)
    monkeypatch.setenv("RLOX_PLUGINS", "rlox-counting,rlox-twice")
    assert "--twice " in run("train", "counting", "--help").out
    taken = run(*TRAIN, "--n-envs", 3, "--twice", 2)
    assert (taken.code, taken.out) == (20, "counting 3 CartPole-v1 2\n")
    left = run(*TRAIN, "--total-timesteps", 8, "--run-dir", "r")
    assert left.code == 0, left.err
    taken = run("resume", "r", "--quiet", "--reward", "a:b", "--twice", 3)
    assert (taken.code, taken.out) == (30, "r None {'reward_fn': 'a:b'} True 3\n")
    assert "the run 'r' is finished" in run("resume", "r").err


def test_an_option_that_is_taken_is_left_out(run, install, monkeypatch):
    """A warning names the plugin, and the command goes on without it."""
    install("rlox-twice", RUN_OPTIONS.replace("twice", "reward"))
    monkeypatch.setenv("RLOX_PLUGINS", "rlox-counting,rlox-twice")
    text = (
        "of the distribution 'rlox-twice' is broken: 'rlox resume' has an option 'reward' already"
    )
    with pytest.warns(PluginWarning, match=text):
        assert "'r' is not a run folder" in run("resume", "r").err


COMMANDS_PLUGIN = """
import rlox

@rlox.hookimpl
def rlox_commands():
    yield rlox.CommandSpec("greet", "Greets.", "greet_command:app")
    yield rlox.CommandSpec("train", "Never called.", "greet_command:app")
"""

GREET = """
import typer

def app():
    group = typer.Typer()

    @group.command("hello")
    def hello(name: str) -> None:
        print("hello", name)

    @group.command("bye")
    def bye() -> None:
        print("bye")

    return group
"""


def test_a_plugin_adds_commands_but_replaces_none(run, install, monkeypatch):
    """Its module is imported only when the command is called."""
    Path("greet_command.py").write_text(GREET, encoding="utf-8")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    install("rlox-greet", COMMANDS_PLUGIN)
    monkeypatch.setenv("RLOX_PLUGINS", "rlox-greet")
    message = (
        "the command 'train' of the distribution 'rlox-greet' is left out: rlox has one of that "
        "name; give it another"
    )
    with pytest.warns(PluginWarning, match=message):
        assert re.search(r"  greet +Greets\.", run("--help").out)
    listed = json.loads(run("list", "--json").out)
    assert [command["name"] for command in listed["commands"]] == ["greet"]
    assert listed["conflicts"] == [message]
    assert "greet_command" not in sys.modules
    assert run("greet", "hello", "you").out == "hello you\n"
    assert "Train an algorithm on an env" in run("train", "--help").out
    assert run("greets").code == 2
