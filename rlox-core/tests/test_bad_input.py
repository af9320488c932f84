"""Wrong calls, one a row: each is refused before any work, with value, expectation and remedy."""

import re
from pathlib import Path

import gymnasium
import pytest
import rlox
from gymnasium import spaces
from rlox import registry
from rlox.callbacks import EarlyStoppingCallback, EvalCallback
from rlox.envs.make import make_vec_env
from rlox.errors import CheckpointError, ConfigError, EnvError, SpaceError, UnknownNameError
from rlox.logging import ConsoleLogger, LoggerList

NAN = float("nan")

FILES = {
    "bad.json": b"{",
    "text.safetensors": b"hello",
}


class NoSpaces(gymnasium.Env):
    """An env that says nothing of its spaces."""


class Words(NoSpaces):
    """An env that shows text of any length."""

    observation_space = spaces.Text(3)
    action_space = spaces.Discrete(2)


CALLS = [
    # names
    (lambda c: rlox.make("countng", env="X"), UnknownNameError,
     "unknown algorithm 'countng'; did you mean 'counting'? (installed: counting)"),
    (lambda c: rlox.make(None, env="X"), TypeError,
     "the name of the algorithm must be text, got None"),
    (lambda c: rlox.make("counting"), ConfigError,
     "the algorithm 'counting' needs env=..., got none"),
    (lambda c: rlox.make("counting", "X", callbacks="evl"), UnknownNameError,
     "unknown callback 'evl'; did you mean 'eval'? (installed: checkpoint, early-stopping, eval, "
     "progress, timing)"),
    (lambda c: rlox.make("counting", "X", logger="jsnl"), UnknownNameError,
     "unknown logger 'jsnl'; did you mean 'jsonl' or 'json'? (installed: console, csv, json, "
     "jsonl, mlflow, tensorboard, wandb)"),
    (lambda c: registry.get_registry().get("rlox_env_backends", 3), TypeError,
     "the name of the env backend must be text, got 3"),
    # config files
    (lambda c: c("X", config="folder"), ConfigError,
     "config file 'folder' cannot be read: Is a directory"),
    # envs
    (lambda c: make_vec_env("CartPol-v1"), EnvError,
     "env 'CartPol-v1' cannot be built: Environment `CartPol` doesn't exist. Did you mean: "
     "`CartPole`? (if a module of yours registers it, name that too: 'module:CartPol-v1')"),
    (lambda c: make_vec_env("no_such_module:Env-v0"), EnvError,
     "env 'no_such_module:Env-v0' cannot be built: No module named 'no_such_module'...; "
     "if the module lies in the working folder, set PYTHONPATH=."),
    (lambda c: make_vec_env(3), EnvError,
     "env must be a gymnasium id, a callable that makes an env, a gymnasium env or a vector env, "
     "got int"),
    (lambda c: make_vec_env(lambda: None), EnvError,
     "the env callable must return a gymnasium.Env, got NoneType"),
    (lambda c: make_vec_env(NoSpaces), EnvError,
     "NoSpaces.observation_space must be a gymnasium.Space, got None; set it in the env's "
     "constructor"),
    (lambda c: make_vec_env(Words), SpaceError, "...Text(1, 3, charset=..."),
    (lambda c: make_vec_env("CartPole-v1", backend="natve"), UnknownNameError,
     "unknown env backend 'natve'..."),
    # evaluation
    (lambda c: c("CartPole-v1").evaluate(n_episodes=0), ValueError,
     "n_episodes must be at least 1, got 0"),
    # callbacks and loggers
    (lambda c: c("X", callbacks=[3]), TypeError,
     "callbacks must be rlox.callbacks.Callback objects, got int"),
    (lambda c: c("X", callbacks=[EvalCallback]), TypeError,
     "callbacks must be rlox.callbacks.Callback objects, got the class EvalCallback; make an "
     "object of it"),
    (lambda c: c("X", logger="jsonl"), TypeError,
     "a logger must be a rlox.logging.LoggerCallback object, got 'jsonl'; rlox.make takes names "
     "too"),
    (lambda c: LoggerList(ConsoleLogger), TypeError,
     "a logger must be a rlox.logging.LoggerCallback object, got <class "
     "'rlox.logging.files.ConsoleLogger'>; rlox.make takes names too"),
    (lambda c: ConsoleLogger(0), ValueError, "log_interval must be at least 1, got 0"),
    (lambda c: EvalCallback(n_eval_episodes=1.5), TypeError,
     "n_eval_episodes must be an integer, got 1.5"),
    (lambda c: EarlyStoppingCallback(min_delta=NAN), ValueError,
     "min_delta must be at least 0, got nan"),
    (lambda c: EarlyStoppingCallback(monitor="loss"), ValueError,
     "monitor must be 'train' or 'eval', got 'loss'"),
    # checkpoints
    (lambda c: c.from_checkpoint("none"), CheckpointError, "checkpoint 'none' does not exist"),
    (lambda c: c.from_checkpoint("folder"), CheckpointError,
     "checkpoint 'folder' is a folder; name a file in it, such as checkpoints/final.safetensors of "
     "a run"),
    (lambda c: c.from_checkpoint("text.safetensors"), CheckpointError,
     "'text.safetensors' is damaged or not an rlox checkpoint: Error while deserializing header: "
     "..."),
    (lambda c: c.from_checkpoint("none", config={}), ConfigError,
     "a checkpoint brings its own config; pass the options to change by name"),
    (lambda c: c("X").save("folder"), IsADirectoryError,
     "[Errno 21] expected a file, got a folder: 'folder'"),
    (lambda c: c("X").save("bad.json/c.rlox"), OSError, "[Errno ...'bad.json'"),
]  # fmt: skip


