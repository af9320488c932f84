"""Lets tests import the modules next to them, whatever the working directory."""

import sys
from pathlib import Path

import pytest
import torch
from shared_fixtures import run as call  # noqa: F401

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def run(call, monkeypatch, tmp_path):  # noqa: F811
    """Return a function that runs the command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    yield call
    torch.set_num_threads(threads)
