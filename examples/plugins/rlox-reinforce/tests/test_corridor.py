"""The corridor's rules, as its docstring states them."""

import numpy as np
import numpy.typing as npt
import pytest
from rlox.errors import EnvError
from rlox_reinforce.corridor import N_CELLS, Corridor, make_corridor

RIGHT, LEFT = 1, 0


def cells(obs: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Return the cells that one-hot observations stand for."""
    return obs.argmax(-1)


def test_walking_right_earns_the_optimal_return() -> None:
    """From cell c the goal is 7 - c steps of reward -1 away."""
    env = Corridor(16)
    starts = cells(env.reset_all(0))
    arrived = np.zeros(16, int)
    for t in range(1, N_CELLS):
        step = env.step_all(np.full(16, RIGHT))
        arrived[(arrived == 0) & step["terminated"]] = t
        assert (step["rewards"] == -1).all()
    assert (arrived == 7 - starts).all()


def test_walking_left_is_cut_after_32_steps() -> None:
    """Time ends the episode as truncated, never as terminated, in the cell at the wall."""
    env = Corridor(4)
    env.reset_all(0)
    steps = [env.step_all(np.full(4, LEFT)) for _ in range(32)]
    assert not any(s["terminated"].any() for s in steps)
    assert [s["truncated"].all() for s in steps] == [False] * 31 + [True]
    assert (cells(steps[-1]["final_obs"]) == 0).all()


def test_starts_are_spread_over_the_first_four_cells() -> None:
    """Every start cell comes up about equally often."""
    counts = np.bincount(cells(Corridor(4000).reset_all(0)), minlength=N_CELLS)
    assert (counts[4:] == 0).all()
    assert (np.abs(counts[:4] - 1000) < 150).all()


def test_reset_without_seed_goes_on_to_the_next_episodes() -> None:
    """A second reset without seed draws new starts from the same streams."""
    one, other = Corridor(64), Corridor(64)
    first = one.reset_all(3)
    second = one.reset_all()
    other.reset_all(3)
    assert (second == other.reset_all()).all()
    assert (first != second).any()


def test_wrong_arguments_are_refused() -> None:
    """Counts, shapes and env arguments that do not fit are errors."""
    with pytest.raises(EnvError, match="n_envs must be at least 1, got 0"):
        Corridor(0)
    with pytest.raises(EnvError, match=r"actions must have shape \(2,\), got \(3,\)"):
        Corridor(2).step_all(np.zeros(3, int))
    with pytest.raises(EnvError, match="seed must have 2 items, got 1"):
        Corridor(2).reset_all([0])
    with pytest.raises(EnvError, match="takes no arguments, got length"):
        make_corridor("Corridor-v0", n_envs=1, env_kwargs={"length": 3})
