"""Lets the tests import the modules beside them, wherever they are run from."""

import os
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from rlox import cli

settings.register_profile(
    "any-speed",
    deadline=None,
    max_examples=int(os.environ.get("RLOX_EXAMPLES", "15")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any-speed")

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Return a function that calls the command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()

    def run(*arguments):
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["rlox", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        out, err = capsys.readouterr()
        return int(exit_.value.code or 0), out, err

    yield run
    torch.set_num_threads(threads)
