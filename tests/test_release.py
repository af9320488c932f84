"""Releases: versions in step, licences, and the workflows that build and publish."""

import re
import shutil
from pathlib import Path

import pytest
import release
import repository
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(name):
    """Return a workflow."""
    return yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text())


def test_versions_are_in_step():
    """All distributions, the pins between them, and the package."""
    version = repository.project(ROOT / "rlox-core")["version"]
    assert release.wrong_versions() == []
    assert release.wrong_versions(f"v{version}") == []
    assert release.wrong_versions("v0.9") == [f"the tag v0.9 is not v{version}"]


def test_another_version_is_found(tmp_path):
    """Of a distribution, of a pin, of the package and in the changelog."""
    for name in ("CHANGELOG.md", "rlox-core/src/rlox/__init__.py",
                 *(f"{name}/pyproject.toml" for name in repository.distributions())):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    version = repository.project(tmp_path / "rlox-core")["version"]
    core = tmp_path / "rlox-core/pyproject.toml"
    core.write_text(core.read_text().replace(f'version = "{version}"', 'version = "9.9"', 1))
    repository.project.cache_clear()
    wrong = release.wrong_versions(root=tmp_path)
    repository.project.cache_clear()
    assert f"rlox-native has version {version}, not 9.9" in wrong
    assert "rlox.__version__ is not 9.9" in wrong
    assert "CHANGELOG.md has no section of 9.9" in wrong
    assert any(line.startswith("rlox-core needs rlox-native") for line in wrong)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("MIT OR Apache-2.0", True),
        ("MIT/Apache-2.0", True),
        ("(MIT OR GPL-3.0-only) AND Unicode-3.0", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-3.0-only", False),
        ("MIT AND GPL-3.0-only", False),
        ("", False),
        (None, False),
    ],
)
def test_licences_that_let_code_be_passed_on(expression, expected):
    """Each side of AND, or one of OR."""
    assert release.permits(expression) is expected


@pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed")
def test_every_crate_may_be_part_of_a_wheel():
    """And crates for tests alone are not counted; `nox -s wheels` looks at candle's too."""
    found = release.licences(["rlox-native"])
    assert [crate for crate, text in found.items() if not release.permits(text)] == []
    names = {crate.split()[0] for crate in found}
    assert {"pyo3", "numpy"} <= names
    assert not {"proptest", "criterion"} & names


def test_the_release_builds_every_distribution():
    """Those in Rust for each system, the others once, and publishes only what was tested."""
    jobs = read("release")["jobs"]
    rust = {path.parent.name for path in ROOT.glob("rlox-*/Cargo.toml")}
    assert set(jobs["rust-wheels"]["strategy"]["matrix"]["distribution"]) == rust
    systems = {
        re.split(r"[-.]", each["system"])[0]
        for each in jobs["rust-wheels"]["strategy"]["matrix"]["platform"]
    }
    assert systems == {"ubuntu", "macos", "windows"}
    assert jobs["publish"]["needs"] == "test"
    assert jobs["publish"]["if"] == "github.ref_type == 'tag'"
    assert set(jobs["test"]["needs"]) == {"rust-wheels", "sources"}
    assert "for each in rlox-*/" in str(jobs["sources"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_have_no_more_rights_than_they_need(path):
    """Read alone, no credentials left in checkouts, every action at a version."""
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert "permissions" not in job or name == "publish"
        for step in job["steps"]:
            uses = step.get("uses", "")
            assert not uses or re.search(r"@(v\d|release/v\d)", uses), uses
            if uses.startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False
