"""What installing, breaking and colliding third-party plugins does, in a clean environment.

The environment holds core, the on-policy family, the conformance suite and the example plugin as a
user would install them: built from their folders, not editable, so that a file missing from a
distribution shows.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLUGINS = ROOT / "tests" / "plugins"
INSTALLED = {
    "rlox-core": f"{ROOT / 'rlox-core'}[torch]",
    "rlox-onpolicy": str(ROOT / "rlox-onpolicy"),
    "rlox-testing": str(ROOT / "rlox-testing"),
    "rlox-reinforce": str(ROOT / "examples" / "plugins" / "rlox-reinforce"),
}


class Environment:
    """A virtual environment and what can be run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "venv" / "bin" / "python"
        self.rlox = folder / "venv" / "bin" / "rlox"
        self._uv("venv", "--python", sys.executable, str(folder / "venv"))
        self._locked = folder / "locked.txt"
        # third parties' versions as locked, so that a release of theirs breaks no test of ours
        self._uv(
            "export", "--project", str(ROOT), "--package", "rlox-core", "--extra", "all",
            "--frozen", "--no-hashes", "--no-emit-workspace", "--no-default-groups",
            "--output-file", str(self._locked),
        )  # fmt: skip

    def _uv(self, *arguments: str) -> None:
        subprocess.run(
            ["uv", *arguments, "--quiet"], check=True, capture_output=True, text=True, timeout=280
        )

    def install(self, distributions: Mapping[str, str]) -> None:
        """Install folders by name; uv would take a changed folder for the one it built before."""
        fresh = [option for name in distributions for option in ("--refresh-package", name)]
        # --no-sources: the workspace of this repository would make its members editable
        self._uv(
            "pip", "install", "--no-sources", "--python", str(self.python),
            "--constraint", str(self._locked), *fresh, *distributions.values(),
        )  # fmt: skip

    def uninstall(self, name: str) -> None:
        """Uninstall a distribution."""
        self._uv("pip", "uninstall", "--python", str(self.python), name)

    def run(self, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command outside the repository, without the variables that steer rlox or Python."""
        steering = ("RLOX_", "PYTHON")
        env = {k: v for k, v in os.environ.items() if not k.startswith(steering)}
        return subprocess.run(
            [str(part) for part in command],
            cwd=self.folder,
            env={**env, "COLUMNS": "200", **variables},
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def evaluate(self, code: str, **variables: str) -> Any:
        """Return what ``code`` prints, as JSON."""
        done = self.run(self.python, "-c", code, **variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """Core, the on-policy family, the conformance suite and the example plugin."""
    if shutil.which("uv") is None:
        pytest.fail("uv is not installed; it builds the clean environment of these tests")
    made = Environment(tmp_path_factory.mktemp("plugins"))
    made.install(INSTALLED)
    yield made
    # pytest keeps the folders of three runs, and torch's is gigabytes where uv cannot link
    shutil.rmtree(made.folder)


@pytest.fixture
def with_broken(environment: Environment) -> Iterator[Environment]:
    """The environment while a plugin is installed that cannot be imported."""
    environment.install({"rlox-broken": str(PLUGINS / "rlox-broken")})
    yield environment
    environment.uninstall("rlox-broken")


@pytest.fixture
def with_conflict(environment: Environment) -> Iterator[Environment]:
    """The environment while a second plugin claims the name "reinforce"."""
    environment.install({"rlox-conflict": str(PLUGINS / "rlox-conflict")})
    yield environment
    environment.uninstall("rlox-conflict")


def test_a_plugin_is_found_by_name(environment: Environment) -> None:
    """An installed plugin's algorithm, env backend and logger work through make() alone."""
    code = """if True:
        import json, rlox
        algorithm = rlox.make(
            "reinforce", env="Corridor-v0", logger="markdown", log_dir="run", n_envs=2, n_steps=8
        )
        algorithm.train(16)
        env = type(algorithm.agent.collector.env).__module__
        print(json.dumps([type(algorithm).__module__, env, algorithm.clock.env_steps]))
    """
    assert environment.evaluate(code) == ["rlox_reinforce.reinforce", "rlox_reinforce.corridor", 16]
    table = (environment.folder / "run" / "training.md").read_text(encoding="utf-8")
    assert table.splitlines()[2].startswith("| 16 | ")


def test_list_names_the_distribution_of_every_part(environment: Environment) -> None:
    """``rlox list`` shows who brought what, as a table and as JSON."""
    table = environment.run(environment.rlox, "list")
    assert table.returncode == 0, table.stderr
    rows = [line.split() for line in table.stdout.splitlines()]
    for name in ("reinforce", "corridor", "markdown"):
        assert any(name in row and "rlox-reinforce" in row for row in rows), table.stdout
    listed = json.loads(environment.run(environment.rlox, "list", "--json").stdout)
    assert {
        (kind, entry["name"])
        for kind, entries in listed.items()
        for entry in entries
        if kind != "conflicts" and entry["distribution"] == "rlox-reinforce"
    } == {("algorithms", "reinforce"), ("env_backends", "corridor"), ("loggers", "markdown")}


def test_the_command_line_trains_a_plugin(environment: Environment) -> None:
    """``rlox train`` has a command for a plugin's algorithm, with flags from its config."""
    done = environment.run(
        environment.rlox, "train", "reinforce", "--env", "Corridor-v0",
        "--total-timesteps", "2000", "--n-envs", "4", "--logger", "markdown",
        "--run-dir", "trained",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    table = (environment.folder / "trained" / "training.md").read_text(encoding="utf-8")
    assert table.splitlines()[-1].startswith("| 2048 | ")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("reinforce", {"env": "Corridor-v0", "n_envs": 2, "n_steps": 32}),
        ("ppo", {"n_envs": 2, "n_steps": 64, "batch_size": 32, "n_epochs": 2}),
    ],
)
def test_an_installed_algorithm_conforms(
    environment: Environment, name: str, arguments: dict[str, Any]
) -> None:
    """The conformance suite needs nothing else, and every algorithm passes it."""
    code = f"""if True:
        import json, rlox.testing
        print(json.dumps(rlox.testing.check_algorithm({name!r}, **{arguments})))
    """
    assert environment.evaluate(code) == {}


