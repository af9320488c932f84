"""Options of a stranger's buffer and env backend: arguments, files, flags, checkpoints, errors."""

import importlib
import json
import pickle
import sys
import textwrap

import pytest
import rlox
from rlox.cli.flags import flags_of
from rlox.errors import ConfigError, PluginError, UnknownNameError
from rlox.training import checkpoint
from rlox_offpolicy.configs import DQNConfig

PLUGIN = """
import importlib
import rlox

@rlox.hookimpl
def rlox_buffers():
    yield rlox.BufferSpec("deep", "Uniform.", "stranger_parts:deep", "stranger_parts:Deep")

@rlox.hookimpl
def rlox_env_backends():
    yield rlox.EnvBackendSpec(
        "remote", "Envs of workers.", "stranger_parts:remote", options="stranger_parts:Remote"
    )
"""

PARTS = """
from pydantic import field_validator
from rlox.config.model import count, option, positive
from rlox.config.model import Config
from rlox.envs.gymnasium import GymVecEnv
from rlox.replay.buffers import uniform_buffer

MADE = []

class Deep(Config):
    depth: int = count(3, unit="layers", help="layers", source="a test")

class Remote(Config):
    stations: list[str] = option(..., help="workers", unit="address", source="a test")
    timeout: float = positive(5.0, help="seconds to wait", unit="s", source="a test")

    @field_validator("stations", mode="before")
    @classmethod
    def _split(cls, value):
        return value.split(",") if isinstance(value, str) else value

def deep(asked, *, options):
    MADE.append(options)
    return uniform_buffer(asked)

def remote(env_id, *, n_envs, env_kwargs, options):
    MADE.append((options, env_kwargs))
    return GymVecEnv(env_id, n_envs, env_kwargs=env_kwargs)
"""

CLASHING = """
import rlox
from rlox.config.model import count
from rlox.config.model import Config

class Options(Config):
    {name}: int = count(1, unit="1", help="a clash", source="a test")

def make(asked, *, options):
    raise AssertionError

@rlox.hookimpl
def rlox_buffers():
    yield rlox.BufferSpec("clashing", "Clashes.", f"{{__name__}}:make", f"{{__name__}}:Options")
"""

SMALL = {"buffer_size": 100, "learning_starts": 8, "batch_size": 4, "hidden": 8}
SMALL |= {"train_freq": 8, "gradient_steps": 1, "steps_per_iteration": 16, "n_envs": 2}


@pytest.fixture
def made(install, tmp_path, monkeypatch):
    """Install the stranger's plugin and return what its factories were given."""
    (tmp_path / "site-packages" / "stranger_parts.py").write_text(PARTS, encoding="utf-8")
    install("stranger", PLUGIN)
    monkeypatch.delitem(sys.modules, "stranger_parts", raising=False)
    parts = importlib.import_module("stranger_parts")
    yield parts.MADE
    sys.modules.pop("stranger_parts", None)


def dqn(**options):
    """Make a small DQN with the stranger's parts."""
    chosen = {"buffer": "deep", "env_backend": "remote", "stations": ["a:1", "b:2"]}
    return rlox.make("dqn", "CartPole-v1", **{**SMALL, **chosen, **options})


def test_options_reach_their_factory_as_one_object(made):
    """Both factories get an instance of their own model, with what was not given at its default."""
    with dqn(depth=7) as algorithm:
        (remote, _), deep = made
        assert (type(remote).__name__, remote.stations) == ("Remote", ["a:1", "b:2"])
        assert remote.timeout == 5.0
        assert (type(deep).__name__, deep.depth) == ("Deep", 7)
        assert isinstance(algorithm.config, DQNConfig)
        assert algorithm.config.depth == 7
        assert pickle.loads(pickle.dumps(algorithm.config)) == algorithm.config


def test_options_come_from_files(made, tmp_path):
    """In a config file they stand beside the algorithm's, and a dump reads back equal."""
    path = tmp_path / "config.yaml"
    path.write_text('{"buffer": "deep", "depth": 9, "env_backend": "remote", "stations": ["c:3"]}')
    with rlox.make("dqn", "CartPole-v1", config=path, **SMALL) as algorithm:
        (remote, _), deep = made
        assert (remote.stations, deep.depth) == (["c:3"], 9)
        algorithm.config.dump(tmp_path / "dumped.yaml")
        assert DQNConfig.load(tmp_path / "dumped.yaml") == algorithm.config


