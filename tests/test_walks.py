"""Files that one iteration of PPO and one step of SAC pass, and that a page lists them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from gymnasium.spaces import Box
from rlox.spaces.rows import ObservationRows
from rlox.training.hooks import Hooks
from rlox_offpolicy.sac import SAC
from rlox_onpolicy.ppo import PPO

ROOT = Path(__file__).parents[1]

sys.path.insert(0, str(ROOT / "docs" / "_ext"))

from walks import BESIDE, Walk, trace  # noqa: E402

PAGE = (ROOT / "docs" / "explanation" / "walks.md").read_text(encoding="utf-8")


def ppo_iteration(backend: str) -> Walk:
    """Trace the second iteration of PPO; the first one builds what later ones reuse."""
    ppo = PPO("CartPole-v1", n_envs=2, n_steps=128, seed=0, backend=backend)
    ppo.train(256)
    ppo.clock.extend(256)
    hooks = Hooks(ppo)
    return trace(lambda: ppo.iterate(hooks))


def sac_step(backend: str) -> Walk:
    """Trace an iteration of one env step with one gradient step."""
    options = {"learning_starts": 50, "buffer_size": 1_000, "steps_per_iteration": 1}
    sac = SAC("Pendulum-v1", seed=0, backend=backend, **options)
    sac.train(60)
    sac.clock.extend(1)
    hooks = Hooks(sac)
    return trace(lambda: sac.iterate(hooks))


WALKS = {
    "PPO, torch learner": (ppo_iteration, "torch"),
    "PPO, as it runs by default": (ppo_iteration, "auto"),
    "SAC, torch learner": (sac_step, "torch"),
    "SAC, as it runs by default": (sac_step, "auto"),
}


def listed(heading: str) -> list[str]:
    """Return the files that the page lists below a heading."""
    section = PAGE.split(f"### {heading}\n")[1].split("\n#")[0]
    return [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]


@pytest.fixture(params=WALKS, scope="module")
def walk(request: pytest.FixtureRequest) -> tuple[str, Walk]:
    """Each walk with its heading on the page."""
    make, backend = WALKS[request.param]
    return request.param, make(backend)


def test_the_page_lists_the_files_of_each_walk(walk: tuple[str, Walk]) -> None:
    """A new file on the way has to be explained there."""
    heading, traced = walk
    assert sorted(listed(heading)) == sorted(traced.files)


def test_an_iteration_passes_few_files(walk: tuple[str, Walk]) -> None:
    """Those that no observation, action or gradient passes are counted apart."""
    heading, traced = walk
    bar = 14 if heading.startswith("PPO") else 22
    assert len([name for name in traced.files if name not in BESIDE]) <= bar


def test_the_files_beside_the_data_are_few() -> None:
    """The exceptions cannot grow with every new file."""
    assert len(BESIDE) <= 4
    assert all((ROOT / name).is_file() for name in BESIDE)


def test_a_trace_lists_files_and_returns() -> None:
    """A call back into a file is a return; what lies outside the packages is left out."""
    nested, rows = (f"rlox-core/src/rlox/spaces/{name}.py" for name in ("nested", "rows"))
    space = Box(0.0, 1.0, (2,))
    found = trace(lambda: ObservationRows(space).empty(3))
    assert found.files == (rows, nested)
    assert found.calls == ((rows, nested), (nested, rows))
    assert found.returns == 1
