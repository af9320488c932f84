"""The template of a distribution: made in a copy of the repository, it passes every check."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import repository

ROOT = Path(__file__).parents[1]
MAKE = "_template/new.py"
FAMILY = ("rlox-madeup", "--algorithm", "made_up")
GENERATED = "rlox-core/src/rlox/algorithms/"
"""Written by ``rlox-core/facades.py``."""


def git(folder, *arguments):
    """Return the lines that git prints in a folder."""
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True
    ).stdout.splitlines()


def touched(folder):
    """Return the files that were changed or added since the last commit, uv's lock file too."""
    return {line[3:] for line in git(folder, "status", "--porcelain", "-uall")} | {"uv.lock"}


def python(folder, *arguments):
    """Run Python with the copy's core and its made-up family in front of what is installed."""
    paths = [folder / "rlox-core/src", folder / "rlox-madeup/src", folder / "metadata"]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "RLOX_PLUGINS_STRICT": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=env,
        check=False,
        capture_output=True,
        text=True,
    )


def register(folder):
    """Write the metadata that installing the family would, from its pyproject."""
    table = repository.project(folder / "rlox-madeup")
    info = folder / "metadata" / f"rlox_madeup-{table['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: rlox-madeup\nVersion: {table['version']}\n"
    )
    points = [f"{name} = {value}" for name, value in table["entry-points"]["rlox"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[rlox]", *points]) + "\n")


@pytest.fixture
def copy(tmp_path):
    """Return a repository with the tracked files of this one."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs the files that git tracks")
    for name in git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard"):
        if (ROOT / name).is_file() and not name.startswith(
            ("benchmarks/results", "rlox-native/fuzz")
        ):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".git" / "info").mkdir(parents=True)
    git(tmp_path, "init", "-q")
    (tmp_path / ".git" / "info" / "exclude").write_text("metadata/\n")
    commit(tmp_path)
    return tmp_path


def commit(folder):
    """Commit everything."""
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "x", "--no-verify")


def add_algorithm(folder):
    """Add an algorithm to the family as its author would: a copy of the first one."""

    def renamed(text):
        return text.replace("made_up", "second").replace("MadeUp", "Second")

    package = folder / "rlox-madeup/src/rlox_madeup"
    for path in (
        package / "made_up.py",
        folder / "rlox-madeup/tests/test_made_up.py",
        folder / "docs/reference/algorithms/made_up.md",
    ):
        path.with_name(renamed(path.name)).write_text(renamed(path.read_text()))
    configs = package / "configs.py"
    text = configs.read_text()
    config = renamed(text[text.index("class ") :])
    configs.write_text(f"{text}\n\n{config}".replace('Config"]', 'Config", "SecondConfig"]'))
    plugin = package / "plugin.py"
    text = plugin.read_text()
    plugin.write_text(text + renamed(text[text.index("    yield") :]))
    table = folder / "rlox-core/src/rlox/registry/families.py"
    row = re.search(r".*\"made_up\".*\n", table.read_text())
    table.write_text(table.read_text().replace("\n)\n", f"\n{renamed(row[0])})\n", 1))
    assert python(folder, "rlox-core/facades.py").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("learns_from", ["rollouts", "replay", "dataset"])
def test_a_family_made_from_the_template_passes_every_check(copy, learns_from):
    """It registers, learns, is documented and declares what it needs, and so does a second one."""
    made = python(copy, MAKE, *FAMILY, "--learns-from", learns_from)
    assert made.returncode == 0, made.stderr
    outside = {path for path in touched(copy) if not path.startswith("rlox-madeup/")}
    assert len(outside) <= 10, outside
    register(copy)
    commit(copy)
    add_algorithm(copy)
    by_hand = {path for path in touched(copy) - {"uv.lock"} if not path.startswith(GENERATED)}
    assert len(by_hand) <= 6, by_hand
    rules = [f"tests/test_{name}.py" for name in ("architecture", "declared_dependencies", "docs")]
    checked = python(
        copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly",
        "rlox-madeup/tests", *rules, "rlox-core/tests/test_facade.py",
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout[-8000:] + checked.stderr[-2000:]
    assert "rlox-madeup/tests" in str(repository.affected(["rlox-core/src/rlox/a.py"], copy))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("madeup", "--algorithm", "made_up"), "must be rlox- and one lower-case word, got madeup"),
        (("rlox-core", "--algorithm", "made_up"), "rlox-core exists already; choose another name"),
        (("rlox-madeup", "--algorithm", "ppo"), "ppo.md exists already; choose another name"),
    ],
)
def test_wrong_names_are_refused_before_anything_is_written(arguments, message):
    """Each with what was expected."""
    before = git(ROOT, "status", "--porcelain")
    result = subprocess.run(
        [sys.executable, MAKE, *arguments], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert result.returncode == 2
    assert message in result.stderr
    assert git(ROOT, "status", "--porcelain") == before