def matches(message, pattern):
    """Compare exactly, except where the pattern has three dots for what a library says."""
    parts = [re.escape(part) for part in pattern.split("...")]
    return re.fullmatch(".*".join(parts), message, re.DOTALL) is not None


@pytest.fixture(autouse=True)
def _workplace(install, monkeypatch, tmp_path):
    """Work in a folder with wrong files."""
    install(
        "rlox-counting",
        "import rlox\n@rlox.hookimpl\ndef rlox_algorithms():\n    yield rlox.AlgorithmSpec("
        "'counting', 'Counts.', 'counting_config:CountingConfig', "
        "'counting_algorithm:CountingAlgorithm')\n",
    )
    monkeypatch.setenv("RLOX_PLUGINS", "rlox-counting")
    folder = tmp_path / "work"
    (folder / "folder").mkdir(parents=True)
    monkeypatch.chdir(folder)
    for name, content in FILES.items():
        Path(name).write_bytes(content)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: re.sub(r"\W+", "-", call[2])[:60])
def test_wrong_call_is_refused_before_any_work(call, counting):
    """With exactly this error and text, and nothing is written."""
    wrong, error, message = call
    before = sorted(Path.cwd().rglob("*"))
    with pytest.raises(error) as caught:
        wrong(counting.CountingAlgorithm)
    assert type(caught.value) is error or error is OSError
    assert matches(str(caught.value), message), str(caught.value)
    assert sorted(Path.cwd().rglob("*")) == before


def test_wrong_env_for_a_checkpoint_names_both(counting):
    """If a state does not fit, the error names the env it was saved on."""
    counting.CountingAlgorithm("CartPole-v1").save("good.safetensors")

    class Other(counting.CountingAlgorithm):
        def load_state_dict(self, state):
            raise CheckpointError("the network differs from the saved one")

    with pytest.raises(CheckpointError) as caught:
        Other.from_checkpoint("good.safetensors", env_id="Acrobot-v1")
    assert str(caught.value) == (
        "checkpoint 'good.safetensors' does not fit (it was saved on the env 'CartPole-v1', not "
        "'Acrobot-v1'): the network differs from the saved one"
    )