def test_a_checkpoint_restores_them(made, tmp_path):
    """They are saved with the config, and one may be changed by name."""
    with dqn(depth=7, save_replay_buffer=True) as algorithm:
        algorithm.train(32)
        algorithm.save(tmp_path / "a.rlox")
    del made[:]
    kind = type(algorithm)
    with kind.from_checkpoint(tmp_path / "a.rlox") as restored:
        (remote, _), deep = made
        assert (remote.stations, deep.depth) == (["a:1", "b:2"], 7)
        restored.train(32)
        assert restored.clock.env_steps == 64
        del made[:]
        restored.evaluate(n_episodes=2)
        assert made[0][0] == remote  # evaluations build their envs by the same workers
    with kind.from_checkpoint(tmp_path / "a.rlox", depth=1) as changed:
        assert changed.config.depth == 1


def test_flags_set_them_and_resume_uses_them(made, tmp_path, run):
    """The run folder holds what a flag set; the help names the plugin that an option is of."""
    folder = tmp_path / "run"
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    flags += ["--buffer=deep", "--depth=4", "--env-backend=remote", "--timeout=2.5"]
    flags += ["--stations=[a:1, b:2]", f"--run-dir={folder}", "--total-timesteps=64"]
    flags += ["--checkpoint-freq=32", "--quiet"]
    assert run("train", "dqn", "--env", "CartPole-v1", *flags)[0] == 0
    assert "depth: 4" in (folder / "config.yaml").read_text()
    (remote, _), deep = made[:2]
    assert (remote.stations, remote.timeout) == (["a:1", "b:2"], 2.5)
    del made[:]
    first = sorted((folder / "checkpoints").iterdir(), key=checkpoint.steps_of)[0]
    assert checkpoint.steps_of(first) == 32
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "status": "interrupted"}))
    assert run("resume", first, "--quiet")[0] == 0
    assert made[:2] == [(remote, {}), deep]
    shown = {p.name: repr(p.annotation.__metadata__[0].help) for p in flags_of(DQNConfig)}
    assert "With --buffer deep: layers" in shown["depth"]
    assert "With --env-backend remote: workers" in shown["stations"]


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"dept": 3}, ConfigError, "unknown option 'dept' for DQNConfig; did you mean 'depth'"),
        ({"depth": 0}, ConfigError, "depth: expected greater than or equal to 1, got 0"),
        ({"stations": 3}, ConfigError, "env_backend='remote': stations: expected"),
        ({"buffer": "depp", "depht": 4}, UnknownNameError, "unknown buffer 'depp'; did you mean"),
    ],
)
def test_typos_and_values_are_reported(made, options, kind, message):
    """The nearest name is searched among the algorithm's options and the plugins'."""
    with pytest.raises(kind, match=message):
        dqn(**options)
    assert not made


def test_a_needed_option_is_asked_for(made):
    """A field without a default must be given once its plugin is selected."""
    with pytest.raises(ConfigError, match="env_backend='remote': option 'stations' is mis"):
        DQNConfig(env_backend="remote")
    assert DQNConfig(env_backend="remote", stations="a,b").to_dict()["stations"] == ["a", "b"]


def test_an_option_with_its_default_may_stay_when_its_plugin_goes(made):
    """So a file with all options can be used with another buffer; a changed one is an error."""
    config = DQNConfig(buffer="deep", depth=3)
    assert type(config.replace(buffer="uniform")) is DQNConfig
    with pytest.raises(ConfigError, match="depth needs buffer='deep', got buffer='uniform'"):
        config.replace(depth=4).replace(buffer="uniform")


@pytest.mark.parametrize(
    ("name", "whose"), [("gamma", "an option of DQNConfig"), ("logger", "an argument of rlox.make")]
)
def test_a_clash_names_plugin_and_distribution(install, name, whose):
    """It is the plugin's fault, whosever name the option has."""
    install("hasty", textwrap.dedent(CLASHING.format(name=name)))
    message = f"buffer 'clashing' of the distribution 'hasty' is broken: its option '{name}' .*"
    with pytest.raises(PluginError, match=message + whose):
        DQNConfig(buffer="clashing")
    assert type(DQNConfig()) is DQNConfig
