"""The command ``rlox doctor``."""

import sys
from importlib import metadata

import pytest
import rlox


def rows(text):
    """Return the screen's second column by the first."""
    return {line.strip().split("  ")[0]: line for line in text.splitlines()}


@pytest.fixture
def absent(monkeypatch):
    """Return a function that makes a distribution look as if it was not installed."""
    version = metadata.version

    def remove(name):
        def lacks(asked):
            if asked == name:
                raise metadata.PackageNotFoundError(asked)
            return version(asked)

        monkeypatch.setattr(metadata, "version", lacks)

    return remove


def test_doctor_shows_versions_backends_devices_and_threads(run, monkeypatch):
    """On one screen, with torch or without."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    result = run("doctor")
    assert result.code == 0, result.err
    shown = rows(result.out)
    assert f"rlox-core {rlox.__version__}" in shown["versions"]
    assert "gymnasium" in shown["env backends"]
    assert "torch" in shown["learners"]
    assert "OMP_NUM_THREADS 3" in shown["threads"]
    assert {"platform", "processor", "devices", "missing"} <= set(shown)
    assert len(shown) <= 45


def test_doctor_names_the_command_that_installs_what_is_missing(run, absent):
    """Per extra, by what the distributions declare."""
    absent("torch")
    assert 'pip install "rlox-core[torch]"  (torch)' in rows(run("doctor").out)["torch"]
    absent("rlox-offline")
    shown = rows(run("doctor").out)
    assert 'pip install "rlox-core[offline]"' in shown["offline"]
    assert "rlox-offline" in shown["hdf5"]


def test_doctor_says_why_a_backend_cannot_be_used(run, monkeypatch):
    """A library is missing."""
    monkeypatch.setitem(sys.modules, "rlox.learners.compiled", None)
    assert "torch (not usable: " in rows(run("doctor").out)["learners"]


def test_doctor_shows_plugins_that_failed(run, install, monkeypatch):
    """And goes on with the others; also where strict loading makes that an error."""
    install("rlox-broken", "raise RuntimeError('out of order')")
    monkeypatch.setenv("RLOX_PLUGINS", "rlox-counting,rlox-broken")
    shown = rows(run("doctor").out)
    assert "rlox plugin 'rlox-broken' failed: RuntimeError: out of order" in shown["problem 1"]
    assert "gymnasium" in shown["env backends"]
    monkeypatch.setenv("RLOX_PLUGINS_STRICT", "1")
    assert "out of order" in rows(run("doctor").out)["problem 1"]


def test_another_rlox_is_named_with_the_remedy(run, tmp_path, monkeypatch):
    """By the command, by a missing name, and by the first import of theirs that finds ours."""
    info = tmp_path / "rlox-1.2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rlox\nVersion: 1.2.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    texts = [run("doctor").out]
    with pytest.raises(AttributeError) as missing:
        _ = rlox.Trainer
    with pytest.raises(ImportError) as theirs:
        from rlox.config import PPOConfig  # noqa: F401
    for text in (*texts, str(missing.value), str(theirs.value)):
        assert "the distribution 'rlox' 1.2.0 of another project is installed" in text
        assert "pip uninstall rlox && pip install --force-reinstall --no-deps rlox-core" in text
