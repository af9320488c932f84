"""Conformance checks of checkpoints: complete and exact restoring."""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rlox.algorithm import Algorithm
from rlox.protocols import StatefulVecEnv

from rlox_testing.cases import CARTPOLE, open_case
from rlox_testing.probes import (
    ProbeGroup,
    ProbeVecEnv,
    Recorder,
    RowRecorder,
    SaveOnce,
    check,
    require,
    require_same,
)


def full_state(algorithm: Algorithm) -> dict[str, Any]:
    """Return the contents of a checkpoint, except the config."""
    return {
        "clock": algorithm.clock.state_dict(),
        "streams": algorithm.streams.state_dict(),
        "state_dict": algorithm.state_dict(),
    }


def require_resumes(resumed: Algorithm, straight: Algorithm) -> None:
    """Train on, and require the same state as after an uninterrupted training."""
    state = resumed.state_dict()
    kept = copy.deepcopy(state)
    resumed.train()
    require_same(kept, state, "state_dict() must return copies, but training changed them")
    require_same(
        full_state(straight),
        full_state(resumed),
        "state_dict() must hold everything that training changes: a resumed training ends "
        "elsewhere than a straight one",
    )


def require_gradient_steps(
    build: Callable[..., Any], n: int
) -> tuple[Any, list[tuple[int, dict[str, float]]]]:
    """Require that gradient steps are counted, reported and logged, and that callbacks end them.

    Args:
        build: returns a new algorithm, which takes the arguments ``callbacks`` and ``logger``.
        n: gradient steps to train for.

    Returns:
        The trained algorithm and its logged rows.
    """
    recorder, rows = Recorder(), RowRecorder()
    algorithm = build(callbacks=[recorder], logger=rows)
    algorithm.train(n)
    steps, env_steps = algorithm.clock.gradient_steps, algorithm.clock.env_steps
    require(
        steps >= n and not env_steps,
        f"train({n}) took {steps} gradient steps and {env_steps} env steps",
    )
    require(
        recorder.steps == list(range(1, steps + 1)),
        f"on_step must come after each gradient step, got {recorder.steps}",
    )
    require(bool(rows.rows) and rows.rows[-1][0] == steps, "the logger must get the last row")
    for key, value in ((key, value) for _, row in rows.rows for key, value in row.items()):
        number = isinstance(value, float) and math.isfinite(value)
        require(number, f"the metric '{key}' is {value!r}")
    stopped = build(callbacks=[Recorder(stop_at=2)])
    stopped.train(n)
    taken = stopped.clock.gradient_steps
    require(taken == 2, f"on_step returned False after 2 gradient steps, {taken} were taken")
    return algorithm, rows.rows


def _is_stateful(watched: ProbeVecEnv | ProbeGroup) -> bool:
    return all(isinstance(one, StatefulVecEnv) for one in getattr(watched, "probes", [watched]))


@check
def check_checkpoint(name: str, env: Any = CARTPOLE, **arguments: Any) -> None:
    """Check that a restored algorithm has the saved one's state, clock, config and actions."""
    with open_case(name, env, arguments) as case, tempfile.TemporaryDirectory() as folder:
        path, watched = Path(folder, "first.rlox"), case.probe()
        algorithm = case.build(watched)
        algorithm.train(1)
        algorithm.save(path)
        restored_env = case.probe()
        restored = case.restore(path, env_id=restored_env)
        require(restored.config == algorithm.config, "the restored config differs")
        saved, loaded = full_state(algorithm), full_state(restored)
        if not _is_stateful(watched):
            # parts that depend on the env's state start again; clock and actions show the rest
            saved.pop("state_dict"), loaded.pop("state_dict")
        require_same(saved, loaded, "the restored state differs from the saved")
        obs = np.concatenate([np.array(restored_env.reset_all(seed)) for seed in (0, 100)])
        _require_same_actions(algorithm, restored, obs)
        if isinstance(env, str):
            by_id = case.build(env)
            by_id.train(1)
            by_id.save(path)
            again = case.restore(path)
            source = again.env_source
            require(source == env, f"a checkpoint of an env id must restore it, got {source!r}")
            _require_same_actions(algorithm, again, obs)
        state = algorithm.state_dict()
        kept = copy.deepcopy(state)
        algorithm.train(1)
        require_same(kept, state, "state_dict() must return copies, but training changed them")
        if _is_stateful(watched):
            algorithm.load_state_dict(state)
            require_same(
                kept,
                algorithm.state_dict(),
                "loading a state into a trained algorithm must replace its own",
            )


def _require_same_actions(one: Algorithm, other: Algorithm, obs: npt.NDArray[Any]) -> None:
    require(
        np.array_equal(one.predict(obs), other.predict(obs)),
        "the restored algorithm chooses other actions",
    )


@check
def check_resume(name: str, env: Any = CARTPOLE, **arguments: Any) -> str | None:
    """Check that saving, restoring and going on equals training straight through, bit by bit.

    If the env does not expose its state, a copy of the whole env stands in for it.
    """
    with open_case(name, env, arguments) as case, tempfile.TemporaryDirectory() as folder:
        path, watched = Path(folder, "first.rlox"), case.probe()
        if not _is_stateful(watched):
            return "the env neither exposes its state nor can be copied"
        scratch = case.build(case.probe())
        scratch.train(1)
        total = 3 * scratch.clock.env_steps
        straight = case.build(watched, SaveOnce(path))
        straight.train(total)
        require(path.exists(), "the callbacks were not called; pass callbacks= on to Algorithm")
        rows = RowRecorder()
        resumed = case.restore(path, env_id=case.probe(), callbacks=[Recorder()], logger=rows)
        require_resumes(resumed, straight)
        require(rows.rows, "the logger got no rows; pass logger= on to Algorithm.__init__")
    return None