def test_a_broken_plugin_is_one_warning_and_nothing_else(with_broken: Environment) -> None:
    """A plugin that cannot be imported is named in one warning; all others work."""
    code = """if True:
        import json, warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import rlox
            names = rlox.list_algorithms()
            for name, env in (("reinforce", "Corridor-v0"), ("ppo", "CartPole-v1")):
                rlox.make(name, env=env)
        texts = [str(w.message) for w in caught if w.category.__name__ == "PluginWarning"]
        print(json.dumps([names, texts]))
    """
    names, texts = with_broken.evaluate(code)
    assert names == ["a2c", "appo", "hybrid_ppo", "impala", "ppo", "reinforce"]
    assert len(texts) == 1
    assert "rlox-broken" in texts[0]
    assert "a_library_that_was_uninstalled" in texts[0]


def test_a_broken_plugin_is_an_error_under_strict_loading(with_broken: Environment) -> None:
    """RLOX_PLUGINS_STRICT=1, as a CI sets it, lets no broken plugin pass."""
    code = "import rlox; rlox.list_algorithms()"
    done = with_broken.run(with_broken.python, "-c", code, RLOX_PLUGINS_STRICT="1")
    assert done.returncode != 0
    assert "PluginError" in done.stderr
    assert "rlox-broken" in done.stderr


def test_a_name_claimed_twice_is_unusable_and_only_that_name(with_conflict: Environment) -> None:
    """Neither claimant wins: the error names both distributions, and PPO still works."""
    code = """if True:
        import json, rlox
        from rlox.errors import PluginConflictError
        rlox.make("ppo", env="Corridor-v0")
        try:
            rlox.make("reinforce", env="Corridor-v0")
        except PluginConflictError as error:
            print(json.dumps(str(error)))
    """
    text = with_conflict.evaluate(code)
    assert "'rlox-reinforce'" in text
    assert "'rlox-conflict'" in text


def test_list_shows_a_conflict(with_conflict: Environment) -> None:
    """``rlox list`` reports the name and both claimants, and lists all that is usable."""
    done = with_conflict.run(with_conflict.rlox, "list", "--json")
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    assert [entry["name"] for entry in listed["algorithms"]] == [
        "a2c",
        "appo",
        "hybrid_ppo",
        "impala",
        "ppo",
    ]
    (conflict,) = listed["conflicts"]
    for part in ("'reinforce'", "'rlox-reinforce'", "'rlox-conflict'"):
        assert part in conflict
    table = with_conflict.run(with_conflict.rlox, "list")
    assert "rlox-conflict" in table.stdout + table.stderr
